"""The worked examples of the documentation, with the server's responses from the embedded model."""

from typing import Any

from pydantic import BaseModel

from unprm.election.ballot import Ballot, Scores, score_response
from unprm.election.parsing import parse
from unprm.mini.demonstration import about
from unprm.types import DEFAULT_STRATEGY, Usage
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.wire import (
    LimitsOut,
    MemoryOut,
    ModelResponse,
    PreviewResponse,
    ScoreRequest,
    SelfTestOut,
    StatusResponse,
    VoteRequest,
)

Json = dict[str, Any]

_MODEL = "unprm-mini"
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
    """Responses to the example requests, by operation name."""
    models: dict[str, BaseModel] = {
        "score_steps": _scores(),
        "vote": _vote(DEFAULT_STRATEGY),
        **{f"vote_{strategy}": _vote(strategy) for strategy in VOTES},
        "vote_compare": _ballot(_VOTE).compare(DEFAULTS, _MODEL, Usage()),
        "preview": _preview(),
        "healthz": StatusResponse(),
        "readyz": StatusResponse(),
        "model": _model(),
    }
    return {name: model.model_dump(mode="json") for name, model in models.items()}


def _scores() -> BaseModel:
    request = ScoreRequest.model_validate(_SCORE)
    scores = Scores([(0.9801, 0.9682), (0.0002, 0.0003)], {}, demonstration=about(_MODEL, _PROBLEM))
    return score_response(request, parse(request).solutions, scores, _MODEL, Usage(142, 101, 41))


def _ballot(example: Json) -> Ballot:
    request = VoteRequest.model_validate({name: example[name] for name in example.keys() & _VOTE.keys()})
    solutions = parse(request).solutions
    steps = [solution.step_scores for solution in solutions]
    return Ballot(request, solutions, (0, 1, 0, None), Scores(steps if any(steps) else None, {}))


def _vote(strategy: Strategy) -> BaseModel:
    return _ballot(_request(strategy)).vote(strategy, DEFAULTS, _MODEL, Usage())


def _preview() -> BaseModel:
    return PreviewResponse(
        model=_MODEL,
        family="unprm",
        text="1 + 1?\n2.ş\\boxed{2}ş",
        token_ids=[17, 276, 221, 17, 317, 18, 14, 265, 60, 328, 91, 18, 93, 265],
        tokens=["1", "Ġ+", "Ġ", "1", "?Ċ", "2", ".", "ÅŁ", "\\", "boxed", "{", "2", "}", "ÅŁ"],
        positions=[7, 13],
        steps=["2.", "\\boxed{2}"],
    )


def _model() -> BaseModel:
    return ModelResponse(
        name=_MODEL,
        models=[_MODEL],
        family="unprm",
        base=f"{_MODEL} base",
        adapter=_MODEL,
        revision=None,
        engine="torch",
        device="cpu",
        dtype="float32",
        input_format="{problem}\\n{step 1}ş{step 2}ş… (scored at each ş: P(+) against -)",
        digest="45cc1af0efcb8c48",
        self_test=SelfTestOut(difference=4.6e-5, tolerance=1.2e-3, cached=True),
        memory=MemoryOut(weights=21_670_144, slots=16_777_216, activations=10_485_760),
        demo=True,
        default_strategy="majority",
        limits=LimitsOut(
            max_solutions=256,
            max_steps_per_solution=1024,
            max_tokens_per_solution=1024,
            max_body_bytes=8 * 2**20,
            max_queued_tokens=1_048_576,
            max_request_seconds=60.0,
        ),
    )
