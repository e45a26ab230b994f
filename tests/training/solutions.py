"""Made-up records."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from training.schema import AnnotatedSolution, LabelledSolution, SelectedSolution, Trial


def learnable(count: int, seed: int = 0) -> Iterator[LabelledSolution]:
    """Solutions whose steps say whether they are right: learned in a few optimiser steps."""
    rng = random.Random(seed)
    for _ in range(count):
        labels = [rng.random() < 0.5 for _ in range(rng.randint(1, 4))]
        steps = [f"Step {k}: {rng.randint(1, 99)} is {'46' if label else '5'}." for k, label in enumerate(labels, 1)]
        yield LabelledSolution("Problem: what is 12?", tuple(steps), tuple(labels))


def annotated(*, tried: int = 0, samples: int = 8, **changed: Any) -> AnnotatedSolution:
    """A wrong solution of two steps, of whose steps `tried` were tried, from the second on, with `samples` each."""
    trials = tuple(Trial(step, f"p{step}", 0.0, samples, 0, 10 * samples) for step in range(2, tried + 2))
    solution = AnnotatedSolution(
        id="a", question="q", model="m", problem="Why?", gold_answer="1", steps=("So.", "Thus."), correct=False,
        tau=0.5, verified=tried, samples=tried * samples, tokens=10 * tried * samples, tried=trials,
    )  # fmt: skip
    return replace(solution, **changed)


def selected(**changed: Any) -> SelectedSolution:
    """A wrong solution of one step, without token ids."""
    solution = SelectedSolution(
        id="q/m/0", question="q", problem="1?", gold_answer="1", model="m", prompt=(), index=0, text="text", ids=(),
        logprobs=(), steps=("So.",), ends=(1,), predicted="2", correct=False, uncertainty=1.0, mean_step_uncertainty={},
    )  # fmt: skip
    return replace(solution, **changed)
