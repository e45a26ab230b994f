"""The OpenAPI document: the purpose, an example and all response statuses of each operation."""

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

from fastapi import FastAPI

from unprm.types import Strategy
from unprm.wire import ProblemDetails

from ..http.errors import MEDIA_TYPE, TABLE, details_of
from . import examples
from .route import TIMEOUT_HEADER

Json = dict[str, Any]

ABOUT = """\
Scores the steps of candidate solutions with a process reward model, and votes for the best answer.

Errors are RFC 9457 problem details with a stable `code`. Every response carries `X-Request-ID`, the caller's
own if it sends one of at most 128 letters, digits, `.`, `_` and `-`. If the server has a key, everything but
the probes and this documentation requires it as `Authorization: Bearer KEY`.
"""

_REFERENCE = "#/components/schemas/{model}"
_PROTECTED = ("unauthorized", "foreign_site", "internal")
_PROBES = {"healthz": ("internal",), "readyz": ("internal", "model_unavailable", "shutting_down")}
_ELSEWHERE = ("not_found", "method_not_allowed", "upstream_refused", "upstream_failed")
_WORK = tuple(code for code in TABLE if code not in _ELSEWHERE)
_NEVER = {"score_steps": ("no_answer",), "preview": ("no_answer",)}


class StrategyText(NamedTuple):
    """A strategy in words: its short name, what its `score` is, and what the OpenAPI document says of it."""

    title: str
    score: str
    summary: str
    description: str


STRATEGY_TEXTS: dict[Strategy, StrategyText] = {
    "majority": StrategyText(
        "Majority",
        "number of candidates",
        "The answer with the most solutions",
        "Needs no rewards and no problem: the model is not run.",
    ),
    "prm": StrategyText(
        "PRM best-of-N",
        "highest reward",
        "The answer of the solution with the highest reward",
        "Best-of-N by the process reward model.",
    ),
    "hmr": StrategyText(
        "Hybrid (HMR)",
        "highest reward",
        "Hybrid majority reward: the majority if there is one, else the highest reward",
        "The one answer that at least half of all solutions state wins without scoring; if there is none, or there are "
        "two, the model is run.",
    ),
    "wrf": StrategyText(
        "Weighted (WRF)",
        "combined",
        "Weighted reward-frequency",
        "Per answer, mean reward and frequency are made comparable as `normalization` says; the highest "
        "`alpha * reward + (1 - alpha) * frequency` wins.",
    ),
    "weighted": StrategyText(
        "Reward sum",
        "sum of rewards",
        "The answer with the highest sum of rewards",
        "Weighted majority voting.",
    ),
    "logodds": StrategyText(
        "Log-odds",
        "log-likelihood",
        "The answer with the highest sum of log-odds",
        "Weighted majority (Kuang et al., 2025): a candidate weighs `scale` times the log-odds of its reward, plus the "
        "log-odds that the model that wrote it, right with probability `accuracy`, means this answer and not one of "
        "the others. Rewards should be probabilities: calibrated.",
    ),
    "best_of_majority": StrategyText(
        "Best of majority",
        "highest reward",
        "The highest reward among the frequent answers",
        "Answers of less than `min_share` of all candidates are dropped (Di et al., 2025). If a single one is left, it "
        "wins without scoring; if none is, the most frequent stay.",
    ),
    "soft": StrategyText(
        "Soft best-of-N",
        "probability",
        "The answer that soft best-of-N most probably takes",
        "A softmax over the candidates' rewards (Verdun et al., 2025): near `temperature` 0 it is `prm`, far above 1 "
        "it is `majority`.",
    ),
    "cisc": StrategyText(
        "Confidence (CISC)",
        "sum of weights",
        "The answer with the highest sum of softmax weights of confidences",
        "Confidence-informed self-consistency (Taubenfeld et al., 2025), without a PRM: the confidence is the one "
        "sent, or the probability per token by `token_logprobs`.",
    ),
    "deepconf": StrategyText(
        "DeepConf",
        "sum of confidences",
        "The answer with the highest sum of confidences among the most confident candidates",
        "Deep think with confidence (Fu et al., 2025), without a PRM: the confidence is the one sent, or taken from "
        "`top_logprobs` as `measure` and `window` say; the `top_share` most confident vote.",
    ),
    "self_certainty": StrategyText(
        "Self-certainty",
        "Borda votes",
        "The answer with the most Borda votes by self-certainty",
        "Without a PRM (Kang et al., 2025): candidates are ranked by the confidence sent, or by how far `top_logprobs` "
        "are from uniform; the k-th of n has (n - k + 1) ** `power` votes.",
    ),
}

_TIMEOUT: Json = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "description": "Time limit of the request in seconds, capped by the server's own.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}


class DocumentedApp(FastAPI):
    """An app whose document has worked examples and the schema of its errors."""

    def openapi(self) -> Json:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            schema = ProblemDetails.model_json_schema(ref_template=_REFERENCE, mode="serialization")
            document["components"]["schemas"] |= schema.pop("$defs") | {"ProblemDetails": schema}
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            _add_examples(document)
        return super().openapi()

    @cached_property
    def document(self) -> bytes:
        """The OpenAPI document in JSON."""
        return json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()


def _add_examples(document: Json) -> None:
    """Adds the examples to the finished document, because FastAPI drops every null from those of a route."""
    responses = examples.responses()
    for operations in document["paths"].values():
        for operation in operations.values():
            name = operation["operationId"]
            if name in examples.REQUESTS:
                operation["requestBody"]["content"]["application/json"]["example"] = examples.REQUESTS[name]
            if name in responses:
                operation["responses"]["200"]["content"]["application/json"]["example"] = responses[name]


def describe(name: str) -> Json:
    """The options of an operation's FastAPI route; its description is the route's docstring."""
    work = name in examples.REQUESTS
    codes: Iterable[str] = _PROBES.get(name, _PROTECTED)
    if work:
        codes = [code for code in _WORK if code not in _NEVER.get(name, ())]
    elif name == "model":
        codes = (*codes, "invalid_request", "unknown_model", "model_unavailable")
    extra: Json = {} if name in _PROBES else {"security": [{"key": []}, {}]}
    if work:
        extra["parameters"] = [_TIMEOUT]
    return {"operation_id": name, "responses": problems(codes), "openapi_extra": extra}


def describe_vote(strategy: Strategy) -> Json:
    """Options of the route of a vote."""
    text = STRATEGY_TEXTS[strategy]
    return describe(f"vote_{strategy}") | {"summary": text.summary, "description": text.description}


def problems(codes: Iterable[str]) -> dict[int | str, Json]:
    """The error responses with the given codes, by status."""
    found: dict[int | str, Json] = {}
    for code in codes:
        row = TABLE[code]
        content: Json = {"schema": {"$ref": _REFERENCE.format(model="ProblemDetails")}, "examples": {}}
        response = found.setdefault(row.status, {"description": row.title, "content": {MEDIA_TYPE: content}})
        example = details_of(code, row.title, "5c2f8a3e9b1d4f60").model_dump(mode="json")
        response["content"][MEDIA_TYPE]["examples"][code] = {"summary": row.title, "value": example}
    return found


METRICS: Json = describe("metrics") | {
    "responses": {
        200: {"content": {"text/plain": {"example": 'unprm_votes_total{strategy="wrf"} 3.0\n'}}},
        **problems(_PROTECTED),
    }
}
