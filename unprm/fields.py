"""Which fields of a request, of settings or of a record are wrong, and how: what was expected, and what was sent.

Pydantic's errors become sentences here and nowhere else. Fields are named by JSON pointers (RFC 6901).
"""

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

_NOT_BLANK = (r"\S", r"[^\s\x1c-\x1f]")
"""Patterns of texts that are not blank."""
_OBJECT, _LIST, _INTEGER, _NUMBER, _BOOLEAN = "an object", "a list", "an integer", "a number", "true or false"
_EXPECTED = {
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "string_type": "a string",
    "string_unicode": "a text that UTF-8 can encode",
    "string_pattern_mismatch": "a string that matches {pattern}",
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "literal_error": "one of {expected}",
    "path_not_file": "an existing file",
    "path_not_directory": "an existing directory",
    "path_type": "a path",
}
"""What was expected, by the types of pydantic's errors."""


def field_errors(
    errors: Sequence[Mapping[str, Any]], sent: object, form: type[BaseModel] | None = None
) -> list[FieldError]:
    """Pydantic's errors about what was `sent`, which come in FastAPI's form; submitted texts are not repeated. What is
    wrong with one field, in each of the forms that it may have, is one error. What was not sent in the body, as a
    header, is named in the sentence. `form`: the model, whose fields are listed where there is an unknown one."""
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


def message(errors: Sequence[Mapping[str, Any]], form: type[BaseModel] | None = None, *, quoting: bool = False) -> str:
    """What is wrong with a field, in each of the forms that it may have. `form`: the model that has the field;
    `quoting`: a text is repeated, as is a number."""
    said, expected = dict[str, None](), dict[str, None]()
    for each in errors:
        if what := _expected(each):
            expected[what] = None
        else:
            said[_other(each, form)] = None
    if expected:
        said[f"expected {', or '.join(expected)}, got {_got(errors, quoting)}"] = None
    return ", or ".join(said)


def unknown(name: str, known: Collection[str], what: str) -> str:
    """Says that a name is not `what` it should be, what it may be, and which of these is the nearest."""
    near = difflib.get_close_matches(name[:_LONGEST_NAME], known, 1)
    return f"is not {what}; expected one of {', '.join(known)}" + "".join(f" (did you mean {each}?)" for each in near)


def kind(value: object) -> str:
    """What a value is, in JSON's words; a number or boolean itself, unless it is long."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 64:
            return "an integer of more than 64 bits"
        case int() | float():
            return _number(value)
        case str():
            return "a string"
        case bytes():
            return "bytes"
        case Mapping() | BaseModel():
            return _OBJECT
        case list() | tuple():
            return _LIST
    return f"a value of type {type(value).__name__}"


def listed(values: Any, name: str) -> list[Any]:
    """The values as a list. Raises `ValueError` if they are not one: a text isn't a list of letters, nor an object a
    list of fields."""
    try:
        if not isinstance(values, str | bytes | Mapping | BaseModel):
            return list(values)
    except TypeError:  # not iterable
        pass
    raise ValueError(f"{name}: expected a list, got {kind(values)}")


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


def _expected(error: Mapping[str, Any]) -> str | None:
    """What was expected, if the error is that something else was sent."""
    bounds = error.get("ctx", {})
    if error["type"] not in _EXPECTED:
        said = str(error["msg"])
        return said.removeprefix("expected ") if said.startswith("expected ") else None
    if bounds.get("pattern") in _NOT_BLANK or _is_empty(error):
        return None
    return _EXPECTED[error["type"]].format(**{name: _bound(value) for name, value in bounds.items()})


def _is_empty(error: Mapping[str, Any]) -> bool:
    """Whether the error is an empty text."""
    bounds = error.get("ctx", {})
    return bounds.get("min_length") == 1 and bounds.get("field_type") in (None, "Value")


def _other(error: Mapping[str, Any], form: type[BaseModel] | None) -> str:
    if _is_empty(error):
        return "must not be empty"
    match error["type"]:
        case "missing":
            return "is required"
        case "string_pattern_mismatch":
            return "must not be blank"
        case "extra_forbidden":
            return _unknown_field(error["loc"], form)
    return str(error["msg"]).removeprefix("Value error, ")


def _unknown_field(place: Sequence[str | int], form: type[BaseModel] | None) -> str:
    what, (*path, name) = "a field here", place
    forms = list(_models(form))
    for part in path:
        # an index, or the name of one of the forms that a field may have, leads to no other models
        inside = [each.model_fields[part].annotation for each in forms if part in each.model_fields]
        forms = [model for hint in inside for model in _models(hint)] or forms
    elsewhere = {key: where for each in forms for key, where in getattr(each, "ELSEWHERE", {}).items()}
    if name in elsewhere:
        return f"is not {what}: {elsewhere[name]}"
    known = dict.fromkeys(key for each in forms for key in each.model_fields)
    return unknown(str(name), known, what) if known else f"is not {what}"


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    else:
        for each in get_args(hint):
            yield from _models(each)


def _bound(value: object) -> str:
    return _number(value) if isinstance(value, int | float) else str(value).replace("'", "")


def _got(errors: Sequence[Mapping[str, Any]], quoting: bool) -> str:
    """What was sent: of too many or too few, how many."""
    value, bounds = errors[-1]["input"], errors[-1].get("ctx", {})
    if "min_length" in bounds or "max_length" in bounds:
        return str(bounds.get("actual_length", len(value)))
    if not isinstance(value, str):
        return kind(value)
    return repr(value[:200]) if quoting else "another string" if "expected" in bounds else "a string"


def _number(value: float) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return f"{value:.0f}" if whole else str(value)
