"""How well a frozen base's states show first errors: by layer, and by how many labels a probe is fitted to.

All of it is read from the states that training a probe kept, of its own data and of ProcessBench's solutions, so it
takes minutes and no pass of the base.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from training import resumable
from training.evaluate import processbench
from training.evaluate.bootstrap import Estimate
from training.evaluate.vote_results import in_markdown
from training.prm import probe_fit
from training.prm.probe import ProbeTrainer
from training.prm.probe_fit import Array, Features
from unprm.calibration import sigmoid
from unprm.errors import ModelInvalid

from . import steps
from .auroc import auroc
from .report.drawing import legend, line, picture, styles
from .steps import SetScores

PARTS = 16, 8, 4, 2
"""What smaller probes are fitted to: one of so many steps."""
ALL, PROBLEMS, STEPS, SURPRISING = "all", "some problems", "every problem, some", "every problem, the most surprising"
CHOICES = (PROBLEMS, STEPS, SURPRISING)
"""How their steps are chosen; the last is the paper's way, section 3.2."""
PROBE, SURPRISE, SUM = "the probe", "four figures of surprisal, fitted", "sum of surprisals"
DIFFERENCES = ("solutions", "the probe, less", "AUROC, like length and place")
SINGLE = ("read from", "log-loss on other problems of its data")


def write(trainer: ProbeTrainer, output: Path, console: Console) -> str:
    """Writes `steps.md` of the probe and what needs no probe, `differences.md`, `readouts.md`, `labels.md` and the
    figure `probe.png`; returns the tables.

    `trainer`: of a probe. Raises `ModelInvalid` if its training has not ended, or a part of its problems allows no fit.
    """
    held_out = HeldOut(trainer)
    if any(each.reserve() < each.count for each in (trainer.states, held_out.states)):
        raise ModelInvalid(f"the training of {trainer.settings.output} has not ended: repeat its command")
    features, others = trainer.states.features, held_out.states.features
    right, problems = trainer.states.right, trainer.states.problems
    seed = trainer.settings.seed
    folds = probe_fit.split(right, problems, seed)

    def alone(columns: Array, held_out_columns: Array) -> tuple[float, SetScores]:
        crossed = probe_fit.cross_fitted(columns, right, folds)
        weight, bias = probe_fit.regressed(columns, right, crossed.strength)
        return crossed.log_loss, held_out.scores(held_out_columns.astype(np.float64) @ weight + bias)

    def fit(rows: Sequence[int]) -> SetScores:
        fewer = Features(features.layers, features.states[:, rows], features.measures[rows])
        made = probe_fit.fit(fewer, right[rows], [problems[row] for row in rows], seed)
        return held_out.scores(made.probe.margins(others))

    console.print("each layer")
    loss, surprise = alone(features.measures, others.measures)
    losses, layers = {SURPRISE: loss}, dict[int, SetScores]()
    for layer in features.layers:
        losses[f"layer {layer}"], layers[layer] = alone(features.of(layer), others.of(layer))
    console.print("smaller probes, and the whole one")
    surprising = features.measures[:, trainer.config.measures.index("surprisal_mean")]
    kept = {ALL: {1: list(range(len(right)))}} | {
        choice: {part: _chosen(choice, problems, surprising, part, seed) for part in PARTS} for choice in CHOICES
    }
    fitted = {choice: {len(rows): fit(rows) for rows in parts.values()} for choice, parts in kept.items()}
    (whole,) = fitted[ALL].values()
    console.print("intervals")
    sums = others.measures[:, trainer.config.measures.index("surprisal_sum")]
    known = {
        PROBE: whole,
        SURPRISE: surprise,
        SUM: held_out.scores(-sums),
        **steps.baselines(held_out.sets),
    }
    figure(
        held_out, layers, {each: by | fitted[ALL] for each, by in fitted.items() if each != ALL}, output / "probe.png"
    )
    made = {
        "differences.md": in_markdown(DIFFERENCES, list(_differences(held_out, known)), names=2),
        "readouts.md": in_markdown(
            (*SINGLE, *held_out.sets),
            [
                [name, f"{loss:.3f}", *held_out.shown(scores)]
                for (name, loss), scores in zip(losses.items(), (surprise, *layers.values()), strict=True)
            ],
            names=1,
        ),
        "labels.md": in_markdown(
            ("labels of", "labels", *held_out.sets),
            [
                [choice, f"{count:,}", *held_out.shown(scores)]
                for choice, by_count in fitted.items()
                for count, scores in by_count.items()
            ],
            names=1,
        ),
    }
    for name, table in made.items():
        resumable.replace(output / name, table)
    return "\n".join([steps.write(held_out.sets, known, output), *made.values()])


