"""Joins annotated solutions, for example of several models, into a data set in the published layout.

unprm merge runs/mini/annotated.jsonl --output runs/mini/dataset
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import or_
from pathlib import Path

from jinja2 import Template

from .. import resumable, sources
from ..schema import ResolvedSolution

CARD = Path(__file__).with_name("card.md.jinja")


@dataclass(frozen=True, slots=True)
class Merged:
    """Numbers of solutions: in a data set, left out as duplicates, with other labels than their search found, and left
    out because their error lay in the beginning of a right one."""

    solutions: int
    duplicates: int
    changed: int
    refuted: int

    def __str__(self) -> str:
        return (
            f"{self.solutions} solutions, {self.duplicates} duplicates left out; so that equal prefixes have equal "
            f"labels, {self.changed} solutions have other labels, and {self.refuted} were left out"
        )


def merge(annotated: Sequence[Path], output: Path) -> Merged:
    """Writes `output/data/train.jsonl` and the card `output/README.md`; `datasets.load_dataset(output)` reads it.

    Of solutions with equal problem and steps, only the first is kept, in the order of the files. Their labels are made
    `consistent`. Raises `RecordInvalid` for a file that `annotate` did not write.
    """
    kept: dict[tuple[str, ...], ResolvedSolution] = {}
    count = 0
    for path in annotated:
        for solution in sorted(sources.read(path, ResolvedSolution), key=lambda solution: solution.id):
            count += 1
            kept.setdefault((solution.problem, *solution.steps), solution)
    solutions = consistent(list(kept.values()))
    merged = Merged(
        solutions=len(solutions),
        duplicates=count - len(kept),
        changed=sum(solution.labels != kept[solution.problem, *solution.steps].labels for solution in solutions),
        refuted=len(kept) - len(solutions),
    )
    rows = (
        {"prompt": s.problem, "answer": s.gold_answer, "completions": s.steps, "label": s.labels} for s in solutions
    )
    configs = json.dumps([resumable.config_of(path) for path in annotated], ensure_ascii=False, indent=2)
    card = Template(CARD.read_text("utf-8"), keep_trailing_newline=True)
    shown = card.render(name=output.name, solutions=solutions, merged=merged, configs=configs)
    resumable.write_lines(output / "data" / "train.jsonl", rows)
    resumable.replace(output / "README.md", shown)
    return merged


def consistent(solutions: Sequence[ResolvedSolution]) -> list[ResolvedSolution]:
    """The solutions, with equal labels for equal prefixes of problem and steps.

    Steps are right up to where a right solution begins with the same; beyond, they are wrong from the first prefix on
    after which the search found some solution to be wrong. A wrong solution without such a prefix is left out: the
    error that was found in it lies where a right solution begins with the same.
    """
    right = {prefix for solution in solutions if solution.correct for prefix in _prefixes(solution)}
    wrong = {_prefixes(solution)[first] for solution in solutions if (first := solution.first_error) is not None}
    made = []
    for solution in solutions:
        errors = [prefix in wrong and prefix not in right for prefix in _prefixes(solution)]
        if solution.correct or any(errors):
            made.append(replace(solution, labels=tuple(not wrong for wrong in accumulate(errors, or_))))
    return made


def _prefixes(solution: ResolvedSolution) -> list[tuple[str, ...]]:
    """The problem with the first step, with the first two, … with all."""
    return [(solution.problem, *solution.steps[: k + 1]) for k in range(len(solution.steps))]
