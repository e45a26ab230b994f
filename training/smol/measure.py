"""What the PRM knows, beside what is known without it: the length and the place of a step, and how likely the language
model finds it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from unprm.answers.equivalence import Equivalence
from unprm.models.checkpoint import fetch
from unprm.models.load import load_engine

from .. import resumable, sources
from ..evaluate import best_of_n, pool, processbench
from ..evaluate.metrics import Share, percent
from ..evaluate.scorers import EngineScorer
from ..schema import BenchmarkSolution, SampledQuestion, Scores
from .auroc import ScoredSteps, auroc
from .pipeline import Study, judge
from .settings import SmolSettings
from .surprisal import LikelihoodScorer

PRM = "unprm-smol"
EASY, GSM8K = "easy", "gsm8k"
_METRE = 100.0
"""Characters over which the score of a step's length falls by a factor of e: thresholds are in [0, 1]."""
AllScores = Mapping[str, Mapping[str, Mapping[str, Scores]]]
"""Scores by scorer, set and solution."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one scorer on one set. `matched`, `auroc`: of first wrong steps against right ones, within pairs of like length
    at the same place and over all pairs. `f1`: of first errors at the `threshold` chosen on another set, with its
    interval; None if all solutions are wrong."""

    matched: Share
    auroc: Share
    f1: Share | None
    threshold: float


def measure(study: Study) -> dict[str, dict[str, Figures]]:
    """The figures by set and scorer, written to `measured.json` and `measured.md`; and the votes, to `votes`."""
    output, console = study.output, study.console
    sets = test_sets(study)
    scores: dict[str, dict[str, dict[str, Scores]]] = {
        "length of the step": _given(sets, lambda steps: [2.0 ** (-len(step) / _METRE) for step in steps]),
        "place of the step": _given(sets, lambda steps: [0.9**place for place in range(len(steps))]),
    }
    for name, place in (("SmolLM2", fetch(SmolSettings().reasoner(output).base, None)), ("reasoner", output / "reasoner" / "model")):
        scorer = LikelihoodScorer(place, name)
        scores[f"likelihood, {name}"] = processbench.score(sets, scorer, output / "scores" / name, console)
    with closing(load_engine(str(output / "prm"))) as engine, Equivalence() as equivalence:
        prm = EngineScorer(engine)
        scores[PRM] = processbench.score(sets, prm, output / "scores" / PRM, console)
        for name in study.candidates:
            questions = pool.load(output / f"candidates-{name}.jsonl")
            best_of_n.evaluate(questions, prm, equivalence, output / "votes" / name, console)
    found = {name: {scorer: _figures(sets, name, scores[scorer]) for scorer in scores} for name in sets}
    resumable.replace(output / "measured.json", json.dumps(_plain(found), indent=2) + "\n")
    resumable.replace(output / "measured.md", markdown(sets, found))
    return found


def test_sets(study: Study) -> dict[str, list[BenchmarkSolution]]:
    """Solutions with their first errors: the reasoner's of held-out questions, and those that people labelled."""
    sets = {
        name: list(_judged(study.output / f"candidates-{name}.jsonl", {q.id: q for q in questions}))
        for name, questions in study.candidates.items()
    }
    others = {"processbench": study.data.processbench, "teachers": study.data.teachers}
    return sets | {name: solutions for name, solutions in others.items() if solutions}


def _judged(path: Path, questions) -> Iterator[BenchmarkSolution]:
    for sampled in sources.read(path, SampledQuestion):
        for number, (steps, wrong) in enumerate(judge(questions[sampled.id], sampled)):
            yield BenchmarkSolution(
                f"{sampled.id}#{number}", sampled.problem, steps, -1 if wrong is None else wrong
            )


def _given(sets, of) -> dict[str, dict[str, Scores]]:
    return {
        name: {solution.id: tuple(of(solution.steps)) for solution in solutions} for name, solutions in sets.items()
    }


def scored(solutions: Sequence[BenchmarkSolution], scores: Mapping[str, Scores]) -> list[ScoredSteps]:
    """The scored steps of solutions up to their first errors; those that no model could score are left out."""
    made = []
    for solution in solutions:
        values, error = scores[solution.id], solution.first_error
        if values is not None:
            end = len(solution.steps) if error is None else error + 1
            lengths = tuple(len(step) for step in solution.steps[:end])
            made.append(ScoredSteps(solution.problem, values[:end], lengths, error is not None))
    return made


def _figures(sets, name, scores) -> Figures:
    chosen = GSM8K if name == EASY else EASY
    threshold = processbench.best_threshold(sets[chosen], scores[chosen])
    steps = scored(sets[name], scores[name])
    f1 = None
    if any(solution.first_error is None for solution in sets[name]):
        made = processbench.figures(sets[name], scores[name], threshold)
        f1 = Share(made.f1, made.f1_low, made.f1_high)
    return Figures(auroc(steps, True).share, auroc(steps, False).share, f1, threshold)


def _plain(found) -> object:
    return {name: {scorer: asdict(figures) for scorer, figures in row.items()} for name, row in found.items()}


def markdown(sets, found) -> str:
    """The figures as a table."""
    lines = ["| solutions | score | AUROC, like length and place | AUROC, all pairs | F1 of first errors |", "|---|---|--:|--:|--:|"]
    for name, row in found.items():
        wrong = sum(solution.first_error is not None for solution in sets[name])
        counts = f"{name}: {wrong} wrong, {len(sets[name]) - wrong} right"
        for scorer, figures in row.items():
            f1 = figures.f1.in_percent if figures.f1 else "–"
            lines.append(f"| {counts} | {scorer} | {_shown(figures.matched)} | {_shown(figures.auroc)} | {f1} |")
            counts = ""
    return "\n".join(lines) + "\n"


def _shown(share: Share) -> str:
    return f"{share.mean:.3f} ({share.low:.3f}–{share.high:.3f})"
