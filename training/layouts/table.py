"""All layouts by name: how a row is recognised, read and written."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..schema import BenchmarkSolution, LabelledSolution, adapter
from ..settings import LayoutName, WrittenLayout
from . import rows


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields`: those by which a row is recognised; no two layouts share all of theirs. `kind`: the type of a row, and
    `read`, the solutions in it."""

    fields: frozenset[str]
    kind: type[Any]
    read: Callable[[Any], Iterator[LabelledSolution]]

    def solutions(self, row: Mapping[str, Any]) -> list[LabelledSolution]:
        """The solutions in a row. Raises `ValueError` for a bad one."""
        return list(self.read(adapter(self.kind).validate_python(row)))


def _layout(fields: str, kind: type[Any], read: Callable[[Any], Iterator[LabelledSolution]] | None = None) -> Layout:
    return Layout(frozenset(fields.split()), kind, read or kind.solutions)


LAYOUTS: dict[LayoutName, Layout] = {
    "native": _layout("steps labels", LabelledSolution, rows.native),
    "unprm": _layout("completions label", rows.UnprmRow),
    "trl": _layout("completions labels", rows.TrlRow),
    "prm800k": _layout("question label", rows.Prm800kRow),
    "math-shepherd": _layout("input label", rows.MathShepherdRow),
    "rlhflow": _layout("conversations", rows.RlhflowRow),
    "processbench": _layout("steps label", BenchmarkSolution, rows.processbench),
    "prmbench": _layout("original_process modified_process", rows.PrmbenchRow),
    "step-dpo": _layout("initial_reason_steps chosen rejected", rows.StepDpoRow),
}

WRITERS: dict[WrittenLayout, Callable[[LabelledSolution], object]] = {
    "native": lambda solution: solution,
    "unprm": rows.UnprmRow.of,
    "trl": rows.TrlRow.of,
    "math-shepherd": rows.MathShepherdRow.of,
}
"""The row of a solution. Raises `ValueError` that names what in the solution the layout can't hold."""


def recognised(row: Mapping[str, Any]) -> Layout:
    """The layout of a row by its fields. Raises `ValueError` if there is none."""
    given = {name for name, value in row.items() if value is not None}
    for layout in LAYOUTS.values():
        if layout.fields <= given:
            return layout
    raise ValueError(f"fields of no layout ({', '.join(LAYOUTS)}): state one to be told what is missing")
