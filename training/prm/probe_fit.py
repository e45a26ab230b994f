"""Fits a probe: how right steps differ from wrong ones in a frozen base's hidden states, and in how surprised it is.

Of each layer, a ridge-regularised logistic regression, cross-fitted by problem; then one over those of the
chosen layers and the measures, on predictions for problems that they were not fitted to, so that a score is the
probability that such a step is right. All of it is linear, so it folds into one row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

from unprm.errors import ModelInvalid

from .train_settings import ReadoutRow

FOLDS = 5
"""Parts of the problems; each is predicted by what is fitted to the others."""
STRENGTHS = tuple(4.0**-power for power in range(-2, 6))
"""Of the regularisation: half of one of these times the squared norm of the coefficients, of standardised columns, is
added to the mean log-loss."""
MOST_LAYERS = 4
"""Layers that a probe reads at most."""
TOLERANCE = 1e-3
"""Largest gradient of the objective where a fit ends."""

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.bool_]
Folds = Sequence[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of labelled steps. `states`: mean hidden states, (layers, steps, hidden), float16. `layers`: their
    numbers. `measures`: figures of the log-probabilities, (steps, measures)."""

    layers: tuple[int, ...]
    states: npt.NDArray[np.float16]
    measures: Array

    def of(self, layer: int) -> Array:
        """The states of one layer, by its number: (steps, hidden), float32."""
        states: Array = self.states[self.layers.index(layer)].astype(np.float32)
        return states


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """A linear head on some `layers`, in float64: a step's margin is `token_weight`, (layers · hidden,), times its mean
    states, plus `measure_weight`, (measures,), times its measures, plus `bias`."""

    layers: tuple[int, ...]
    token_weight: Array
    measure_weight: Array
    bias: float

    def margins(self, features: Features) -> Array:
        """The log-odds of each step's being right, (steps,)."""
        margins = features.measures @ self.measure_weight + self.bias
        for layer, weight in zip(self.layers, np.split(self.token_weight, len(self.layers)), strict=True):
            margins = margins + features.of(layer) @ weight
        return np.asarray(margins, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """How well a regression predicts problems that it was not fitted to, at the strength of regularisation that does so
    best: the mean log-loss in nats, and the probability that a right step's margin is above a wrong one's. `margins`:
    those, (steps,)."""

    strength: float
    log_loss: float
    auroc: float
    margins: Array


@dataclass(frozen=True, slots=True)
class FittedProbe:
    """A probe; the figures of its measures alone, of each candidate layer by its number, and of it all."""

    probe: LinearProbe
    measures: CrossFitted
    readouts: dict[int, CrossFitted]
    whole: CrossFitted

    @property
    def rows(self) -> tuple[ReadoutRow, ...]:
        """The same as records."""
        layers = [(f"layer {layer}", layer, figures) for layer, figures in self.readouts.items()]
        named = [("measures of surprisal", None, self.measures), *layers, ("all of it", None, self.whole)]
        return tuple(
            ReadoutRow(name, layer, layer in (None, *self.probe.layers), made.strength, made.log_loss, made.auroc)
            for name, layer, made in named
        )


def fit(
    features: Features,
    labels: Labels,
    problems: Sequence[object],
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> FittedProbe:
    """Fits a probe to steps. `labels`: whether each is right, (steps,). `problems`: each step's, of which those in one
    fold are held out together. `advance` is called after each layer. Errors as for `split`.
    """
    folds = split(labels, problems, seed)
    readouts: dict[int, CrossFitted] = {}
    for layer in features.layers:
        readouts[layer] = cross_fitted(features.of(layer), labels, folds)
        advance()
    measures = features.measures.astype(np.float64)

    def inputs(layers: Sequence[int]) -> Array:
        return np.column_stack([*(readouts[layer].margins for layer in layers), measures])

    def loss(layers: Sequence[int]) -> float:
        return cross_fitted(inputs(layers), labels, folds, STRENGTHS[-1:]).log_loss

    chosen = tuple(_choose(features.layers, loss))
    last = cross_fitted(inputs(chosen), labels, folds)
    weight, bias = regressed(inputs(chosen), labels, last.strength)
    parts, rest = weight[: len(chosen)], weight[len(chosen) :]
    made = [regressed(features.of(layer), labels, readouts[layer].strength) for layer in chosen]
    rows = [part * each for part, (each, _) in zip(parts, made, strict=True)]
    bias += sum(part * each for part, (_, each) in zip(parts, made, strict=True))
    probe = LinearProbe(chosen, np.concatenate(rows), rest, bias)
    alone = cross_fitted(measures, labels, folds)
    return FittedProbe(probe, alone, readouts, last)


def split(right: Labels, problems: Sequence[object], seed: int) -> Folds:
    """The folds: of each, the indices of the other steps and of its own, whose problems no other step has.

    Raises `ModelInvalid` unless there are right and wrong steps beside each fold.
    """
    numbers = {problem: number for number, problem in enumerate(dict.fromkeys(problems))}
    groups = np.array([numbers[problem] for problem in problems])
    if len(numbers) >= FOLDS and 0 < right.sum() < len(right):
        folds = list(StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed).split(right, right, groups))
        if all(0 < right[rest].sum() < len(rest) and len(held_out) for rest, held_out in folds):
            return folds
    raise ModelInvalid(
        f"a probe takes right and wrong steps of at least {FOLDS} problems, so that some can be held out: there are "
        f"{int(right.sum()):,} right and {int((~right).sum()):,} wrong ones of {len(numbers):,} problems"
    )


def cross_fitted(columns: Array, right: Labels, folds: Folds, strengths: Sequence[float] = STRENGTHS) -> CrossFitted:
    """Those of a regression on columns, (steps, columns), from the greatest strength on until it gets no better."""
    standard = StandardScaler().fit_transform(columns)
    models = [_regression(warm_start=True) for _ in folds]
    best: CrossFitted | None = None
    for strength in strengths:
        margins = np.empty(len(right))
        for model, (rest, held_out) in zip(models, folds, strict=True):
            model.set_params(C=1 / (strength * len(rest))).fit(standard[rest], right[rest])
            margins[held_out] = model.decision_function(standard[held_out])
        loss = _log_loss(margins, right)
        if best and loss >= best.log_loss:
            break
        best = CrossFitted(strength, loss, float(roc_auc_score(right, margins)), margins)
    assert best
    return best


def regressed(columns: Array, right: Labels, strength: float) -> tuple[Array, float]:
    """The regression on all steps: its weights for columns as they are, (columns,), and its bias."""
    scaler = StandardScaler().fit(columns)
    model = _regression(C=1 / (strength * len(right))).fit(scaler.transform(columns), right)
    weight: Array = model.coef_[0].astype(np.float64) / scaler.scale_
    return weight, float(model.intercept_[0] - weight @ scaler.mean_)


def _regression(**options: Any) -> LogisticRegression:
    return LogisticRegression(tol=TOLERANCE, max_iter=1000, **options)


def _choose(layers: Sequence[int], loss: Callable[[Sequence[int]], float]) -> list[int]:
    """Layers, one after another the one that lowers the loss most, at least one, as long as it falls."""
    chosen: list[int] = []
    least = np.inf
    while len(chosen) < min(MOST_LAYERS, len(layers)):
        losses = {layer: loss([*chosen, layer]) for layer in layers if layer not in chosen}
        best = min(losses, key=losses.__getitem__)
        if losses[best] >= least:
            break
        chosen, least = [*chosen, best], losses[best]
    return sorted(chosen)


def _log_loss(margins: Array, right: Labels) -> float:
    return float(np.logaddexp(0, np.where(right, -margins, margins)).mean())