class HeldOut:
    """The solutions that a probe was not fitted to: `sets` of ProcessBench, up to their first errors."""

    def __init__(self, trainer: ProbeTrainer) -> None:
        assert trainer.held_out
        self.states = trainer.held_out
        self.sets = {
            name: [steps.until_error(each) for each in solutions]
            for path in trainer.settings.validation
            for name, solutions in processbench.load_processbench(str(path)).items()
        }
        form = trainer.format
        self._ids = {
            each.id: form.encode(each.problem.strip(), [step.strip() for step in each.steps]).ids
            for kept in self.sets.values()
            for each in kept
        }

    def scores(self, margins: Array) -> SetScores:
        """The scores of each solution's steps; `margins`: log-odds of all steps, as their features are ordered."""
        values = iter(map(sigmoid, margins.tolist()))
        by_ids = {each.encoded.ids: tuple(next(values) for _ in each.labels) for each in self.states.examples}
        return {name: {each.id: by_ids[self._ids[each.id]] for each in kept} for name, kept in self.sets.items()}

    def matched(self, name: str, scores: SetScores) -> Estimate:
        """The share of pairs of a first wrong step and a right one of a set that scores tell apart, among those of like
        length at the same place."""
        return auroc(steps.scored_steps(self.sets[name], scores[name]), matched=True)

    def shown(self, scores: SetScores) -> Iterator[str]:
        """Those shares of each set, with their intervals."""
        return (steps.shown(self.matched(name, scores).share) for name in self.sets)


def _chosen(choice: str, problems: Sequence[str], surprising: Array, part: int, seed: int) -> list[int]:
    """One of `part` steps, by the choice's name: all of some problems, or some of every problem."""
    drawn = Random(seed)
    if choice == PROBLEMS:
        names = sorted(set(problems))
        drawn.shuffle(names)
        taken = set(names[: len(names) // part])
        return [row for row, problem in enumerate(problems) if problem in taken]
    order = drawn.sample(range(len(problems)), len(problems)) if choice == STEPS else np.argsort(-surprising).tolist()
    by_problem: dict[str, list[int]] = {}
    for row in order:
        by_problem.setdefault(problems[row], []).append(row)
    return sorted(row for rows in by_problem.values() for row in rows[: -(-len(rows) // part)])


def _differences(held_out: HeldOut, known: Mapping[str, SetScores]) -> Iterator[list[str]]:
    """The rows of `DIFFERENCES`: of each set, by how much the probe beats each other score, over the same questions."""
    for name in held_out.sets:
        probe = held_out.matched(name, known[PROBE])
        for other, scores in known.items():
            if other != PROBE:
                less = (probe - held_out.matched(name, scores)).interval()
                yield [name, other, f"{less.mean:+.3f} ({less.low:+.3f} to {less.high:+.3f})"]


def figure(
    held_out: HeldOut,
    layers: Mapping[int, SetScores],
    labels: Mapping[str, Mapping[int, SetScores]],
    path: Path,
) -> None:
    """Writes the curve by layer, and those by number of labels, one for each way in which they were chosen, as PNG: a
    row for each set."""
    by_layer = {"one layer": layers}
    look = dict(zip((*by_layer, *labels), styles(len(by_layer) + len(labels)), strict=True))

    def draw(drawn: Figure) -> None:
        handles: dict[str, object] = {}
        rows = drawn.subplots(len(held_out.sets), 2, sharey=True, squeeze=False)
        for (left, right), name in zip(rows, held_out.sets, strict=True):
            for axes, curves in ((left, by_layer), (right, labels)):
                for key, by_place in curves.items():
                    shares = {place: held_out.matched(name, scores).share for place, scores in by_place.items()}
                    handles[key] = line(axes, shares, **look[key])
            left.set_xticks(list(layers))
            right.set_xscale("log")
            right.xaxis.set_major_formatter("{x:,.0f}")
            left.set_title(f"{name}: one layer")
            right.set_title(f"{name}: a probe of up to four")
        rows[-1][0].set_xlabel("layer")
        rows[-1][1].set_xlabel("labelled steps that it is fitted to")
        legend(drawn, handles)

    title = "First errors told from right steps of like length at the same place (AUROC)"
    picture(path, title, "", 8, draw)
