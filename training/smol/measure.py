"""What the PRM knows, beside what is known without it: the length and the place of a step, and how likely the language
model finds it."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unprm.answers.equivalence import Equivalence
from unprm.models import smol
from unprm.models.checkpoint import fetch
from unprm.models.load import load_engine

from .. import resumable, sources
from ..data.search_findings import table
from ..evaluate import best_of_n, pool, processbench
from ..evaluate.metrics import Share
from ..evaluate.scorers import EngineScorer
from ..schema import BenchmarkSolution, SampledQuestion, Scores
from .auroc import ScoredSteps, auroc
from .pipeline import Study, judge
from .questions import WordProblem
from .surprisal import LikelihoodScorer

_FALL = 100.0
"""Characters over which the score of a step's length falls by half: thresholds are in [0, 1]."""
COLUMNS = ("solutions", "score", "AUROC, like length and place", "AUROC, all pairs", "F1 of first errors")
Sets = Mapping[str, Sequence[BenchmarkSolution]]
SetScores = Mapping[str, Mapping[str, Scores]]
"""Scores by set and solution."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one scorer on one set. `matched`, `auroc`: of first wrong steps against right ones, within pairs of like
    length at the same place, and over all pairs. `f1`: of first errors at the `threshold` that is best on the first
    other set, with its interval; None if all solutions are wrong."""

    matched: Share
    auroc: Share
    f1: Share | None
    threshold: float


def measure(study: Study) -> None:
    """Writes the figures by set and scorer, `measured.json` and `measured.md`, and the votes, in `votes`."""
    output, console = study.output, study.console
    sets = test_sets(study)
    scores: dict[str, SetScores] = {
        "length of the step": _by_steps(sets, lambda steps: [2.0 ** (-len(step) / _FALL) for step in steps]),
        "place of the step": _by_steps(sets, lambda steps: [0.9**place for place in range(len(steps))]),
    }
    frozen = LikelihoodScorer(fetch(smol.NAME, None), smol.NAME)
    scores["likelihood, SmolLM2 as it is"] = processbench.score(sets, frozen, output / "scores" / smol.NAME, console)
    equivalence = Equivalence()
    with closing(load_engine(str(output / "prm"))) as engine:
        prm = EngineScorer(engine)
        scores[prm.identity.model] = processbench.score(sets, prm, output / "scores" / "prm", console)
        pools = {name: pool.load(output / f"candidates-{name}.jsonl") for name in study.candidates}
        if "others" in pools:
            pools["easy-and-others"] = [*pools["easy"], *pools["others"]]
        for name, questions in pools.items():
            best_of_n.evaluate(questions, prm, equivalence, output / "votes" / name, console)
    found = {name: {scorer: _figures(sets, name, given) for scorer, given in scores.items()} for name in sets}
    plain = {name: {scorer: asdict(figures) for scorer, figures in row.items()} for name, row in found.items()}
    resumable.replace(output / "measured.json", json.dumps(plain, indent=2) + "\n")
    resumable.replace(output / "measured.md", markdown(sets, found))


def test_sets(study: Study) -> dict[str, list[BenchmarkSolution]]:
    """Solutions with their first errors: the reasoner's of held-out questions, and those that people labelled."""
    sets = {
        name: list(_judged(study.output / f"candidates-{name}.jsonl", {q.id: q for q in questions}))
        for name, questions in study.candidates.items()
    }
    others = {"processbench": study.data.processbench, "teachers": study.data.teachers}
    drawn, most = random.Random(f"{study.settings.seed}/labelled").sample, study.settings.labelled
    sets |= {name: drawn(solutions, min(most, len(solutions))) for name, solutions in others.items() if solutions}
    # nothing after a first error is measured, and a causal model's scores don't depend on it
    return {
        name: [replace(s, steps=s.steps[: s.label + 1]) if s.label >= 0 else s for s in solutions]
        for name, solutions in sets.items()
    }


def _judged(path: Path, questions: Mapping[str, WordProblem]) -> Iterator[BenchmarkSolution]:
    for sampled in sources.read(path, SampledQuestion):
        for number, (steps, wrong) in enumerate(judge(questions[sampled.id], sampled)):
            yield BenchmarkSolution(f"{sampled.id}#{number}", sampled.problem, steps, -1 if wrong is None else wrong)


def _by_steps(sets: Sets, score: Callable[[Sequence[str]], Sequence[float]]) -> SetScores:
    return {
        name: {solution.id: tuple(score(solution.steps)) for solution in solutions} for name, solutions in sets.items()
    }


def scored_steps(solutions: Sequence[BenchmarkSolution], scores: Mapping[str, Scores]) -> list[ScoredSteps]:
    """The steps of solutions up to their first errors; solutions without scores are left out."""
    made = []
    for solution in solutions:
        values, error = scores[solution.id], solution.first_error
        if values is not None:
            end = len(solution.steps) if error is None else error + 1
            lengths = tuple(len(step) for step in solution.steps[:end])
            made.append(ScoredSteps(solution.problem, tuple(values[:end]), lengths, error is not None))
    return made


def _figures(sets: Sets, name: str, scores: SetScores) -> Figures:
    chosen = next(other for other in sets if other != name)
    threshold = processbench.best_threshold(sets[chosen], scores[chosen])
    steps = scored_steps(sets[name], scores[name])
    f1 = None
    if any(solution.first_error is None for solution in sets[name]):
        made = processbench.figures(sets[name], scores[name], threshold)
        f1 = Share(made.f1, made.f1_low, made.f1_high)
    return Figures(auroc(steps, matched=True).share, auroc(steps, matched=False).share, f1, threshold)


def markdown(sets: Sets, found: Mapping[str, Mapping[str, Figures]]) -> str:
    """The figures as a table."""
    rows: list[list[str]] = []
    for name, by_scorer in found.items():
        wrong = sum(solution.first_error is not None for solution in sets[name])
        for scorer, figures in by_scorer.items():
            about = f"{name}: {wrong} wrong, {len(sets[name]) - wrong} right"
            f1 = figures.f1.in_percent if figures.f1 else "–"
            rows.append([about, scorer, _shown(figures.matched), _shown(figures.auroc), f1])
    return table(COLUMNS, rows)


def _shown(share: Share) -> str:
    return f"{share.mean:.3f} ({share.low:.3f}–{share.high:.3f})"
