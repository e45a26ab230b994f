"""The OpenAPI document: the purpose, an example and all response statuses of each operation.

The examples, in examples.json, are made by `python -m tests.server.examples`.
"""

import json
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from unprm.votes.registry import VOTES, Strategy
from unprm.wire import ProblemDetails

from ..problem_details import MEDIA_TYPE, TABLE, details_of
from .route import TIMEOUT_HEADER

Json = dict[str, Any]

ABOUT = """\
Scores the steps of candidate solutions with a process reward model, and votes for the best answer.

Errors are RFC 9457 problem details with a stable `code`. Every response carries `X-Request-ID`, the caller's
own if it sends one of at most 128 letters, digits, `.`, `_` and `-`. If the server has a key, everything but
the probes and this documentation requires it as `Authorization: Bearer KEY`.
"""

_REFERENCE = "#/components/schemas/{model}"
PROTECTED = ("unauthorized", "foreign_site", "internal")
_PROBES = {"healthz": ("internal",), "readyz": ("internal", "model_unavailable", "shutting_down")}
_OF_UPSTREAMS = ("upstream_refused", "upstream_failed")
_OF_PATHS = ("not_found", "method_not_allowed")
_OF_CANDIDATES = (
    *("too_many_solutions", "blank", "too_many_steps", "solution_too_long", "no_verdict"),
    *("unknown_model", "no_answer", "model_unavailable"),
)
_NEVER = dict.fromkeys(("grade", "feedback"), _OF_CANDIDATES) | dict.fromkeys(
    ("score_steps", "preview"), ("no_answer",)
)

_TIMEOUT: Json = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "description": "Time limit of the request in seconds, capped by the server's own.",
    "schema": {"type": "number", "exclusiveMinimum": 0},
}

_GROUPS = {
    "Scores": ("/score_steps", "/preview"),
    "Votes": ("/vote",),
    "Grades": ("/grade", "/feedback"),
    "Other servers' endpoints": ("/classify", "/pooling", "/rerank", "/score", "/tokenize"),
    "Answers of an upstream": ("/v1/",),
    "Administration": ("/admin/",),
}
"""Groups of operations, by what their paths begin with."""
_REST = "The server"

EXAMPLES: dict[str, Json] = json.loads((Path(__file__).parent / "examples.json").read_text("utf-8"))
"""Example `requests`, and the `responses` of a server with the embedded model, by operation name."""


FIELDS: dict[str, str] = json.loads((Path(__file__).parent / "fields.json").read_text("utf-8"))
"""What a field means whose class doesn't say it: by its name, or by CLASS.NAME where the name means something else."""


class DocumentedApp(FastAPI):
    """An app whose document has groups, worked examples and the schema of its errors. The title of an operation without
    one of its own is how its description begins."""

    def openapi(self) -> Json:
        if self.openapi_schema is None:
            for route in self.routes:
                if isinstance(route, APIRoute) and route.summary is None:
                    route.summary = re.split(r"[.:;](?:\s|$)", route.description, maxsplit=1)[0]
            document = super().openapi()
            schema = ProblemDetails.model_json_schema(ref_template=_REFERENCE, mode="serialization")
            document["components"]["schemas"] |= schema.pop("$defs") | {"ProblemDetails": schema}
            for name, described in document["components"]["schemas"].items():
                for field, its in described.get("properties", {}).items():
                    its.setdefault("description", FIELDS.get(f"{name}.{field}") or FIELDS.get(field))
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["tags"] = [next((k for k, begins in _GROUPS.items() if path.startswith(begins)), _REST)]
                    _add_examples(operation)
            document["tags"] = [{"name": name} for name in (*_GROUPS, _REST)]
        return super().openapi()

    @cached_property
    def document(self) -> bytes:
        return json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()


def _add_examples(operation: Json) -> None:
    """To the finished document, because FastAPI drops every null from the examples of a route."""
    name, contents = operation["operationId"], {"responses": operation["responses"].get("200", {})}
    if "requestBody" in operation:
        contents["requests"] = operation["requestBody"]
    for kind, described in contents.items():
        if name in EXAMPLES[kind]:
            described["content"]["application/json"]["example"] = EXAMPLES[kind][name]


def codes_without(*codes: str) -> list[str]:
    """The codes of all errors but these, and those of paths."""
    return [code for code in TABLE if code not in (*_OF_PATHS, *codes)]


OF_UPSTREAM = codes_without("malformed_json", "unsupported_media_type", *_OF_CANDIDATES)
"""The codes of errors where an upstream is asked for no completions."""


def describe(name: str, codes: Iterable[str] | None = None) -> Json:
    """The options of an operation's FastAPI route; its description is the route's docstring. `codes`: of its errors, by
    default those of work, or of a look at the server."""
    extra: Json = {} if name in _PROBES else {"security": [{"key": []}, {}]}
    if codes is None and name in EXAMPLES["requests"]:
        codes, extra["parameters"] = codes_without(*_OF_UPSTREAMS, *_NEVER.get(name, ())), [_TIMEOUT]
    codes = codes or _PROBES.get(name, PROTECTED)
    return {"operation_id": name, "responses": problems(codes), "openapi_extra": extra}


def describe_vote(strategy: Strategy) -> Json:
    """Options of the route of a vote."""
    vote = VOTES[strategy]
    return describe(f"vote_{strategy}") | {"summary": vote.summary, "description": vote.description}


def problems(codes: Iterable[str]) -> dict[int | str, Json]:
    """The error responses with the given codes, by status."""
    responses: dict[int | str, Json] = {}
    for code in codes:
        row = TABLE[code]
        content: Json = {"schema": {"$ref": _REFERENCE.format(model="ProblemDetails")}, "examples": {}}
        response = responses.setdefault(row.status, {"description": row.title, "content": {MEDIA_TYPE: content}})
        example = details_of(code, row.title, "5c2f8a3e9b1d4f60").model_dump(mode="json")
        response["content"][MEDIA_TYPE]["examples"][code] = {"summary": row.title, "value": example}
    return responses


METRICS: Json = describe("metrics") | {
    "responses": {
        200: {"content": {"text/plain": {"example": 'unprm_votes_total{strategy="wrf"} 3.0\n'}}},
        **problems(PROTECTED),
    }
}
