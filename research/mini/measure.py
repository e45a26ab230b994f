"""Evaluates the embedded model on problems that it has never seen."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import Progress
from rich.table import Table
from sklearn.metrics import roc_auc_score

from research.mini.checker import first_error
from training.evaluate.best_of_n import STUDIED, right_share
from training.evaluate.judging import JudgedCandidates
from training.evaluate.metrics import FirstErrorFigures, Share, percent
from unprm import steps
from unprm.answers.extraction import extract
from unprm.checkpoints.files import load_base, read_tokenizer
from unprm.mini.domain import Problem
from unprm.mini.storyteller import generate
from unprm.models.load import load_engine

from .sample import sample

TEMPERATURE = 0.8
CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class MiniFigures:
    """Held-out figures: `votes[strategy]` is the accuracy of the vote among `CANDIDATES` solutions."""

    problems: int
    solutions: int
    steps: int
    right: Share
    step_auroc: float
    f1: float
    first_error_found: float
    right_left_alone: float
    votes: dict[str, Share]

    def table(self) -> Table:
        table = Table(title=f"unprm-mini on {self.problems} new problems, {self.solutions} sampled solutions")
        table.add_column("measure")
        table.add_column("value", justify="right")
        table.add_row(f"one solution at temperature {TEMPERATURE}, right (%)", self.right.in_percent)
        table.add_row(f"step AUROC ({self.steps} steps)", f"{self.step_auroc:.3f}")
        table.add_row("first-error F1 (ProcessBench's definition)", f"{100 * self.f1:.1f}")
        table.add_row("  wrong solutions: first error found", percent(self.first_error_found))
        table.add_row("  right solutions: left alone", percent(self.right_left_alone))
        for name, share in self.votes.items():
            table.add_row(f"{name} among {CANDIDATES}, right (%)", share.in_percent)
        return table


@dataclass(frozen=True, slots=True)
class _Scored:
    problem: Problem
    step_scores: tuple[float, ...]
    actual: int | None
    answer: str | None

    @property
    def right(self) -> bool:
        return self.answer == str(self.problem.answer)


def measure(base: Path, prm: str, problems: int, seed: str, progress: Progress) -> MiniFigures:
    """Samples `CANDIDATES` solutions for each of `problems` new problems from the generator in `base`, and scores them
    with the model `prm` (as for `load_engine`)."""
    rng = random.Random(seed)
    chosen = [generate(rng) for _ in range(problems)]
    repeated = [problem for problem in chosen for _ in range(CANDIDATES)]
    groups = list(_score(prm, chosen, _sample(base, repeated, progress), progress))
    scored = [solution for group in groups for solution in group]
    labels = [s.actual is None or k < s.actual for s in scored for k in range(len(s.step_scores))]
    values = [value for s in scored for value in s.step_scores]
    first_errors = FirstErrorFigures.of([steps.first_error(s.step_scores) for s in scored], [s.actual for s in scored])
    judged = list(map(_judged, groups))
    return MiniFigures(
        problems=problems,
        solutions=len(scored),
        steps=len(labels),
        right=Share.of([sum(s.right for s in group) / CANDIDATES for group in groups]),
        step_auroc=float(roc_auc_score(labels, values)),
        f1=first_errors.f1,
        first_error_found=first_errors.erroneous,
        right_left_alone=first_errors.correct,
        votes={
            strategy: Share.of([right_share(strategy, group, range(len(group.classes))) for group in judged])
            for strategy in STUDIED
        },
    )


def _sample(base: Path, problems: Sequence[Problem], progress: Progress) -> list[str]:
    model, tokenizer = load_base(base, torch.bfloat16), read_tokenizer(base)
    task = progress.add_task(f"sampling at temperature {TEMPERATURE}", total=len(problems))
    texts: list[str] = []
    for batch in sample(model, tokenizer, [problem.text for problem in problems], TEMPERATURE, seed=1):
        texts += batch
        progress.advance(task, len(batch))
    return texts


def _score(prm: str, chosen: Sequence[Problem], texts: Sequence[str], progress: Progress) -> Iterator[list[_Scored]]:
    """Yields the scored solutions of each problem; empty ones, which have no steps, are left out."""
    engine = load_engine(prm)
    task = progress.add_task("scoring", total=len(chosen))
    for number, problem in enumerate(chosen):
        solutions = [text for text in texts[number * CANDIDATES : (number + 1) * CANDIDATES] if text.strip()]
        split = [steps.split(text) for text in solutions]
        scored = engine.score([engine.format.encode(problem.text, parts) for parts in split])
        yield [
            _Scored(problem, scores.values, first_error(problem, parts), extract(text))
            for text, parts, scores in zip(solutions, split, scored, strict=True)
        ]
        progress.advance(task)


def _judged(group: Sequence[_Scored]) -> JudgedCandidates:
    """A problem's solutions as votes use them; in this domain, answers are equal if their digits are."""
    names = {answer: name for name, answer in enumerate(dict.fromkeys(s.answer for s in group if s.answer))}
    classes = tuple(names.get(s.answer or "") for s in group)
    rewards = tuple(steps.reward(s.step_scores) for s in group)
    return JudgedCandidates(group[0].problem.text, classes, tuple(s.right for s in group), rewards)
