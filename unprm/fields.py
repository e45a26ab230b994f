"""Which fields of a request are wrong, as JSON pointers (RFC 6901)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from unprm.wire import FieldError

MAX_ERRORS = 16
"""Maximum errors reported per request."""

_LONGEST_NAME = 64
"""Maximum characters of a field's name in a pointer: the name of an unknown field is the caller's text."""

_UNIONS = {"solutions": 2, "solution": 1}
"""Index in the path at which pydantic inserts the name of the form that a solution was sent in."""

_MESSAGES = {
    "string_pattern_mismatch": "must not be blank",
    "model_attributes_type": "must be a JSON object",
    "extra_forbidden": "is not a field of this request",
    "missing": "is required",
}


def field_errors(errors: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """The first `MAX_ERRORS` of pydantic's errors, which come in FastAPI's form; submitted values are not repeated."""
    return [FieldError(pointer=pointer(e["loc"]), detail=_message(e)) for e in errors[:MAX_ERRORS]]


def validation_errors(error: ValidationError) -> list[FieldError]:
    """As `field_errors`, for an error of pydantic itself, whose locations do not begin with "body"."""
    return field_errors([{**details, "loc": ("body", *details["loc"])} for details in error.errors(include_url=False)])


def summary(errors: Sequence[FieldError], count: int) -> str:
    """The first of `count` errors in a sentence that names its field, since OpenAI's clients show nothing else."""
    first = errors[0]
    said = f"{first.pointer}: {first.detail}" if first.pointer else first.detail
    return said if count == 1 else f"{count} errors, the first: {said}"


def pointer(location: Sequence[str | int]) -> str:
    """The JSON pointer into the body; `location` begins with "body"."""
    path = list(location[1:])
    form = _UNIONS.get(str(path[0])) if path else None
    if form is not None and len(path) > form:
        del path[form]
    return "".join(f"/{_escaped(str(name)[:_LONGEST_NAME])}" for name in path)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _message(error: Mapping[str, Any]) -> str:
    return _MESSAGES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
