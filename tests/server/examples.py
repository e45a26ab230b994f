"""The examples of the OpenAPI document: `python -m tests.server.examples` makes them anew."""

import json
import time
from typing import Any

from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from tests.support import ROOT
from unprm.models.load import load_engine
from unprm.votes.registry import DEFAULTS, VOTES
from unprm.votes.select import SelectTerms

Json = dict[str, Any]

FILE = ROOT / "server" / "routes" / "examples.json"

_PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"

_SCORE: Json = {
    "problem": _PROBLEM,
    "solutions": [
        "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}.",
        ["Step 1: 4 * 15 = 50.", "Step 2: 23 + 50 = 73. The answer is \\boxed{73}."],
    ],
}
_VOTE: Json = {
    "problem": _PROBLEM,
    "solutions": [
        {"id": "a", "text": "4 * 15 = 60.\nThe answer is \\boxed{83}.", "step_scores": [0.97, 0.95]},
        {"id": "b", "text": "4 * 15 = 50.\nThe answer is \\boxed{73}.", "step_scores": [0.04, 0.03]},
        {"id": "c", "steps": ["The answer is \\boxed{83.0}."], "step_scores": [0.9]},
        {"id": "d", "steps": ["I can't tell."], "step_scores": [0.2]},
    ],
}
_CONFIDENT: Json = {
    "solutions": [
        {"text": "4 * 15 = 60.\nThe answer is \\boxed{83}.", "confidence": 0.81},
        {"text": "4 * 15 = 50.\nThe answer is \\boxed{73}.", "confidence": 0.35},
        {"text": "The answer is \\boxed{83.0}.", "token_logprobs": [-0.01, -0.2, -0.05]},
        {"text": "I can't tell."},
    ]
}
_GRADE: Json = {
    "pairs": [
        {"id": "a", "text": "4 * 15 = 60.\nThe answer is \\boxed{83}.", "gold": "83"},
        {"id": "b", "answer": "0.5", "gold": ["\\frac{1}{2}", "50\\%"]},
        {"id": "c", "answer": "London", "gold": "Paris"},
        {"id": "d", "text": "I can't tell.", "gold": "83"},
    ]
}
_PREVIEW: Json = {"problem": "1 + 1?", "solution": ["2.", "\\boxed{2}"]}
_QUESTION: Json = {"role": "user", "content": _PROBLEM}
_TEXTS = [f"Step 1: 4 * 15 = {x}.\nStep 2: 23 + {x} = {23 + x}. The answer is \\boxed{{{23 + x}}}." for x in (60, 50)]
_CHAT = [_QUESTION, {"role": "assistant", "content": _TEXTS[0]}]
_ELECTED: Json = {"model": "Qwen/Qwen2.5-Math-7B-Instruct", "unprm": {"strategy": "wrf", "budget": 16}}
_BOXED = "Put the answer in \\boxed{}."
REQUESTS: dict[str, Json] = {
    "score_steps": _SCORE,
    "vote": _VOTE,
    **{
        f"vote_{name}": (_CONFIDENT if vote.signal == "confidence" else _VOTE) | vote.terms().model_dump()
        for name, vote in VOTES.items()
    },
    "vote_select": _VOTE | SelectTerms(select_if="unsettled", settled_margin=0.2).model_dump(),
    "vote_compare": _VOTE | DEFAULTS.model_dump(exclude_none=True),
    "preview": _PREVIEW,
    "grade": _GRADE,
    "rerank": {"query": _PROBLEM, "documents": _TEXTS, "top_n": 1},
    "score": {"text_1": _PROBLEM, "text_2": _TEXTS},
    "classify": {"messages": _CHAT},
    "pooling": {"messages": _CHAT},
    "tokenize": {"prompt": _PROBLEM},
    "feedback": {"request_id": "5c2f8a3e9b1d4f60", "correct": False},
    "chat_completions": _ELECTED | {"messages": [{"role": "system", "content": _BOXED}, _QUESTION]},
    "responses": _ELECTED | {"instructions": _BOXED, "input": _PROBLEM},
    "messages": {"model": "m", "max_tokens": 1024, "messages": [_QUESTION]},
    "count_tokens": {"model": "m", "messages": [_QUESTION]},
    "completions": {"model": "m", "prompt": "2 + 3 ="},
}
"""Example requests by operation name."""
ELSEWHERE = {"feedback", "chat_completions", "responses", "messages", "count_tokens", "completions"}
"""Operations that need a journal or an upstream."""


_OF_A_RESPONSE = {"id": "5c2f8a3e9b1d4f60", "created": 1764288000}


def examples() -> str:
    """The content of the file: the requests, and what a server with the embedded model answers to them."""
    found = {"requests": REQUESTS, "responses": _responses()}
    parts = (f" {json.dumps(name)}: {{\n{_lines(operations)}\n }}" for name, operations in found.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(operations: Json) -> str:
    return ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in operations.items()
    )


def _responses() -> Json:
    """Without times and ids of responses, and with numbers to four places, as processors differ in the last digits."""
    responses = {}
    with TestClient(create_app(Settings(), load_engine, clock=lambda: 0.0)) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.1)
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            for method, operation in methods.items():
                if "application/json" in operation["responses"]["200"]["content"]:
                    name = operation["operationId"]
                    found = _rounded(client.request(method, path, json=REQUESTS.get(name)).json())
                    responses[name] = found | {key: fixed for key, fixed in _OF_A_RESPONSE.items() if key in found}
    return responses


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_rounded, value))
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    FILE.write_text(examples(), "utf-8")
