"""Which fields of a request, of settings or of a record are wrong, and how: pydantic's errors by JSON pointers (RFC
6901), without names of Python classes, and an unknown field with its nearest known one."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from unprm.errors import FieldError, InvalidRequest

MAX_ERRORS = 16

_LONGEST_NAME = 64
"""Maximum characters of a field's name in a pointer: the name of an unknown field is the caller's text."""

_ABSENT = {"missing", "extra_forbidden", "union_tag_not_found"}
"""Types of errors whose location may end in a field that the body does not have."""

_SYNONYMS = {
    **dict.fromkeys(("question", "prompt", "query", "input"), "problem"),
    **dict.fromkeys(("candidates", "responses", "completions", "answers", "outputs"), "solutions"),
}
"""Names of other APIs for the fields that nearly every request has."""

_JSON = {
    **dict.fromkeys(
        ("model_attributes_type", "model_type", "dataclass_type", "dict_type", "mapping_type"),
        "Input should be an object",
    ),
    "tuple_type": "Input should be a valid list",
}
"""What is wrong, in JSON's words, by types of errors whose messages name a Python class."""

_NOT_BLANK = (r"\S", r"[^\s\x1c-\x1f]")
"""Patterns of texts that are not blank."""


def field_errors(
    errors: Sequence[Mapping[str, Any]], sent: object, form: type[BaseModel] | None = None
) -> list[FieldError]:
    """Pydantic's errors about what was `sent`, in FastAPI's form: one per field, whatever forms it may have, without
    submitted texts. `form`: the model, whose fields are listed where one is unknown."""
    wrong: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for error in errors:
        where, *names = error["loc"]
        place = (pointer(error, sent), "") if where == "body" else ("", f"{where} {names[0]}: ")
        wrong.setdefault(place, []).append(error)
    return [
        # a list for each of very many unknown fields would take long, and only the first errors are shown
        FieldError(place, outside + message(found, form if number < MAX_ERRORS else None))
        for number, ((place, outside), found) in enumerate(wrong.items())
    ]


def validation_errors(error: ValidationError, sent: object, form: type[BaseModel] | None = None) -> list[FieldError]:
    """As `field_errors`, for an error of pydantic itself, whose locations do not begin with "body"."""
    found = error.errors(include_url=False)
    return field_errors([{**details, "loc": ("body", *details["loc"])} for details in found], sent, form)


def invalid(found: Sequence[FieldError]) -> InvalidRequest:
    error = InvalidRequest(summary(found), found[0].pointer)
    error.errors = found
    return error


def summary(errors: Sequence[FieldError]) -> str:
    """The first error in a sentence that names its field, since OpenAI's clients show nothing else."""
    first = errors[0]
    said = f"{first.pointer}: {first.detail}" if first.pointer else first.detail
    return said if len(errors) == 1 else f"{len(errors)} errors, the first: {said}"


def message(errors: Sequence[Mapping[str, Any]], form: type[BaseModel] | None = None) -> str:
    """What is wrong with a field, in each of the forms that it may have. `form`: the model that has the field."""
    return ", or: ".join(dict.fromkeys(_said(error, form) for error in errors))


def _said(error: Mapping[str, Any], form: type[BaseModel] | None) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_field(error["loc"], form)
    bounds = error.get("ctx", {})
    if bounds.get("pattern") in _NOT_BLANK:
        return "must not be blank"
    if bounds.get("actual_length") == 0:
        return "must not be empty"
    return _JSON.get(error["type"], str(error["msg"]).removeprefix("Value error, "))


def unknown(name: str, known: Collection[str], what: str) -> str:
    """Says that a name is not `what` it should be, what it may be, and which of these is a synonym or the nearest."""
    meant = _SYNONYMS.get(name)
    near = [meant] if meant in known else difflib.get_close_matches(name[:_LONGEST_NAME], known, 1)
    return f"is not {what}; expected one of {', '.join(known)}" + "".join(
        f" (did you mean {known_name}?)" for known_name in near
    )


def listed(values: Any, name: str) -> list[Any]:
    """The values as a list. Raises `ValueError` for a text, an object, or what is not iterable."""
    try:
        if not isinstance(values, str | bytes | Mapping | BaseModel):
            return list(values)
    except TypeError:  # not iterable
        pass
    raise ValueError(f"{name}: expected a list, got {type(values).__name__}")


def pointer(error: Mapping[str, Any], sent: object) -> str:
    """The JSON pointer into what was `sent` of a location in "body", without the names of a field's forms."""
    path, value = list[str](), sent
    _, *names = error["loc"]
    for place, name in enumerate(names, 1):
        inside = value.keys() if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()
        if name in inside:
            value = value[name]  # type: ignore[index]
        elif place < len(names) or error["type"] not in _ABSENT:
            continue
        path.append(str(name)[:_LONGEST_NAME].replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{name}" for name in path)


def _unknown_field(place: Sequence[str | int], form: type[BaseModel] | None) -> str:
    what, (*path, name) = "a field here", place
    forms = list(_models(form))
    for part in path:
        # an index, or the name of one of the forms that a field may have, leads to no other models
        inside = [form.model_fields[part].annotation for form in forms if part in form.model_fields]
        forms = [model for hint in inside for model in _models(hint)] or forms
    elsewhere = {key: where for form in forms for key, where in getattr(form, "ELSEWHERE", {}).items()}
    if name in elsewhere:
        return f"is not {what}: {elsewhere[name]}"
    fields = {key: field for form in forms for key, field in form.model_fields.items()}
    known = sorted(fields, key=lambda key: not fields[key].is_required() and key not in _SYNONYMS.values())
    return unknown(str(name), known, what) if known else f"is not {what}"


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    else:
        for part in get_args(hint):
            yield from _models(part)
