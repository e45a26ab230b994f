"""Bodies of the largest size in their worst forms: nobody waits for them, and what they take is counted."""

import asyncio
import gc
import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from server.app import create_app
from server.routes.gateway.messages import MessagesRequest
from server.routes.route import OBJECT_BYTES, PARSED, VALUE_BYTES, parse, parsed_size
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.gateway.harness import gateway
from tests.server.harness import Background, Running, ask
from tests.server.turns import Turns, post
from tests.support import until
from unprm.wire import ScoreRequest

SIZE = 2**20
"""Largest size of a body here."""
OBJECTS = 8500
"""As many objects as may be in one."""
STEPS, TEXT, PART, CALL = "a\n\n", "a b ", {"type": "text", "text": "a"}, {"function": {"name": "f"}}
USER, AGENT = {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}
ATIF = {"source": "agent", "message": "a"}


def filled(piece: Any, share: float = 1.0) -> Any:
    """A text of a quarter of a body, which takes long enough, or a list of as many pieces as a body may have."""
    sent = json.dumps(piece)
    if isinstance(piece, str):
        return piece * (SIZE // 4 // (len(sent) - 2))
    return [piece] * int(share * min(SIZE * 0.95 / (len(sent) + 2), OBJECTS / max(1, sent.count("{"))))


def chat(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], "unprm": {"budget": 2}, **more}


WORST: dict[str, list[dict[str, Any]]] = {
    "/score_steps": [
        ask(filled(STEPS)), ask(filled("#### ")), ask(filled("$$ ")), ask(*[["a"] * 60] * 256),
        ask(*[{"steps": ["a"] * 20, "step_scores": [0.5] * 20}] * 256),
        {"trajectories": [{"messages": [{"role": "assistant", "tool_calls": filled(CALL)}]}]},
        {"trajectories": [{"messages": filled(AGENT, 0.2)}] * 4}, ask("a", x=filled({"a": 1})),
        {"trajectories": [{"schema_version": "ATIF-v1.4", "steps": filled(ATIF, 0.2)}] * 4},
        ask({"text": "a", "offsets": filled([0, 1])}),
    ],
    "/vote/wrf": [ask(filled(STEPS), "1"), ask("1", "2") | {"problem": filled(TEXT)}],
    "/vote/compare": [ask(filled(STEPS), "1")],
    "/grade": [{"pairs": [{"answer": f"{k}x", "gold": [f"{k}x+{m}" for m in range(16)]} for k in range(90)]},
               {"pairs": [{"text": filled(STEPS), "gold": "1"}] * 3}, {"pairs": filled({"gold": "1"})}],
    "/preview": [{"problem": "p", "solution": filled(STEPS)},
                 {"trajectory": {"messages": [{"role": "assistant", "content": filled(PART)}]}}],
    "/classify": [{"messages": [USER | {"content": filled(TEXT)}, AGENT]},
                  {"messages": [AGENT | {"content": filled(STEPS)}]}, {"messages": [USER | {"content": filled(1)}]}],
    "/pooling": [{"messages": [USER | {"content": filled(PART)}, AGENT]}, {"input": filled(1)},
                 {"input": ["ş" * 150] * 256}],
    "/tokenize": [{"prompt": filled(TEXT)}],
    "/rerank": [{"query": "q", "documents": [filled(STEPS)]}, {"query": "q", "documents": filled(1)}],
    "/score": [{"text_1": filled(1), "text_2": "a"}, {"text_1": ["a"] * 100_000, "text_2": ["a"]}],
    "/v1/chat/completions": [chat(filled("(A) ")), chat(filled(PART)), chat("a", tools=filled(1)),
                             chat(filled(PART)) | {"unprm": {"budget": 2, "strategy": "wrf"}}],
    "/v1/completions": [{"model": "m", "prompt": filled(TEXT)}, {"model": "m", "prompt": filled(1)}],
    "/v1/responses": [{"model": "m", "input": filled(AGENT)}, {"model": "m", "input": filled(1)},
                      {"model": "m", "input": "a", "metadata": {str(k): 1 for k in range(20_000)}}],
    "/v1/messages": [{"model": "m", "max_tokens": 9, "messages": filled(AGENT)},
                     {"model": "m", "max_tokens": 9, "messages": [USER | {"content": filled({"type": "text"})}]}],
}  # fmt: skip
"""For each route, bodies that would cost most if they were read carelessly."""


@pytest.mark.parametrize("path", WORST)
def test_the_loop_reads_nothing_of_a_caller_s_size(path: str) -> None:
    """Of the processor time that a body takes, a turn of the loop, which everybody waits for, has little."""

    async def longest(body: bytes) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Turns)
        begun = time.process_time()
        await asyncio.sleep(0)
        loop.begin()
        status, answer = await post(app, path, body)
        assert status in (200, 422), answer[:500]
        return loop.longest, time.process_time() - begun

    async def all_of_them() -> None:
        async with app.router.lifespan_context(app):
            while service.models.states()[0].state != "ready":
                await asyncio.sleep(0.01)
            for body in WORST[path]:
                sent = json.dumps(body, ensure_ascii=False).encode()
                turn, whole = await longest(sent)
                assert turn < 0.02 + whole / 5, (str(body)[:100], turn, whole)

    with upstream("1", "2") as reasoner, asyncio.Runner(loop_factory=Turns) as runner:
        app = create_app(Settings(upstream_url=reasoner.url, max_body_bytes=SIZE), FakeEngine())
        service = app.state.service
        gc.disable()  # a collection is nobody's
        try:
            runner.run(all_of_them())
        finally:
            gc.enable()


