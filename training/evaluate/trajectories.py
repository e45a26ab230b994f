"""Trajectories of agents with human labels of their steps: does a verifier judge steps as people do, and does it find
the best of several trajectories of a task?

Labels are those of AgentProcessBench (arXiv 2603.14465): 1 for a step that moves the task forward, 0 for one that
neither helps nor harms, -1 for a wrong one. A score stands for a label by thirds: below 1/3 for -1, above 2/3 for 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np
from rich.console import Console

from unprm import steps
from unprm.trajectories import Message, Reading, render
from unprm.types import Aggregate

from .. import sources
from .metrics import Estimate, Numbers, Share, in_markdown
from .scorers import Scorer, score_benchmark

Label = Literal[-1, 0, 1]
Verdicts = Sequence[float]
"""Scores in [0, 1] of a trajectory's labelled steps, in the order of their labels."""
AGGREGATES: tuple[Aggregate, ...] = ("min", "mean", "last", "product")
PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class JudgeLabels:
    """A judge's labels of a trajectory's steps; None where it gave none."""

    steps: dict[str, Label | None]


@dataclass(frozen=True, slots=True)
class LabelledTrajectory:
    """One trajectory of the task `query`. `step_labels`: by the index of an assistant message. `final_label`: whether
    it solved the task. `judges`: recorded labels by judge. `messages`: needed only to score it here.

    Raises `ValueError` without labels, and for a judge's labels of other steps."""

    id: str
    query: str
    step_labels: dict[str, Label]
    final_label: Label
    judges: dict[str, JudgeLabels] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.step_labels:
            raise ValueError("step_labels is empty")
        for name, judged in self.judges.items():
            if judged.steps.keys() != self.step_labels.keys():
                raise ValueError(f"{name} judges other steps than step_labels")


class Rendering(NamedTuple):
    """A trajectory as a PRM reads it."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifierFigures:
    """Of one verifier. `steps`: share of the steps with the label that people gave; `first`: share of the trajectories
    whose first wrong step is found, or that have none and none is found; `best`: by aggregate, how often the trajectory
    with the highest reward solved its task, where equal ones share."""

    steps: Share
    first: Share
    best: Mapping[Aggregate, Share]


def read_trajectories(path: Path) -> list[LabelledTrajectory]:
    """The trajectories of a file. Raises `RecordInvalid`."""
    return sources.unique(path, sources.numbered(path, LabelledTrajectory))


def recorded(trajectories: Sequence[LabelledTrajectory]) -> Mapping[str, Mapping[str, Verdicts]]:
    """Scores by verifier and trajectory: those of people, and those of each judge that labelled all trajectories."""
    names = set.intersection(*(set(each.judges) for each in trajectories))
    by_people = {PEOPLE: {each.id: _scores(each.step_labels.values()) for each in trajectories}}
    return by_people | {
        name: {each.id: _scores(map(each.judges[name].steps.get, each.step_labels)) for each in trajectories}
        for name in sorted(names)
    }


def score(
    trajectories: Sequence[LabelledTrajectory], scorer: Scorer, reading: Reading, output: Path, console: Console
) -> Mapping[str, Verdicts]:
    """A PRM's scores of the labelled steps, kept in `output`, where the same call goes on. A step without a score,
    because the trajectory is too long, counts 0.5. Raises `OutputMismatch` as `score_benchmark`."""
    rendered = {each.id: render(each.messages, reading) for each in trajectories}
    subsets = {"trajectories": [Rendering(name, one.problem, one.steps) for name, one in rendered.items()]}
    (of_trajectories,) = score_benchmark(
        "trajectories", subsets, Rendering._asdict, scorer, output, console, reading.evidence
    ).values()
    made = {}
    for each in trajectories:
        scores = dict(zip(map(str, rendered[each.id].messages), of_trajectories[each.id] or (), strict=False))
        made[each.id] = [scores.get(index, 0.5) for index in each.step_labels]
    return made


def measure(trajectories: Sequence[LabelledTrajectory], scores: Mapping[str, Verdicts]) -> VerifierFigures:
    """A verifier's figures, with 95 % intervals over tasks. `scores`: by trajectory, of the labelled steps."""
    groups = _by_task(trajectories)
    same, first = [], []
    for group in groups:
        pairs = [(scores[each.id], _scores(each.step_labels.values())) for each in group]
        same.append([_third(a) == _third(b) for pair in pairs for a, b in zip(*pair, strict=True)])
        first.append([steps.first_error(found, 1 / 3) == steps.first_error(known, 1 / 3) for found, known in pairs])
    best = {name: Estimate.mean(_solved(groups, scores, name)).share for name in AGGREGATES}
    return VerifierFigures(_share(same), _share(first), best)


def against_min(
    trajectories: Sequence[LabelledTrajectory], verifiers: Iterable[Mapping[str, Verdicts]]
) -> dict[Aggregate, Share]:
    """How many more trajectories that solve their tasks each aggregate elects than `min`, as shares of the tasks in
    [-1, 1]: the mean over verifiers, with its interval over tasks."""
    groups, known = _by_task(trajectories), list(verifiers)
    mean = {name: np.mean([_solved(groups, scores, name) for scores in known], axis=0) for name in AGGREGATES}
    return {name: Estimate.mean(each - mean["min"]).interval() for name, each in mean.items() if name != "min"}


def bounds(trajectories: Sequence[LabelledTrajectory]) -> tuple[float, float]:
    """How often a trajectory drawn at random solves its task, and how often any does."""
    groups = [[each.final_label == 1 for each in group] for group in _by_task(trajectories)]
    return fmean(map(fmean, groups)), fmean(map(any, groups))


def table(trajectories: Sequence[LabelledTrajectory], figures: Mapping[str, VerifierFigures]) -> str:
    lowest, highest = bounds(trajectories)
    columns = ["verifier", "steps", "first error", *(f"best by {name}" for name in AGGREGATES)]
    rows = [
        [name, *(share.in_percent for share in (each.steps, each.first, *each.best.values()))]
        for name, each in figures.items()
    ]
    return (
        f"{in_markdown(columns, rows, names=1)}\n{len(trajectories)} trajectories of {len(_by_task(trajectories))} "
        f"tasks. One drawn at random solves its task in {100 * lowest:.1f} %, any of them in {100 * highest:.1f} %.\n"
    )


def _by_task(trajectories: Sequence[LabelledTrajectory]) -> list[list[LabelledTrajectory]]:
    groups: dict[str, list[LabelledTrajectory]] = {}
    for each in trajectories:
        groups.setdefault(each.query, []).append(each)
    return list(groups.values())


def _solved(
    groups: Sequence[Sequence[LabelledTrajectory]], scores: Mapping[str, Verdicts], aggregate: Aggregate
) -> Numbers:
    """For each task, how often the trajectory with the highest reward solves it; equal ones share."""
    solved = []
    for group in groups:
        rewards = [steps.reward(scores[each.id], aggregate) for each in group]
        top = max(rewards)
        solved.append(fmean(each.final_label == 1 for each, k in zip(group, rewards, strict=True) if k == top))
    return np.array(solved)


def _share(outcomes: Sequence[Sequence[bool]]) -> Share:
    return Estimate.ratio(*np.array([(sum(group), len(group)) for group in outcomes], dtype=float).T).share


def _scores(labels: Iterable[Label | None]) -> list[float]:
    return [0.5 if label is None else (label + 1) / 2 for label in labels]


def _third(score: float) -> Label:
    return -1 if score < 1 / 3 else 1 if score > 2 / 3 else 0
