"""Types of the contract's fields, and the descriptions that several of them share."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from unprm.types import Extraction, Split

MAX_SOLUTIONS = 256
"""Maximum number of candidates in one request; a server may be configured for fewer."""

MAX_PAIRS = 4096
"""Maximum number of answers to be graded in one request."""

MAX_FIELDS = 64
"""Maximum fields in an object: far more than any needs, few enough that each unknown one can be reported."""

SPLIT = (
    "Where texts are split into steps: `paragraph` at blank lines, `step` before lines that begin with `Step k`, "
    "`line` at line breaks; `auto`: the first of these that finds more than one step."
)
EXTRACTION = (
    "Where answers are found: `boxed` in boxes only; `stated` also in <answer> tags, after “answer is”, “Answer:” (in "
    "many languages) and ####, and in a bare last line; `auto` also takes the last number or words of a text that "
    "states none, if another solution or the right answer equals them; `last_number` falls back to the last number; "
    "`choice` takes the letters of the options stated last."
)
Text = Annotated[str, StringConstraints(pattern=r"[^\s\x1c-\x1f]")]
"""A string that is not blank as `str.strip` defines it: the ASCII separators U+001C to U+001F count as blank."""
FreeText = Annotated[str, StringConstraints(pattern=r"^")]
"""A string that UTF-8 can encode; it may be blank."""
Gold = Annotated[list[Text], Field(min_length=1, max_length=16, fail_fast=True)]
"""Right answers."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]{1,200}$")]
OnInvalid = Literal["unscored", "refuse"]
SplitField = Annotated[Split, Field(description=SPLIT)]
ExtractionField = Annotated[Extraction, Field(description=EXTRACTION)]


def check_one(model: BaseModel, *names: str) -> None:
    """Raises `ValueError` unless exactly one of these fields is given."""
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of {' and '.join(names)}, got {' and '.join(given) or 'neither'}")


class Request(BaseModel):
    """Base of what is sent in a request: a field that is null counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class WireModel(BaseModel):
    """Base of requests and responses: a field that the contract does not know is refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, data: Any) -> Any:
        if isinstance(data, dict) and len(data) > MAX_FIELDS:
            raise ValueError(f"an object has {len(data)} fields, the limit is {MAX_FIELDS}")
        return data
