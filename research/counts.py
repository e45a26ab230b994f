"""What counts of rollouts teach, where the truth is known: step scores and intervals against the exact share of right
rollouts, and the least mean of a solution's steps against the least lower end as its reward.

Simulated authors of varying carelessness, which no text tells, write solutions of the embedded model's domain, and
finish them from every step on. Two PRMs learn from the same rollouts: their shares as soft labels, and their counts.
"""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import Progress

from training import resumable
from training.evaluate.metrics import Share
from training.evaluate.vote_results import in_markdown
from training.prm.train import Trainer
from training.prm.train_settings import LossName
from training.schema import LabelledSolution, Trial
from unprm import mini
from unprm.calibration import EDGE
from unprm.formats.unprm import CONFIG_NAME
from unprm.mini.domain import Problem, write_steps
from unprm.mini.storyteller import generate
from unprm.models.load import load_engine
from unprm.types import StepScores

from .mini.pipeline import prm_settings
from .mini.slips import Author

CARELESS = (0.5, 2.0)
EXACT = 1000
"""Rollouts whose share stands for the exact value."""
NEAR = 0.02
"""An interval this near to that share has it: so inexact is the share."""
LOSSES: tuple[LossName, ...] = ("bce", "beta-binomial")
COLUMNS = ("loss", "Brier", "log-loss", "exact share within 90 %, in %", "width", "best by min of means, right in %",
           "by min of lows")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers: solutions to learn from, rollouts from each of their steps, held-out problems, candidates of each."""

    solutions: int = 600
    rollouts: int = 8
    problems: int = 100
    candidates: int = 8


@dataclass(frozen=True, slots=True)
class Written:
    """A solution, and for each of its steps the share of the rollouts from there that are right; after the last step,
    whether the solution is."""

    problem: Problem
    steps: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def by_author(cls, rng: random.Random, problem: Problem, rollouts: int) -> "Written":
        author = Author(rng, rng.uniform(*CARELESS))
        lines, beliefs = zip(*author.write(problem), strict=True)
        shares = (sum(author.finishes(problem, after) for _ in range(rollouts)) / rollouts for after in beliefs)
        return cls(problem, tuple(write_steps(lines, beliefs[-1][len(problem.operations) - 1])), tuple(shares))

    def labelled(self, rollouts: int) -> LabelledSolution:
        counts = [(step, share, round(share * rollouts)) for step, share in enumerate(self.shares, 1)]
        tried = tuple(Trial(step, "", share, rollouts, right, 0) for step, share, right in counts)
        return LabelledSolution(self.problem.text, self.steps, self.shares, tried=tried)


def measure(output: Path, size: Size, progress: Progress) -> str:
    """Trains both PRMs in `output`, unless they are there, and writes and returns the table of their figures."""
    rng = random.Random("counts")
    written = (Written.by_author(rng, generate(rng), size.rollouts) for _ in range(size.solutions))
    resumable.write_lines(data := output / "steps.jsonl", [each.labelled(size.rollouts) for each in written])
    held_out = [
        Written.by_author(rng, problem, 1 if candidate else EXACT)
        for problem in [generate(rng) for _ in range(size.problems)]
        for candidate in range(size.candidates)
    ]
    rows = []
    for loss in LOSSES:
        if not (output / loss / CONFIG_NAME).exists():
            changes = {"loss": loss, "head": "classes", "epochs": 2, "batch_size": 16, "batch_tokens": 4096}
            Trainer(prm_settings(mini.BASE, [data], output / loss, loss, 0, **changes)).train(progress)
        with closing(load_engine(str(output / loss), device="cpu")) as engine:
            scored = engine.score([engine.format.encode(each.problem.text, each.steps) for each in held_out])
        rows.append([loss, *figures(scored, held_out, size.candidates)])
    resumable.replace(output / "counts.md", made := in_markdown(COLUMNS, rows, names=1))
    return made


def figures(scored: Sequence[StepScores], held_out: Sequence[Written], candidates: int) -> list[str]:
    """Figures of `COLUMNS`: on the steps of each problem's first candidate, and of the best of its `candidates`."""
    first = slice(None, None, candidates)
    exact, mean = (
        np.concatenate(each) for each in ([w.shares for w in held_out[first]], [each.values for each in scored[first]])
    )
    likely = np.clip(mean, EDGE, 1 - EDGE)
    log_loss = -np.mean(exact * np.log(likely) + (1 - exact) * np.log1p(-likely))
    of_means = [f"{np.mean((mean - exact) ** 2):.4f}", f"{log_loss:.4f}"]
    by_mean = _best(held_out, [min(each.values) for each in scored], candidates)
    intervals = [each.intervals for each in scored if each.intervals is not None]
    if not intervals:
        return [*of_means, "–", "–", by_mean, "–"]
    low, high = np.array([(each.low, each.high) for around in intervals[first] for each in around]).T
    inside = float(np.mean((low - NEAR <= exact) & (exact <= high + NEAR)))
    by_low = _best(held_out, [min(each.low for each in around) for around in intervals], candidates)
    return [*of_means, f"{100 * inside:.1f}", f"{np.mean(high - low):.3f}", by_mean, by_low]


def _best(held_out: Sequence[Written], rewards: Sequence[float], candidates: int) -> str:
    best = np.reshape(rewards, (-1, candidates)).argmax(axis=1)
    right = np.reshape([each.shares[-1] for each in held_out], (-1, candidates))
    return Share.of(right[np.arange(len(best)), best].tolist()).in_percent
