"""The OpenAPI document: the purpose, an example and all response statuses of each operation."""

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from fastapi import FastAPI

from unprm.votes.registry import VOTES, Strategy
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
    vote = VOTES[strategy]
    return describe(f"vote_{strategy}") | {"summary": vote.summary, "description": vote.description}


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
