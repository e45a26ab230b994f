"""The table of `research study`: what each search costs on the same solutions, and how accurate its labels are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data import stats
from training.evaluate.metrics import Estimate, Numbers, in_markdown, percent
from training.schema import AnnotatedSolution
from training.stage_settings import AnnotateSettings

from ..comparisons import F1_MARGIN, compare, finding, note
from .study import BASELINE, variants
from .truth import FirstErrorOf, by_checker

COLUMNS = ("search", "verified steps", "samples", "tokens", f"samples saved against {BASELINE}",
           *stats.FoundRanks.COLUMNS)  # fmt: skip
TRUTH = ("first error found", "step labels right", "labelled")
SPENT = {"verified steps": "verified", "samples": "samples", "tokens": "tokens"}
"""Columns, and their field names in the records."""
PAPER_RANKS = "0.33 to 0.51"
"""Mean ranks of the step found, over the sampling models (paper, section 6)."""
Runs = Mapping[str, Sequence[AnnotatedSolution]]


def markdown(place: Path, true_error: FirstErrorOf = by_checker) -> str:
    """The table of a study's directory in Markdown; if the true labels are known, with comparisons."""
    paths = {name: place / f"{name}.jsonl" for name in variants(AnnotateSettings())}
    runs = {name: stats.read_annotated(path) for name, path in paths.items() if path.exists()}
    costs = {name: stats.costs(paths[name]) for name in runs}
    measured = [[name, *_costs(costs[name], costs[BASELINE]), *_ranks(solutions)] for name, solutions in runs.items()]
    if not _is_known(_wrong(runs[BASELINE]), true_error):
        return in_markdown((*COLUMNS, *TRUTH), [[*row, *("–" for _ in TRUTH)] for row in measured], names=1)
    return _compared(measured, truths(runs, true_error))


def _is_known(solutions: Sequence[AnnotatedSolution], true_error: FirstErrorOf) -> bool:
    try:
        return bool([true_error(solution.problem, solution.steps) for solution in solutions])
    except ValueError:
        return False


def _wrong(solutions: Sequence[AnnotatedSolution]) -> list[AnnotatedSolution]:
    return [solution for solution in solutions if not solution.correct]


def _costs(cost: stats.AnnotationCosts, baseline: stats.AnnotationCosts) -> list[str]:
    saved = percent(1 - cost.samples / baseline.samples) if baseline.samples else "–"
    return [*(f"{number:,}" for number in (cost.verified, cost.samples, cost.tokens)), saved]


def _ranks(solutions: Sequence[AnnotatedSolution]) -> Sequence[str]:
    ranks = stats.ranks(solutions)
    return ranks.cells() if ranks else ["–"] * len(stats.FoundRanks.COLUMNS)


@dataclass(frozen=True, slots=True)
class LabelAccuracy:
    """Accuracy of a search's labels of wrong solutions, in shares of them. `first`: the first error was found (not
    found if there are no labels); `labelled`: there are labels; and `steps`: of the step labels those that are right.
    `spent`: the values of `SPENT` by question."""

    first: Estimate
    steps: Estimate
    labelled: float
    spent: dict[str, Numbers]

    def saved(self, what: str, baseline: "LabelAccuracy") -> Estimate:
        """The share of another search's spending that this one saves on the same questions; negative if it spends
        more."""
        return Estimate.ratio((baseline.spent[what] - self.spent[what]), baseline.spent[what])


def truths(runs: Runs, true_error: FirstErrorOf = by_checker) -> dict[str, LabelAccuracy]:
    """Accuracy of the labels by search; all must have annotated the same solutions, some of them wrong.

    Raises `ValueError` that names a search that annotated other solutions.
    """
    records = {name: _wrong(solutions) for name, solutions in runs.items()}
    solutions = {name: {solution.id for solution in wrong} for name, wrong in records.items()}
    first = next(iter(solutions), "")
    for name, ids in solutions.items():
        if ids != solutions[first]:
            apart = len(ids ^ solutions[first])
            raise ValueError(f"{name} annotated other wrong solutions than {first}: {apart} are in one of them alone")
    return {name: _truth(wrong, true_error) for name, wrong in records.items()}


def _truth(wrong: Sequence[AnnotatedSolution], true_error: FirstErrorOf) -> LabelAccuracy:
    questions = {name: k for k, name in enumerate(sorted({solution.question for solution in wrong}))}
    hits, solutions, right, steps = np.zeros((4, len(questions)))
    spent: dict[str, Numbers] = {what: np.zeros(len(questions)) for what in SPENT.values()}
    for solution in wrong:
        question, error = questions[solution.question], true_error(solution.problem, solution.steps)
        labels, first = solution.labels or (), solution.first_error
        solutions[question] += 1
        right[question] += sum(label == (error is None or step < error) for step, label in enumerate(labels))
        steps[question] += len(labels)
        for what in spent:
            spent[what][question] += getattr(solution, what)
        hits[question] += first is not None and first == error
    labelled = sum(solution.labels is not None for solution in wrong)
    return LabelAccuracy(
        Estimate.ratio(hits, solutions),
        Estimate.ratio(right, steps),
        labelled / len(wrong),
        spent,
    )


def _compared(measured: Sequence[Sequence[str]], true: Mapping[str, LabelAccuracy]) -> str:
    """The rows with intervals, and compared with the baseline."""
    baseline = true[BASELINE]
    figures: dict[str, Callable[[LabelAccuracy], Estimate]] = {
        "first error found": lambda truth: truth.first, "step labels right": lambda truth: truth.steps
    }  # fmt: skip
    families = {
        column: compare(
            {name: figure(truth) - figure(baseline) for name, truth in true.items() if name != BASELINE}, F1_MARGIN
        )
        for column, figure in figures.items()
    }
    table = []
    for name, *cells in measured:
        its = true[name]
        shares = [its.first.share.in_percent, its.steps.share.in_percent, percent(its.labelled)]
        saved = [its.saved(what, baseline).interval().in_percent for what in SPENT.values()]
        compared = [family.get(name, "") for family in families.values()]
        table.append([name, *cells, *shares, *(saved if name != BASELINE else [""] * len(saved)), *compared])
    return finding(
        "What does each search cost, and how true are its labels?",
        [*COLUMNS, *TRUTH, *(f"{what} saved against {BASELINE} in % (95 % interval)" for what in SPENT),
         *(f"{column}, against {BASELINE}, points" for column in figures)],
        table,
        "Of wrong solutions. One that a search leaves without labels counts as an error not found, and its steps don't "
        f"count. The ranks in the paper are {PAPER_RANKS}.",
        note(len(true) - 1, F1_MARGIN),
    )  # fmt: skip
