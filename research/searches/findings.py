"""The table of `research study`: what each search costs on the same solutions, and how accurate its labels are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data import stats
from training.evaluate.bootstrap import Estimate, Numbers
from training.evaluate.metrics import percent
from training.evaluate.vote_results import in_markdown
from training.schema import AnnotatedSolution
from training.stage_settings import AnnotateSettings

from ..comparisons import F1_MARGIN, compare, finding, note
from .study import BASELINE, variants
from .truth import Agreement, FirstErrorOf, agreeing_labels, agreement, by_checker

COLUMNS = ("search", "verified steps", "samples", "tokens", f"samples saved against {BASELINE}",
           *stats.FoundRanks.COLUMNS, *Agreement.COLUMNS)  # fmt: skip
SPENT = {"verified steps": "verified", "samples": "samples", "tokens": "tokens"}
"""Columns, and their field names in the records."""
PAPER_RANKS = "0.33 to 0.51"
"""Mean ranks of the step found, over the sampling models (paper, section 6)."""


def markdown(place: Path, true_error: FirstErrorOf = by_checker) -> str:
    """The table of a study's directory in Markdown; if the true labels are known, with comparisons."""
    measured = rows(place, true_error)
    if agreement(stats.read_annotated(place / f"{BASELINE}.jsonl"), true_error) is None:
        return in_markdown(COLUMNS, measured, names=1)
    return _compared(place, measured, true_error)


def rows(output: Path, true_error: FirstErrorOf = by_checker) -> list[list[str]]:
    """The study's table, one row per search with the cells of `COLUMNS`."""
    paths = ((name, output / f"{name}.jsonl") for name in variants(AnnotateSettings()))
    runs = {name: path for name, path in paths if path.exists()}
    records = {name: stats.read_annotated(path) for name, path in runs.items()}
    costs = {name: stats.costs(path) for name, path in runs.items()}
    return [[name, *_costs(cost, costs[BASELINE]), *_found(records[name], true_error)] for name, cost in costs.items()]


def _costs(cost: stats.AnnotationCosts, baseline: stats.AnnotationCosts) -> list[str]:
    saved = percent(1 - cost.samples / baseline.samples) if baseline.samples else "–"
    return [*(f"{number:,}" for number in (cost.verified, cost.samples, cost.tokens)), saved]


def _found(records: Sequence[AnnotatedSolution], true_error: FirstErrorOf) -> list[str]:
    ranks, agreed = stats.ranks(records), agreement(records, true_error)
    return [
        *(ranks.cells() if ranks else ["–"] * len(stats.FoundRanks.COLUMNS)),
        *([percent(share) for share in agreed.shares()] if agreed else ["–"] * len(Agreement.COLUMNS)),
    ]


@dataclass(frozen=True, slots=True)
class LabelAccuracy:
    """Accuracy of a search's labels of wrong solutions. `first`: share whose first error was found (not found if there
    are no labels); `steps`: share of the step labels that are right. `spent`: the values of `SPENT` by question."""

    first: Estimate
    steps: Estimate
    spent: dict[str, Numbers]

    def saved(self, what: str, baseline: "LabelAccuracy") -> Estimate:
        """The share of another search's spending that this one saves on the same questions; negative if it spends
        more."""
        return Estimate.ratio((baseline.spent[what] - self.spent[what])[None], baseline.spent[what])


def truths(runs: Mapping[str, Path], true_error: FirstErrorOf = by_checker) -> dict[str, LabelAccuracy]:
    """Accuracy of the labels by search; all must have annotated the same solutions.

    Raises `ValueError` that names a search that annotated other solutions.
    """
    records = {
        name: [solution for solution in stats.read_annotated(path) if not solution.correct]
        for name, path in runs.items()
    }
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
        question, agreeing = questions[solution.question], agreeing_labels(solution, true_error)
        solutions[question] += 1
        right[question] += sum(agreeing)
        steps[question] += len(agreeing)
        for what in spent:
            spent[what][question] += getattr(solution, what)
        if solution.first_error is not None:
            hits[question] += solution.first_error == true_error(solution.problem, solution.steps)
    return LabelAccuracy(Estimate.ratio(hits[None], solutions), Estimate.ratio(right[None], steps), spent)


def _compared(place: Path, measured: Sequence[Sequence[str]], true_error: FirstErrorOf) -> str:
    """The rows with intervals, and compared with the baseline."""
    true = truths({name: place / f"{name}.jsonl" for name, *_ in measured}, true_error)
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
        shown = dict(zip(COLUMNS[1:], cells, strict=True))
        shown |= {column: figure(true[name]).share.in_percent for column, figure in figures.items()}
        saved = [true[name].saved(what, baseline).interval().in_percent for what in SPENT.values()]
        compared = [family.get(name, "") for family in families.values()]
        table.append([name, *shown.values(), *(saved if name != BASELINE else [""] * len(saved)), *compared])
    return finding(
        "What does each search cost, and how true are its labels?",
        [*COLUMNS, *(f"{what} saved against {BASELINE} in % (95 % interval)" for what in SPENT),
         *(f"{column}, against {BASELINE}, points" for column in figures)],
        table,
        "Of wrong solutions. One that a search leaves without labels counts as an error not found, and its steps don't "
        f"count. The ranks in the paper are {PAPER_RANKS}.",
        note(len(true) - 1, F1_MARGIN, 0),
    )  # fmt: skip
