"""Requests to every route, each a good body with some of its values replaced; none may be answered with a fault of the
server's. `python -m tests.server.fuzz 2000` sends so many to each route.
"""

import argparse
import copy
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.routing import APIRoute

from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.examples import REQUESTS
from tests.server.harness import Running, serving

Json = dict[str, Any]

_TOOL = {"type": "function", "function": {"name": "search", "description": "Searches.",
         "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}  # fmt: skip
_CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
_MESSAGES = [
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "5"},
    {"role": "assistant", "content": "The answer is 5.", "reasoning_content": "Five."},
]
_ATIF = {"schema_version": "ATIF-v1.4", "session_id": "s", "steps": [
    {"step_id": 1, "source": "user", "message": "What is 2 + 3?"},
    {"step_id": 2, "source": "agent", "message": "I look.", "reasoning_content": "Hm.",
     "tool_calls": [{"tool_call_id": "c", "function_name": "search", "arguments": {"query": "x"}}],
     "observation": {"results": [{"source_call_id": "c", "content": "5"}]}},
    {"step_id": 3, "source": "agent", "message": "The answer is 5."}]}  # fmt: skip
_AGENTS = [{"trajectories": [{"messages": _MESSAGES, "id": "a"}, _ATIF], "tools": [_TOOL], "evidence": "before",
            "observation_tokens": 9, "thoughts": True}]  # fmt: skip
_CHAT = {"model": "m", "messages": _MESSAGES, "tools": [_TOOL], "tool_choice": "auto", "n": 2, "temperature": 0.5,
         "seed": 1, "logprobs": True, "top_logprobs": 2, "max_tokens": 9, "stop": ["x"], "stream_options": {},
         "unprm": {"strategy": "wrf", "budget": 2, "round": 1, "stable": 0.9, "show_samples": True}}  # fmt: skip
_LISTED = {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/item"}}
_FORMED = _CHAT | {"tools": None, "tool_choice": None, "response_format": {"type": "json_schema", "json_schema": {
    "name": "n", "schema": {"properties": {"a": {"$ref": "#/$defs/list"}}, "$defs": {"item": {}, "list": _LISTED}}}},
    "unprm": {"strategy": "majority", "budget": 2, "vote_on": ["/a", "/a/0"]}}  # fmt: skip
_ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "What is 2 + 3?"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Add."}]},
    {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"query": "x"}'},
    {"type": "function_call_output", "call_id": "c", "output": "5"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "5"}]},
]
_RANKED = {"model": "fake", "query": "2 + 3?", "documents": ["5", {"text": "6"}], "top_n": 1, "return_documents": True}
_PAIRS = {"model": "fake", "text_1": ["2 + 3?", "1 + 1?"], "text_2": ["5", {"text": "2"}]}
_PROMPT = {"model": "fake", "input": ["a b", [1, 2]], "add_special_tokens": True, "use_activation": False}
_SPOKEN = {"messages": _MESSAGES, "model": "fake", "priority": 0}
BODIES: dict[str, list[Json]] = {
    **{
        f"/vote/{name.removeprefix('vote_')}": [body, *_AGENTS]
        for name, body in REQUESTS.items()
        if name.startswith("vote_")
    },
    "/score_steps": [
        REQUESTS["score_steps"],
        REQUESTS["score_steps"] | {"gold": ["83"], "combination": "outcome_mean", "mean_weight": 0.1},
        {"problems": ["2 + 3?", "1 + 1?"], "solutions": [["5"], "The answer is 2."], "golds": ["5", ["2", "two"]]},
        *_AGENTS,
    ],
    "/feedback": [REQUESTS["feedback"], {"request_id": "r", "answer": "83"}],
    "/vote": [REQUESTS["vote"], *_AGENTS],
    "/grade": [REQUESTS["grade"]],
    "/preview": [
        REQUESTS["preview"],
        {"trajectory": {"messages": _MESSAGES}, "tools": [_TOOL]},
        {"trajectory": _ATIF, "problem": "p"},
    ],
    "/classify": [_PROMPT, _SPOKEN],
    "/pooling": [_PROMPT | {"task": "classify", "encoding_format": "float"}, _SPOKEN],
    "/tokenize": [{"prompt": "a b", "model": "fake", "add_special_tokens": False}],
    **{path: [_RANKED] for path in ("/rerank", "/v1/rerank", "/v2/rerank")},
    **{path: [_PAIRS] for path in ("/score", "/v1/score")},
    "/v1/chat/completions": [_CHAT, _FORMED, _CHAT | {"stream": True, "model": "majority-2@m", "unprm": {}}],
    "/v1/completions": [{"model": "m", "prompt": "2 + 3 =", "n": 1, "best_of": 1, "stream": False}],
    "/v1/responses": [{"model": "m", "input": _ITEMS, "instructions": "Be brief.", "temperature": 0.5,
                       "max_output_tokens": 9, "metadata": {"a": "b"}, "unprm": {"budget": 2}},
                      {"model": "m", "input": [*_ITEMS[:1], *_ITEMS[-1:]], "temperature": 0.5, "metadata": {"a": "b"}},
                      {"model": "m", "input": "2 + 3?", "tools": [_TOOL["function"]], "stream": True}],
    "/v1/messages": [{"model": "m", "max_tokens": 9, "system": "Be brief.", "tools": [
                          {"name": "search", "description": "Searches.", "input_schema": {"properties": {"q": {}}}}],
                      "tool_choice": {"type": "auto"}, "stop_sequences": ["x"], "metadata": {}, "thinking": {},
                      "messages": [{"role": "user", "content": "2 + 3?"},
                                   {"role": "assistant", "content": [
                                       {"type": "text", "text": "I look."},
                                       {"type": "tool_use", "id": "c", "name": "search", "input": {"q": "x"}}]},
                                   {"role": "user", "content": [
                                       {"type": "tool_result", "tool_use_id": "c", "content": "5"}]}],
                      "unprm": {"budget": 2}}],
    "/v1/messages/count_tokens": [{"model": "m", "system": "Be brief.",
                                   "messages": [{"role": "user", "content": [{"type": "text", "text": "2 + 3?"}]}]}],
    "/admin/models": [{"name": "m", "model": "unprm-mini", "revision": "main", "beta": 0.5}],
}  # fmt: skip
"""Good bodies of every route that takes one."""

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 5, 64, 10**30, -0.5, 1e308, "", " ", "x", "\x00", "0", "null", "{", "[]", "é",
    "x" * 5000, "\\boxed{", "<think>", [], [[]], [1], [None], ["x"], [{}], {}, {"x": 1}, {"text": 1}, {"type": "text"},
    {"function": None}, {"properties": 5}, {"": {"": ""}}, {"$ref": "#/$defs/list"}, {"$ref": "#" + "/a" * 500},
    [1e308] * 500, "/a" * 500, "[" + "1e308," * 500 + "1e22]", "[" * 150 + "]" * 150, "x" * 5000 + "😀",
)  # fmt: skip
"""What values are replaced with."""


