"""Pydantic's errors, by the fields that were sent."""

from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unprm.errors import FieldError
from unprm.validation_messages import MAX_ERRORS, invalid, unknown, validation_errors
from unprm.wire import ModelName, SolutionIn, Text, VoteRequest


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
        ({"count": 0}, "/count", "Input should be greater than 0"),
        ({"count": 1.5}, "/count", "Input should be a valid integer, got a number with a fractional part"),
        ({"count": "CANARY"}, "/count", "Input should be a valid integer, unable to parse string as an integer"),
        ({"count": None}, "/count", "Input should be a valid integer"),
        ({"count": -(2**70)}, "/count", "Input should be greater than 0"),
        ({"inner": [{"alpha": 2}]}, "/inner/0/alpha", "Input should be less than 1"),
        ({"inner": [{"alpha": True, "beta": 1}]}, "/inner/0/alpha", "Input should be less than 1"),
        (
            {"inner": [{"alpah": 2}]},
            "/inner/0/alpah",
            "is not a field here; expected one of alpha (did you mean alpha?)",
        ),
        ({"inner": {}}, "/inner", "Input should be a valid list"),
        ({"inner": [7]}, "/inner/0", "Input should be an object"),
        ({"names": []}, "/names", "must not be empty"),
        ({"names": ["a"] * 3}, "/names", "List should have at most 2 items after validation, not 3"),
        ({"names": "CANARY"}, "/names", "Input should be a valid list"),
        ({"text": " "}, "/text", "must not be blank"),
        ({"text": "\ud800"}, "/text", "Input should be a valid string, unable to parse raw data as a unicode string"),
        ({"word": ""}, "/word", "String should have at least 1 character"),
        ({"word": "CANARY"}, "/word", "String should have at most 3 characters"),
        ({"kind": "CANARY"}, "/kind", "Input should be 'one' or 'two'"),
        ({"kind": 7}, "/kind", "Input should be 'one' or 'two'"),
        (
            {"either": "a b"},
            "/either",
            "String should match pattern '^[A-Za-z0-9._/-]{1,200}$', or: Input should be a valid list",
        ),
        ({"there": "CANARY"}, "/there", "is not a field here: it is said over there"),
        ([], "", "Input should be an object"),
    ],
)
def test_a_wrong_field_is_named_by_its_pointer(sent: Any, place: str, detail: str) -> None:
    first = found(sent)[0]
    assert first == FieldError(place, detail)
    assert str(invalid([first])) == (f"{place}: {detail}" if place else detail)


def test_the_fields_of_one_of_several_forms_are_listed() -> None:
    with pytest.raises(ValidationError) as caught:
        SolutionIn.model_validate({"txt": "a", "steps": ["a"]})
    (error,) = validation_errors(caught.value, {"txt": "a", "steps": ["a"]}, SolutionIn)
    assert error.detail.startswith("is not a field here; expected one of id, text, steps, ")
    assert error.detail.endswith(" (did you mean text?)")


@pytest.mark.parametrize(
    ("name", "meant"), [("candidates", "solutions"), ("completions", "solutions"), ("question", "problem")]
)
def test_a_name_of_other_apis_leads_to_the_field(name: str, meant: str) -> None:
    with pytest.raises(ValidationError) as caught:
        VoteRequest.model_validate({name: ["a"]})
    detail = validation_errors(caught.value, {name: ["a"]}, VoteRequest)[0].detail
    assert detail.startswith("is not a field here; expected one of problem, solutions, ")
    assert detail.endswith(f" (did you mean {meant}?)")


def test_only_the_first_of_many_unknown_fields_are_compared_with_the_known() -> None:
    errors = found(dict.fromkeys(map(str, range(100))))
    assert len(errors) == 100
    assert ["expected" in each.detail for each in errors] == [True] * MAX_ERRORS + [False] * (100 - MAX_ERRORS)


def test_a_long_name_is_compared_in_part() -> None:
    assert unknown("alpha" * 100_000, ["alpha"], "a field") == "is not a field; expected one of alpha"
