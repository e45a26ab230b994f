"""Step-labelled solutions on disk: JSON lines, one solution each."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from training import sources
from unprm.errors import RecordInvalid


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """A solution, and for each step whether the solution is right up to and including it."""

    problem: str
    steps: tuple[str, ...]
    labels: tuple[bool, ...]


class _Record(BaseModel):
    """`{"problem", "steps", "labels", …}`; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    problem: str = Field(min_length=1)
    steps: list[str] = Field(min_length=1)
    labels: list[StrictBool]


class _PublishedRecord(BaseModel):
    """The layout of the published data sets: `{"prompt", "answer", "completions", "label"}`."""

    model_config = ConfigDict(extra="ignore")

    problem: str = Field(min_length=1, alias="prompt")
    steps: list[str] = Field(min_length=1, alias="completions")
    labels: list[StrictBool] = Field(alias="label")


def read(path: Path) -> Iterator[LabelledSolution]:
    """The records of a file in either layout.

    Raises `RecordInvalid` with the file, the line number and the reason.
    """
    for number, record in sources.from_file(path):
        try:
            yield parse(record)
        except ValueError as error:
            raise RecordInvalid(str(path), number, sources.reason(error)) from error


def parse(record: Any) -> LabelledSolution:
    """Parses a record in either layout; raises `ValueError` if it fits neither, if there are not as many labels as
    steps, or if a step is blank."""
    layout = _PublishedRecord if isinstance(record, dict) and "completions" in record else _Record
    valid = layout.model_validate(record)
    if len(valid.labels) != len(valid.steps):
        raise ValueError(f"{len(valid.labels)} labels for {len(valid.steps)} steps")
    if any(not step.strip() for step in valid.steps):
        raise ValueError("a step is blank")
    return LabelledSolution(valid.problem, tuple(valid.steps), tuple(valid.labels))


def write(path: Path, solutions: Sequence[LabelledSolution]) -> None:
    """Writes the file, one record per line, replacing its content."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(solution), ensure_ascii=False) + "\n" for solution in solutions)
