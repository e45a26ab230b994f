"""What step scores know of the first error of a solution, beside what is known without a PRM: the length and the place
of a step, and how likely an untrained language model finds it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from training import resumable
from training.evaluate import processbench
from training.evaluate.metrics import Share, in_markdown
from training.evaluate.scorers import Scorer
from training.schema import BenchmarkSolution, Scores

from . import recorded_scores
from .auroc import ScoredSteps, auroc

_FALL = 100.0
"""Characters over which the score of a step's length falls by half: thresholds are in [0, 1]."""
COLUMNS = ("solutions", "score", "F1 at 0.5", "F1, threshold of the other set", "AUROC, like length and place")
Sets = Mapping[str, Sequence[BenchmarkSolution]]
SetScores = Mapping[str, Mapping[str, Scores]]
"""Scores by set and solution."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Of one score on one set. `f1`: of first errors at 0.5; `transferred`: at the `threshold` that is best on the
    other set. `matched`: the share of pairs of a first wrong step and a right one, of like length at the same place,
    that the score tells apart."""

    f1: Share
    transferred: Share
    threshold: float
    matched: Share


def load_sets(data: str, recorded: Sequence[Path]) -> tuple[dict[str, list[BenchmarkSolution]], dict[str, SetScores]]:
    """ProcessBench's solutions up to their first errors, by subset, and published PRMs' scores of them: where scores
    are recorded, only the solutions that have them. Errors as in `load_processbench` and `recorded_scores.read`."""
    known = recorded_scores.read(recorded) if recorded else {}
    sets = {}
    for name, solutions in processbench.load_processbench(data).items():
        kept = {row.id for row in known[name]} if name in known else {each.id for each in solutions}
        if not known or name in known:
            sets[name] = [until_error(each) for each in solutions if each.id in kept]
    models = next(iter(known.values()))[0].scores if known else ()
    return sets, {
        model: {name: recorded_scores.scores_of(model, rows) for name, rows in known.items()} for model in models
    }


def until_error(solution: BenchmarkSolution) -> BenchmarkSolution:
    """The solution without the steps after its first error, which nothing is measured of."""
    return replace(solution, steps=solution.steps[: solution.label + 1]) if solution.label >= 0 else solution


def baselines(sets: Sets) -> dict[str, SetScores]:
    """Scores that need no model."""
    return {
        "length of the step": _by_steps(sets, lambda steps: [2.0 ** (-len(step) / _FALL) for step in steps]),
        "place of the step": _by_steps(sets, lambda steps: [0.9**place for place in range(len(steps))]),
    }


def score(sets: Sets, scorer: Scorer, output: Path, console: Console) -> SetScores:
    """A model's scores, kept in `output`, where the same call goes on. Raises `OutputMismatch`."""
    return processbench.score(sets, scorer, output, console)


def write(sets: Sets, scores: Mapping[str, SetScores], output: Path) -> str:
    """Writes the figures by set and score, `steps.json` and `steps.md`; returns the table.

    With a single set there is no threshold of another: that of 0.5 stands for it.
    """
    output.mkdir(parents=True, exist_ok=True)
    by_set = {name: {scorer: _figures(sets, name, given) for scorer, given in scores.items()} for name in sets}
    plain = {name: {scorer: asdict(figures) for scorer, figures in row.items()} for name, row in by_set.items()}
    resumable.replace(output / "steps.json", json.dumps(plain, indent=2) + "\n")
    rows = []
    for name, by_scorer in by_set.items():
        wrong = sum(solution.first_error is not None for solution in sets[name])
        about = f"{name}: {wrong} wrong, {len(sets[name]) - wrong} right"
        for scorer, made in by_scorer.items():
            transferred = f"{made.transferred.in_percent} at {made.threshold:.2f}"
            rows.append([about, scorer, made.f1.in_percent, transferred, shown(made.matched)])
    made_table = in_markdown(COLUMNS, rows, names=1)
    resumable.replace(output / "steps.md", made_table)
    return made_table


def scored_steps(solutions: Sequence[BenchmarkSolution], scores: Mapping[str, Scores]) -> list[ScoredSteps]:
    """The steps of solutions up to their first errors; solutions without scores are left out."""
    made = []
    for solution in solutions:
        if (values := scores[solution.id]) is not None:
            error = solution.first_error
            end = len(solution.steps) if error is None else error + 1
            lengths = tuple(len(step) for step in solution.steps[:end])
            made.append(ScoredSteps(solution.problem, tuple(values[:end]), lengths, error is not None))
    return made


def _figures(sets: Sets, name: str, scores: SetScores) -> StepFigures:
    other = next((each for each in sets if each != name), None)
    threshold = processbench.best_threshold(sets[other], scores[other]) if other else processbench.THRESHOLD
    fixed, transferred = (
        processbench.figures(sets[name], scores[name], each) for each in (processbench.THRESHOLD, threshold)
    )
    matched = auroc(scored_steps(sets[name], scores[name]), matched=True).share
    return StepFigures(fixed.f1_share, transferred.f1_share, threshold, matched)


def _by_steps(sets: Sets, score: Callable[[Sequence[str]], Sequence[float]]) -> SetScores:
    return {
        name: {solution.id: tuple(score(solution.steps)) for solution in solutions} for name, solutions in sets.items()
    }


def shown(share: Share) -> str:
    """As text: `0.791 (0.736–0.838)`."""
    return f"{share.mean:.3f} ({share.low:.3f}–{share.high:.3f})"
