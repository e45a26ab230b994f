"""The lab's finding about measures of uncertainty: which one points at first errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training import sources
from training.data.select import step_uncertainties
from training.evaluate.bootstrap import Estimate, Numbers
from training.evaluate.metrics import percent
from training.schema import SelectedSolution
from unprm.uncertainty import MEASURES

from ..comparisons import F1_MARGIN, compare, finding, note
from ..searches.truth import FirstErrorOf, by_checker

ENTROPY = "entropy"
"""The paper's measure."""


Case = tuple[int, Numbers, int]
"""A wrong solution: the index of its question, the Δu of its steps, and the index of its first error."""


@dataclass(frozen=True, slots=True)
class Pointing:
    """How often a measure of uncertainty rises most at the first error. `hits`, (questions,): solutions where it does;
    `counts`, (questions,): all solutions. `chance`: the share expected for a random step."""

    hits: Numbers
    counts: Numbers
    chance: float

    @classmethod
    def of(cls, cases: Sequence[Case], questions: int) -> "Pointing":
        hits, counts = np.zeros((2, questions))
        for question, rises, error in cases:
            hits[question] += rises[error] == rises.max()
            counts[question] += 1
        return cls(hits, counts, float(np.mean([1 / len(rises) for _, rises, _ in cases])) if cases else 0.0)


@dataclass(frozen=True, slots=True)
class Pointer:
    """How well a measure of uncertainty points at first errors: `among_all` steps of the wrong solutions; and
    `before_last`, among all steps but the last, which searches never try, if the first error is one of these and there
    are at least two. `length`: correlation of a step's uncertainty with the logarithm of its number of tokens."""

    before_last: Pointing
    among_all: Pointing
    length: float


def pointers(selected: Path, true_error: FirstErrorOf = by_checker) -> dict[str, Pointer]:
    """By measure, on a file's wrong solutions with at least two steps. The first step's Δu is taken against the mean
    over the question's steps."""
    solutions = [row for row in sources.read(selected, SelectedSolution) if len(row.steps) > 1]
    known = [(row, true_error(row.problem, row.steps)) for row in solutions]
    wrong = [(row, error) for row, error in known if error is not None]
    questions = {name: k for k, name in enumerate(dict.fromkeys(row.question for row, _ in wrong))}
    lengths = np.concatenate([np.diff([0, *row.ends]) for row, _ in wrong])
    made = {}
    for measure in MEASURES:
        values = [step_uncertainties(row.logprobs, row.ends, measure) for row, _ in wrong]
        cases = [
            (questions[row.question], np.diff([row.mean_step_uncertainty[measure] or 0.0, *steps]), error)
            for (row, error), steps in zip(wrong, values, strict=True)
        ]
        tried = [(k, rises[:-1], error) for k, rises, error in cases if error < len(rises) - 1 and len(rises) > 2]
        length = float(np.corrcoef(np.concatenate(values), np.log(lengths))[0, 1])
        made[measure] = Pointer(Pointing.of(tried, len(questions)), Pointing.of(cases, len(questions)), length)
    return made


def measures(selected: Path, true_error: FirstErrorOf = by_checker) -> str:
    """Which measure of uncertainty points at the first error best, in a file of selected solutions."""
    by_measure = pointers(selected, true_error)
    by_place = {
        "last step left out": {name: pointer.before_last for name, pointer in by_measure.items()},
        "all steps": {name: pointer.among_all for name, pointer in by_measure.items()},
    }
    family = compare(
        {
            (place, name): Estimate.ratio((each.hits - by_name[ENTROPY].hits)[None], each.counts)
            for place, by_name in by_place.items()
            for name, each in by_name.items()
            if name != ENTROPY
        },
        F1_MARGIN,
    )
    columns, by_chance = ["measure"], ["a random step"]
    rows = {name: [name] for name in by_measure}
    for place, by_name in by_place.items():
        columns += [f"{place}, {by_name[ENTROPY].counts.sum():,.0f} solutions", f"against {ENTROPY}, points"]
        by_chance += [percent(by_name[ENTROPY].chance), ""]
        for name, each in by_name.items():
            rows[name] += [Estimate.ratio(each.hits[None], each.counts).share.in_percent, family.get((place, name), "")]
    return finding(
        "Which measure of uncertainty rises most at the first error?",
        [*columns, "correlation with log length"],
        [[*by_chance, ""], *([*cells, f"{by_measure[name].length:.3f}"] for name, cells in rows.items())],
        "In % of the wrong solutions (95 % interval). The searches never try the last step.",
        note(len(family), F1_MARGIN, 0),
    )
