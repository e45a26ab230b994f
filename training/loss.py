"""The loss of the PRM (paper, section 4.2)."""

import torch
from torch.nn import functional


def step_bce(margins: torch.Tensor, labels: torch.Tensor, total: int) -> torch.Tensor:
    """Binary cross-entropy on `logit₊ − logit₋` at the tags.

    `margins`, `labels`: (tags,) of one micro-batch, fp32. Divided by `total`, the number of labelled steps in
    the whole optimiser batch, so that the micro-batches' losses add up to the mean over the batch.
    """
    return functional.binary_cross_entropy_with_logits(margins, labels, reduction="sum") / total
