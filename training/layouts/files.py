"""Labelled solutions from files, directories and the hub, in any layout; and from one layout to another."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from unprm.errors import RecordInvalid, RecordsInvalid

from .. import resumable, sources
from ..schema import BenchmarkSolution, LabelledSolution, adapter
from ..stage_settings import LayoutName, WrittenLayout
from . import rows

SHOWN = 20
"""Bad records that an error names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields`: those by which a row is recognised; no two layouts share all of theirs. `kind`: the type of a row."""

    fields: str
    kind: type[Any]

    def solutions(self, row: Mapping[str, Any]) -> list[LabelledSolution]:
        """The solutions in a row. Raises `ValueError` for a bad one."""
        return list(adapter(self.kind).validate_python(row).solutions())


def published_row(solution: LabelledSolution, labels: str) -> dict[str, object]:
    """The row of a solution in the layout of the paper's data sets, or in TRL's, by the name of its `labels`. Raises
    `ValueError` if a label is not right or wrong."""
    if not all(isinstance(label, bool) for label in solution.labels):
        raise ValueError("unknown labels" if None in solution.labels else "soft labels")
    answer = {} if solution.gold_answer is None else {"answer": solution.gold_answer}
    return {"prompt": solution.problem, **answer, "completions": solution.steps, labels: solution.labels}


LAYOUTS: dict[LayoutName, Layout] = {
    "native": Layout("steps labels", LabelledSolution),
    "unprm": Layout("completions label", LabelledSolution),
    "trl": Layout("completions labels", LabelledSolution),
    "prm800k": Layout("question label", rows.Prm800kRow),
    "math-shepherd": Layout("input label", rows.MathShepherdRow),
    "openrlhf": Layout("input value", rows.ValuesRow),
    "er-prm": Layout("text value", rows.ValuesRow),
    "rlhflow": Layout("conversations", rows.RlhflowRow),
    "processbench": Layout("steps label", BenchmarkSolution),
    "prmbench": Layout("original_process modified_process", rows.PrmbenchRow),
    "step-dpo": Layout("initial_reason_steps chosen rejected", rows.StepDpoRow),
}

WRITERS: dict[WrittenLayout, Callable[[LabelledSolution], object]] = {
    "native": lambda solution: solution,
    "unprm": partial(published_row, labels="label"),
    "trl": partial(published_row, labels="labels"),
}
"""The row of a solution. Raises `ValueError` that names what in the solution the layout can't hold."""


def recognised(row: Mapping[str, Any]) -> LayoutName:
    """The layout of a row by its fields. Raises `ValueError` if there is none."""
    given = {name for name, value in row.items() if value is not None}
    for name, layout in LAYOUTS.items():
        if given.issuperset(layout.fields.split()):
            return name
    raise ValueError(f"fields of no layout ({', '.join(LAYOUTS)}): state one to be told what is missing")


def read_labelled(data: Sequence[Path], layout: LayoutName | None = None) -> Iterator[LabelledSolution]:
    """The labelled solutions in JSON lines, files with an array, directories of both, or the split `train` of
    the hub's data sets of these names. `layout`: of all rows; None: each is recognised by its fields.

    Raises `RecordInvalid` for a bad record and `RecordsInvalid` for several, after all have been read.
    """
    bad: list[RecordInvalid] = []
    count = 0
    for source, number, row in chain.from_iterable(map(sources.rows_of, data)):
        try:
            fields = sources.value(row, dict[str, Any])
            yield from LAYOUTS[layout].solutions(fields) if layout else _solutions(fields)
        except ValueError as error:
            count += 1
            if count <= SHOWN:
                bad.append(RecordInvalid(source, number, sources.reason(error)))
    if count:
        raise bad[0] if count == 1 else RecordsInvalid(bad, count)


def _solutions(row: Mapping[str, Any]) -> list[LabelledSolution]:
    """The solutions in a row of the layout that its fields show, which errors name: a misspelt field shows another."""
    name = recognised(row)
    try:
        return LAYOUTS[name].solutions(row)
    except ValueError as error:
        fields = ", ".join(sorted(LAYOUTS[name].fields.split()))
        raise ValueError(
            f"{sources.reason(error)} (read as {name} because of its fields {fields}; --layout names another)"
        ) from error


def convert(data: Path, output: Path, to: WrittenLayout, layout: LayoutName | None = None) -> int:
    """Writes the solutions as JSON lines in the layout `to`, and returns their number.

    Raises `RecordInvalid` if the layout can't hold all of them, and says how many and why; then nothing is written.
    """
    written, refused = [], Counter[str]()
    for solution in read_labelled([data], layout):
        try:
            written.append(WRITERS[to](solution))
        except ValueError as error:
            refused[str(error)] += 1
    if refused:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in refused.most_common())
        total = refused.total() + len(written)
        raise RecordInvalid(
            str(data), 0, f"the layout {to} can't hold {refused.total()} of {total} solutions: {reasons}"
        )
    resumable.write_lines(output, written)
    return len(written)
