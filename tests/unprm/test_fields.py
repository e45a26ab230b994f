"""What pydantic finds, in this project's words."""

from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unprm.errors import FieldError
from unprm.fields import MAX_ERRORS, invalid, unknown, validation_errors
from unprm.wire import ModelName, SolutionIn, Text


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    alpha: float = Field(0.5, ge=0, lt=1)


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")
    ELSEWHERE: ClassVar = {"there": "it is said over there"}

    inner: list[Inner] = []
    names: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    text: Text = "a"
    word: str = Field("a", min_length=1, max_length=3)
    count: int = Field(1, gt=0)
    kind: Literal["one", "two"] = "one"
    either: ModelName | list[str] = "a"


def found(sent: Any) -> list[FieldError]:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(sent)
    return validation_errors(caught.value, sent, Form)


@pytest.mark.parametrize(
    ("sent", "place", "detail"),
    [
        ({"count": 0}, "/count", "expected more than 0, got 0"),
        ({"count": 1.5}, "/count", "expected an integer, got 1.5"),
        ({"count": "CANARY"}, "/count", "expected an integer, got a string"),
        ({"count": None}, "/count", "expected an integer, got null"),
        ({"count": -(2**70)}, "/count", "expected more than 0, got an integer of more than 64 bits"),
        ({"inner": [{"alpha": 2}]}, "/inner/0/alpha", "expected less than 1, got 2"),
        ({"inner": [{"alpha": True, "beta": 1}]}, "/inner/0/alpha", "expected less than 1, got true"),
        (
            {"inner": [{"alpah": 2}]},
            "/inner/0/alpah",
            "is not a field here; expected one of alpha (did you mean alpha?)",
        ),
        ({"inner": {}}, "/inner", "expected a list, got an object"),
        ({"inner": [7]}, "/inner/0", "expected an object, got 7"),
        ({"names": []}, "/names", "expected at least 1, got 0"),
        ({"names": ["a"] * 3}, "/names", "expected at most 2, got 3"),
        ({"names": "CANARY"}, "/names", "expected a list, got a string"),
        ({"text": " "}, "/text", "must not be blank"),
        ({"text": "\ud800"}, "/text", "expected a text that UTF-8 can encode, got a string"),
        ({"word": ""}, "/word", "must not be empty"),
        ({"word": "CANARY"}, "/word", "expected at most 3 characters, got 6"),
        ({"kind": "CANARY"}, "/kind", "expected one of one or two, got another string"),
        ({"kind": 7}, "/kind", "expected one of one or two, got 7"),
        (
            {"either": "a b"},
            "/either",
            "expected a string that matches ^[A-Za-z0-9._/-]{1,200}$, or a list, got a string",
        ),
        ({"there": "CANARY"}, "/there", "is not a field here: it is said over there"),
        ([], "", "expected an object, got a list"),
    ],
)
def test_what_was_expected_and_what_was_sent(sent: Any, place: str, detail: str) -> None:
    first = found(sent)[0]
    assert first == FieldError(place, detail)
    assert str(invalid([first])) == (f"{place}: {detail}" if place else detail)


def test_the_fields_of_one_of_several_forms_are_listed() -> None:
    with pytest.raises(ValidationError) as caught:
        SolutionIn.model_validate({"txt": "a", "steps": ["a"]})
    (error,) = validation_errors(caught.value, {"txt": "a", "steps": ["a"]}, SolutionIn)
    assert error.detail.startswith("is not a field here; expected one of id, text, steps, ")
    assert error.detail.endswith(" (did you mean text?)")


def test_only_the_first_of_many_unknown_fields_are_compared_with_the_known() -> None:
    errors = found(dict.fromkeys(map(str, range(100))))
    assert len(errors) == 100
    assert ["expected" in each.detail for each in errors] == [True] * MAX_ERRORS + [False] * (100 - MAX_ERRORS)


def test_a_long_name_is_compared_in_part() -> None:
    assert unknown("alpha" * 100_000, ["alpha"], "a field") == "is not a field; expected one of alpha"
