"""What each search would find if rollouts told the truth, and whether uncertainty rises at first errors: on solutions
whose first errors people labelled, without rollouts.

A prefix is worth 1 before the first error and 0 from it on, so that what is left is the order in which a search tries
the steps, and what Algorithm 1 can't find: the first step, which it never tries.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.stats import spearmanr

from training import sources
from training.data.annotator import named_search
from training.data.sample import seed_of
from training.data.search import Search, WrongSolution, drawn
from training.data.select import step_uncertainties
from training.evaluate.metrics import Estimate, Share, in_markdown
from training.stage_settings import AnnotateSettings
from unprm.types import Rollout
from unprm.uncertainty import MEASURES

from ..auroc import ScoredSteps, auroc
from .study import variants
from .truth import LabelledError

SOLVED, SAMPLES = 6, 12
"""Rollouts from every question alone, and how many of them are right: its τ is one half."""


class TruePrefixes:
    """Prefixes of a solution whose rollouts are right before the first error, step `wrong` (1-based), and wrong from it
    on. `tried`: rollouts by the steps whose prefixes were valued."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong
        self.tried: dict[int, list[Rollout]] = {}

    async def value(self, step: int) -> float:
        """As `Prefixes`."""
        self.tried.setdefault(step, [])
        return float(step < self.wrong)

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """As `Prefixes`."""
        rollouts = self.tried.setdefault(step, [])
        rollouts += [Rollout((-1.0,), step < self.wrong)] * count
        return rollouts


def markdown(labels: Path) -> str:
    """Tables of the searches and of the measures of uncertainty, in Markdown.

    Raises `RecordInvalid`, and `ValueError` if a solution lacks `logprobs` or `ends`.
    """
    solutions = [row for row in sources.read(labels, LabelledError) if len(row.steps) > 1]
    if bare := sum(len(row.ends) != len(row.steps) for row in solutions):
        raise ValueError(f"{labels}: {bare} solutions have no `logprobs` and `ends` for each step")
    first = sum(row.first_error == 0 for row in solutions)
    about = f"{len(solutions)} wrong solutions of {len(_problems(solutions))} questions; {first} err in the first step."
    return f"{about}\n\n{_by_search(solutions)}\n{_by_measure(solutions)}"


def _by_search(solutions: Sequence[LabelledError]) -> str:
    rows = []
    for name, settings in variants(AnnotateSettings()).items():
        searched = [_search(row, settings, solutions) for row in solutions]
        errors = [row.first_error + 1 for row in solutions]
        hits = [step == error for (step, _), error in zip(searched, errors, strict=True)]
        late = [step is not None and step > error for (step, _), error in zip(searched, errors, strict=True)]
        verified = sum(tried for _, tried in searched) / len(searched)
        shares = [_share(solutions, outcomes).in_percent for outcomes in (hits, late)]
        rows.append([name, f"{verified:.2f}", *shares])
    return in_markdown(("search", "steps verified", "first error found", "a later step found"), rows, names=1)


def _search(
    solution: LabelledError, settings: AnnotateSettings, solutions: Sequence[LabelledError]
) -> tuple[int | None, int]:
    """The step found (1-based), and how many steps were verified."""
    find = named_search(settings)
    if find is None:
        return drawn(len(solution.steps), seed_of(settings.seed, f"{solution.problem}{solution.steps}")), 0
    of_question = [
        u for row in solutions if row.problem == solution.problem for u in _uncertainties(row, settings.measure)
    ]
    prefixes = TruePrefixes(solution.first_error + 1)
    wrong = WrongSolution(
        uncertainties=tuple(_uncertainties(solution, settings.measure)),
        mean_uncertainty=fmean(of_question),
        tau=SOLVED / SAMPLES,
        solved=SOLVED,
        samples=SAMPLES,
    )
    return asyncio.run(_find(find, wrong, prefixes)), len(prefixes.tried)


async def _find(find: Search, solution: WrongSolution, prefixes: TruePrefixes) -> int | None:
    return await find(solution, prefixes)


def _by_measure(solutions: Sequence[LabelledError]) -> str:
    later = [row for row in solutions if row.first_error > 0]
    guessed = _share(later, [1 / (len(row.steps) - 1) for row in later])
    rows = [["a random step", "", guessed.in_percent, "0.500", "0.500"]]
    tokens = np.concatenate([np.diff([0, *row.ends]) for row in solutions])
    for name in MEASURES:
        uncertainties = [_uncertainties(row, name) for row in solutions]
        correlation = spearmanr(np.concatenate(uncertainties), tokens).statistic
        tops = [int(np.argmax(np.diff(_uncertainties(row, name)))) + 1 == row.first_error for row in later]
        steps = [_until_error(row, values) for row, values in zip(solutions, uncertainties, strict=True)]
        areas = [auroc(steps, matched).share for matched in (True, False)]
        shown = [f"{area.mean:.3f} ({area.low:.3f}–{area.high:.3f})" for area in areas]
        rows.append([name, f"{correlation:+.2f}", _share(later, tops).in_percent, *shown])
    columns = (
        "measure",
        "rank correlation with tokens",
        "rises most at the first error",
        "AUROC, like length and place",
        "AUROC",
    )
    return in_markdown(columns, rows, names=1)


def _uncertainties(solution: LabelledError, measure: str) -> list[float]:
    return step_uncertainties(solution.logprobs, solution.ends, measure)


def _until_error(solution: LabelledError, uncertainties: Sequence[float]) -> ScoredSteps:
    steps = range(solution.first_error + 1)
    return ScoredSteps(
        question=solution.problem,
        scores=tuple(-uncertainties[step] for step in steps),
        lengths=tuple(len(solution.steps[step]) for step in steps),
        wrong=True,
    )


def _problems(solutions: Sequence[LabelledError]) -> dict[str, int]:
    return {problem: index for index, problem in enumerate(dict.fromkeys(row.problem for row in solutions))}


def _share(solutions: Sequence[LabelledError], outcomes: Sequence[float]) -> Share:
    """The mean outcome, resampled by problem."""
    index = _problems(solutions)
    hits, counts = np.zeros((2, len(index)))
    for row, outcome in zip(solutions, outcomes, strict=True):
        hits[index[row.problem]] += outcome
        counts[index[row.problem]] += 1
    return Estimate.ratio(hits, counts).share
