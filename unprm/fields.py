"""Which fields of a request are wrong, as JSON pointers (RFC 6901)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from unprm.errors import FieldError

MAX_ERRORS = 16
"""Maximum errors listed in a response."""

_LONGEST_NAME = 64
"""Maximum characters of a field's name in a pointer: the name of an unknown field is the caller's text."""

_ABSENT = {"missing", "extra_forbidden", "union_tag_not_found"}
"""Types of errors whose location may end in a field that the body does not have."""

_MESSAGES = {
    "string_pattern_mismatch": "must not be blank",
    "model_attributes_type": "must be a JSON object",
    "extra_forbidden": "is not a field of this request",
    "missing": "is required",
}


def field_errors(errors: Sequence[Mapping[str, Any]], sent: object) -> list[FieldError]:
    """Pydantic's errors about what was `sent`, which come in FastAPI's form; submitted values are not repeated. What is
    wrong with one field, in each of the forms that it may have, is one error."""
    wrong: dict[str, list[str]] = {}
    for error in errors:
        wrong.setdefault(pointer(error, sent), []).append(_message(error))
    return [FieldError(pointer=field, detail=", or ".join(dict.fromkeys(said))) for field, said in wrong.items()]


def validation_errors(error: ValidationError, sent: object) -> list[FieldError]:
    """As `field_errors`, for an error of pydantic itself, whose locations do not begin with "body"."""
    found = error.errors(include_url=False)
    return field_errors([{**details, "loc": ("body", *details["loc"])} for details in found], sent)


def summary(errors: Sequence[FieldError]) -> str:
    """The first error in a sentence that names its field, since OpenAI's clients show nothing else."""
    first = errors[0]
    said = f"{first.pointer}: {first.detail}" if first.pointer else first.detail
    return said if len(errors) == 1 else f"{len(errors)} errors, the first: {said}"


def pointer(error: Mapping[str, Any], sent: object) -> str:
    """The JSON pointer into what was `sent`; the error's location begins with "body".

    Of a field with several forms, pydantic's location also names the form, which nobody sent: those names are left out.
    """
    path, value = list[str | int](), sent
    _, *names = error["loc"]
    for place, name in enumerate(names, 1):
        if _has(value, name):
            value = value[name]  # type: ignore[index]
        elif place < len(names) or error["type"] not in _ABSENT:
            continue
        path.append(name)
    return "".join(f"/{_escaped(str(name)[:_LONGEST_NAME])}" for name in path)


def _has(value: object, name: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(name, int) and name < len(value)
    return isinstance(value, Mapping) and name in value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _message(error: Mapping[str, Any]) -> str:
    return _MESSAGES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
