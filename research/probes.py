"""How well a frozen base's states show first errors, by layer.

All of it is read from the states that training a probe kept, of its own data and of ProcessBench's solutions, so it
takes minutes and no pass of the base.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from training import resumable
from training.evaluate import processbench
from training.evaluate.metrics import Estimate, in_markdown
from training.prm import probe
from training.prm.probe import Array, ProbeTrainer
from unprm.calibration import sigmoid
from unprm.errors import ModelInvalid

from . import steps
from .auroc import auroc
from .steps import SetScores

PROBE, SURPRISE, SUM = "the probe", "four figures of surprisal, fitted", "sum of surprisals"
DIFFERENCES = ("solutions", "the probe, less", "AUROC, like length and place")
SINGLE = ("read from", "log-loss on other problems of its data")


def write(trainer: ProbeTrainer, output: Path, console: Console) -> str:
    """Writes `steps.md` of the probe and what needs no probe, `differences.md` and `readouts.md`; returns the tables.

    `trainer`: of a probe. Raises `ModelInvalid` if its training has not ended.
    """
    held_out = HeldOut(trainer)
    if trainer.states.missing or held_out.states.missing:
        raise ModelInvalid(f"the training of {trainer.settings.output} has not ended: repeat its command")
    features, others = trainer.states.features, held_out.states.features
    right, problems = trainer.states.right, trainer.states.problems
    seed = trainer.settings.seed
    folds = probe.split(right, problems, seed)

    def alone(columns: Array, held_out_columns: Array) -> tuple[float, SetScores]:
        crossed = probe.cross_fitted(columns, right, folds)
        weight, bias = probe.regressed(columns, right, crossed.strength)
        return crossed.log_loss, held_out.scores(held_out_columns.astype(np.float64) @ weight + bias)

    console.print("each layer")
    loss, surprise = alone(features.measures, others.measures)
    losses, layers = {SURPRISE: loss}, dict[int, SetScores]()
    for layer in features.layers:
        losses[f"layer {layer}"], layers[layer] = alone(features.of(layer), others.of(layer))
    console.print("the probe, and intervals")
    sums = others.measures[:, trainer.config.measures.index("surprisal_sum")]
    known = {
        PROBE: held_out.scores(probe.fit(features, right, problems, seed).probe.margins(others)),
        SURPRISE: surprise,
        SUM: held_out.scores(-sums),
        **steps.baselines(held_out.sets),
    }
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


def _differences(held_out: HeldOut, known: Mapping[str, SetScores]) -> Iterator[list[str]]:
    """The rows of `DIFFERENCES`: of each set, by how much the probe beats each other score, over the same questions."""
    for name in held_out.sets:
        probe = held_out.matched(name, known[PROBE])
        for other, scores in known.items():
            if other != PROBE:
                less = (probe - held_out.matched(name, scores)).interval()
                yield [name, other, f"{less.mean:+.3f} ({less.low:+.3f} to {less.high:+.3f})"]
