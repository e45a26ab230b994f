"""The losses of the PRM (paper, section 4.2), on the margins `logit₊ − logit₋` at the tags of the labelled steps.

A soft label, between 0 and 1, is the target of the cross-entropy or of the score; to rank, it is right above `VERDICT`.

Each is a sum over solutions or steps, divided by their number in the whole optimiser batch, so that the losses of
micro-batches and devices add up to the mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from ..schema import VERDICT

ZETA = 4.0
"""Margin between right and wrong steps in the ranking loss."""


@dataclass(frozen=True, slots=True)
class Loss:
    """`parts(margins, labels, rows)`: loss per step or per solution. `margins` (fp32), `labels` (in [0, 1], 1:
    right) and `rows` (index of the solution in the micro-batch) are (tags,), in the order of the solutions.
    `count(labels)`: number of parts of a solution with these labels."""

    parts: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    count: Callable[[Sequence[float]], int]

    def __call__(self, margins: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, total: int) -> torch.Tensor:
        """A micro-batch's share of the loss of an optimiser batch with `total` parts, (); arguments as for `parts`."""
        return self.parts(margins, labels, rows).sum() / total


def _bce(margins: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(margins, labels, reduction="none")


def _mse(margins: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (torch.sigmoid(margins) - labels) ** 2


def _orm(margins: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of each solution's last labelled step only: an outcome reward model."""
    last = torch.cat([rows[1:] != rows[:-1], rows.new_ones(1, dtype=torch.bool)])
    return _bce(margins[last], labels[last], rows[last])


def _rank(margins: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Ranks each right step above the right steps before it and, by a margin of `ZETA`, above all wrong steps of its
    solution; the question itself counts as a right step of margin 0 (Li and Li, "Process Reward Model with Q-value
    Rankings", 2024, equation 10)."""
    parts = []
    for row in rows.unique_consecutive():
        row_margins, right = margins[rows == row], labels[rows == row] > VERDICT
        ranked = torch.cat([row_margins.new_zeros(1), row_margins[right]])
        above = torch.logcumsumexp(ranked, dim=0)
        if not right.all():
            above = torch.logaddexp(above, torch.logsumexp(row_margins[~right] + ZETA, dim=0))
        parts.append((above - ranked).mean())
    return torch.stack(parts)


LOSSES = {
    "bce": Loss(_bce, len),
    "mse": Loss(_mse, len),
    "orm": Loss(_orm, lambda _: 1),
    "rank": Loss(_rank, lambda _: 1),
}
