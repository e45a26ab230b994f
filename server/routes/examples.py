"""The worked examples of the documentation; the responses are those of the embedded model, in examples.json."""

import json
from pathlib import Path
from typing import Any

from unprm.votes.registry import DEFAULTS, VOTES, Strategy

Json = dict[str, Any]

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
_PREVIEW: Json = {"problem": "1 + 1?", "solution": ["2.", "\\boxed{2}"]}


def _request(strategy: Strategy) -> Json:
    example = _CONFIDENT if VOTES[strategy].signal == "confidence" else _VOTE
    return example | VOTES[strategy].terms().model_dump()


REQUESTS: dict[str, Json] = {
    "score_steps": _SCORE,
    "vote": _VOTE,
    **{f"vote_{strategy}": _request(strategy) for strategy in VOTES},
    "vote_compare": _VOTE | DEFAULTS.model_dump(),
    "preview": _PREVIEW,
}
"""Example requests by operation name."""


def responses() -> dict[str, Json]:
    """What a server with the embedded model answers to the example requests, by operation name."""
    found: dict[str, Json] = json.loads((Path(__file__).parent / "examples.json").read_text("utf-8"))
    return found