def test_every_list_that_is_read_ends_at_its_first_error() -> None:
    """A body of 8 MB has room for millions of errors, each of which takes more memory than what was sent."""
    app = create_app(
        Settings(upstream_url="http://127.0.0.1:1", admin_key="an admin's key"),
        FakeEngine(),
        lambda request: FakeEngine(),
    )
    found = set[str]()
    for route in app.routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            found |= set(_unbounded(route.body_field._type_adapter.core_schema, route.path))
    assert found == set()


def _unbounded(schema: Any, name: str) -> Iterator[str]:
    """The fields whose values can have any number of errors."""
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _unbounded(each, name)
    elif isinstance(schema, dict):
        elements = schema.get("values_schema" if schema.get("type") == "dict" else "items_schema")
        pair = isinstance(elements, list) and "variadic_item_index" not in schema
        checked = not pair and any(
            each.get("type") != "any" for each in (elements if isinstance(elements, list) else [elements or {}])
        )
        if elements and checked and not schema.get("fail_fast") and schema.get("max_length", SIZE) > 4096:
            yield name
        if schema.get("type") == "model":
            name = schema["cls"].__name__
        for key, value in schema.items():
            if key == "fields" and isinstance(value, dict):
                for field, inner in value.items():
                    yield from _unbounded(inner, f"{name}.{field}")
            elif key not in ("metadata", "serialization", "json_schema_input_schema"):
                yield from _unbounded(value, name)


@pytest.mark.parametrize(
    ("body", "objects", "others"),
    [
        ("{}", 1, 0),
        ('{"a": [1, 2, [3]]}', 1, 4),
        ('{"a": "{[,{[,"}', 1, 0),
        ('{"a": "\\"{,", "b\\\\": "\\\\\\",{", "c": {}}', 2, 2),
        ('{"a": "' + '\\"' * 70_000 + '", "b": [' + "{}," * 50_000 + "{}]}", 50_002, 50_002),
        ('{"a": "' + "x" * 65_530 + '{", "b": "{"}', 1, 1),
        ("no JSON {", 1, 0),
    ],
)
def test_values_are_counted_outside_strings(body: str, objects: int, others: int) -> None:
    assert parsed_size(body.encode()) == OBJECT_BYTES * objects + VALUE_BYTES * others


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "text"}] * 3000}]},
        {"model": "m", "max_tokens": 9, "messages": [AGENT] * 3000},
        {"problem": "p", "trajectories": [{"messages": [AGENT] * 1000}] * 3},
        {"problem": "p", "solutions": [["a"] * 1000] * 30},
        {"problem": "p", "solutions": [{"text": "a", "token_logprobs": [-0.5] * 30_000}]},
        {"problem": "p", "solutions": ["x" * 2**20 + "😀"]},
        {"problem": "p", "solutions": ["x" * 2**20 + "–"]},
        {"problem": "数" * 2**20, "solutions": ["é" * 2**20]},
    ],
    ids=["parts", "turns", "trajectories", "steps", "numbers", "an emoji", "a dash", "wide"],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_no_more_memory_is_taken_than_is_counted(body: dict[str, Any], escaped: bool) -> None:
    sent = json.dumps(body, ensure_ascii=escaped).encode()
    kind: Any = MessagesRequest if "model" in body else ScoreRequest
    tracemalloc.start()
    try:
        read = kind.model_validate(parse(sent, 256, 1024))
        kept = [read, read.chat() if kind is MessagesRequest else None]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept
    assert taken < len(sent) + 1.2 * parsed_size(sent)


def test_a_body_of_too_many_values_is_too_large(server: Running) -> None:
    refused = server.post("/rerank", {"x": [{}] * (PARSED * 2**23 // OBJECT_BYTES)})
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
    assert "its values take" in refused.json()["detail"]


def test_what_a_body_becomes_is_held_while_the_upstream_is_waited_for() -> None:
    gate = threading.Event()
    many = chat([{"type": "text", "text": "a"}] * 7000)
    with (
        upstream("1", held=dict.fromkeys(range(9), gate)) as reasoner,
        gateway(reasoner, max_body_bytes=SIZE) as server,
    ):
        waiting = Background(lambda: server.post("/v1/chat/completions", many))
        until(lambda: bool(reasoner.bodies))
        refused = server.post("/v1/chat/completions", many)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        gate.set()
        assert waiting.result().status_code == 200
        assert server.post("/v1/chat/completions", many).status_code == 200
