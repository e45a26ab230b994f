"""The read-out of surprisals, fitted to labelled steps and tested on those of other solutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import BaseModel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from unprm.engines.uncertainty import FIGURES, Readout
from unprm.errors import RecordInvalid
from unprm.uncertainty import surprise
from unprm.wire.requests import LogProbs

from .auroc import ScoredSteps, auroc

INTERVAL = 0.025, 0.975
"""Quantiles over resampled questions."""


class LoggedStep(BaseModel):
    """A line of a file: a step of solution `id`, its length in characters, whether it is right, and the
    log-probabilities of its tokens, with the white space after it. Steps of a solution come one after the other, up to
    the first wrong one."""

    id: str
    problem: str
    characters: int
    label: bool
    token_logprobs: LogProbs


@dataclass(frozen=True, slots=True)
class ReadoutTest:
    """How a read-out scores other steps. `loss`: in nats; `constant`: that of the share of right steps as every score.
    `matched`: the share of pairs of a first wrong step and a right one, as long and at its place, of which the right
    one scores higher; then its interval of 95 % over questions."""

    loss: float
    constant: float
    matched: float
    low: float
    high: float


def read(path: Path) -> list[LoggedStep]:
    """The steps of a file. Raises `RecordInvalid` unless some are right and some wrong."""
    with path.open(encoding="utf-8") as lines:
        steps = list(map(LoggedStep.model_validate_json, lines))
    if len({step.label for step in steps}) < 2:
        raise RecordInvalid(str(path), 0, "it takes right steps and wrong ones")
    return steps


def fit(steps: Sequence[LoggedStep], fitted: str) -> Readout:
    """Logistic regression without regularisation, and without weights: scores are probabilities where as many steps are
    right as here. `fitted`: on what."""
    values = [surprise(step.token_logprobs) for step in steps]
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=10_000).fit(values, [step.label for step in steps])
    coefficients = dict(zip(FIGURES, map(float, model.coef_[0]), strict=True))
    return Readout(intercept=float(model.intercept_[0]), fitted=fitted, **coefficients)


def test(readout: Readout, steps: Sequence[LoggedStep]) -> ReadoutTest:
    labels, scores = [step.label for step in steps], [readout.score(step.token_logprobs) for step in steps]
    solutions = []
    for _, group in groupby(zip(steps, scores, strict=True), lambda pair: pair[0].id):
        of_solution, values = zip(*group, strict=True)
        lengths = tuple(step.characters for step in of_solution)
        solutions.append(ScoredSteps(of_solution[0].problem, values, lengths, not of_solution[-1].label))
    share = auroc(solutions, matched=True)
    low, high = np.quantile(share.resampled, INTERVAL)
    constant = [np.mean(labels)] * len(labels)
    return ReadoutTest(log_loss(labels, scores), log_loss(labels, constant), share.value, float(low), float(high))