def bodies(path: str, seed: int) -> Iterator[bytes]:
    """An endless series of bodies for a route; equal seeds give equal ones."""
    random = Random(f"{seed} {path}")
    while True:
        body = copy.deepcopy(random.choice(BODIES[path]))
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            body = _changed(body, random)
        yield json.dumps(body, ensure_ascii=random.random() < 0.5).encode()


def _changed(body: Any, random: Random) -> Any:
    """The body with one of its values replaced, left out, doubled or put elsewhere."""
    places = list(_places(body))
    if not places:
        return random.choice(ODD)
    parent, key = random.choice(places)
    match random.randrange(6):
        case 0 if isinstance(parent, dict):
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        case 2:
            other, name = random.choice(places)
            parent[key] = copy.deepcopy(other[name])
        case 3 if isinstance(parent, dict):
            parent[random.choice(("x", "", "n", "text", "type", "function", "model"))] = random.choice(ODD)
        case _:
            parent[key] = copy.deepcopy(random.choice(ODD))
    return body


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in the value with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@contextmanager
def target() -> Iterator[Running]:
    """A server with all routes."""
    with (
        TemporaryDirectory() as directory,
        upstream("5", "The answer is \\boxed{5}.") as reasoner,
        serving(
            FakeEngine(max_tokens=65_536),
            lambda request: FakeEngine(),
            upstream_url=reasoner.url,
            admin_key="an admin's key",
            api_key="a caller's key",
            journal=Path(directory) / "journal.db",
        ) as server,
    ):
        yield server


def routes(server: Running) -> list[str]:
    """The paths of all routes that take a body."""
    app = server.server.config.app
    found = {each.path for each in app.routes if isinstance(each, APIRoute) and each.body_field is not None}
    return sorted(found)


def attack(server: Running, path: str, seed: int, count: int) -> Counter[int]:
    """Sends so many bodies to a route. How often each status came; raises `AssertionError` for a fault of the server's,
    with the body."""
    key = "an admin's key" if path.startswith("/admin") else "a caller's key"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    statuses: Counter[int] = Counter()
    for _, body in zip(range(count), bodies(path, seed), strict=False):
        answer = server.http.post(path.replace("{name:path}", "fake"), content=body, headers=headers)
        assert answer.status_code not in (500, 503), (path, body)  # 502 is the upstream's
        assert b'"code":"internal"' not in answer.content, (path, body)
        statuses[answer.status_code] += 1
    return statuses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.server.fuzz")
    parser.add_argument("count", type=int, help="Requests to each route.")
    count = parser.parse_args().count
    with target() as attacked:
        for route in routes(attacked):
            print(route, dict(sorted(attack(attacked, route, 0, count).items())), flush=True)
