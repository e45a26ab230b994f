"""Scoring candidates with the embedded model, against the loop that public scripts run: one solution after the
other, logits of the whole vocabulary."""

import random

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from benchmarks.timing import Comparison, compare
from training.mini.slips import Author
from unprm import mini
from unprm.engines.checkpoint import load_base
from unprm.engines.load import load_engine
from unprm.formats.unprm import PrmConfig
from unprm.mini.storyteller import generate
from unprm.types import Encoded

CANDIDATES = 64


def plain_loop(network: PreTrainedModel, config: PrmConfig, batch: list[Encoded]) -> list[tuple[float, ...]]:
    """The scores, one solution at a time."""
    scores = []
    with torch.inference_mode():
        for item in batch:
            logits = network(input_ids=torch.tensor([item.ids])).logits[0, list(item.positions)].float()
            margins = logits[:, config.positive_id] - logits[:, config.negative_id]
            scores.append(tuple(torch.sigmoid(margins).tolist()))
    return scores


def run() -> list[Comparison]:
    """64 candidates of one problem."""
    rng = random.Random(0)
    engine = load_engine(mini.NAME)
    problem = generate(rng)
    batch = [engine.format.encode(problem.text, Author(rng, 1.0).solve(problem)) for _ in range(CANDIDATES)]
    adapted = PeftModel.from_pretrained(load_base(mini.BASE, torch.float32), str(mini.ADAPTER))
    network = adapted.merge_and_unload().eval()
    engine.score(batch)
    return [
        compare(
            f"{CANDIDATES} candidates of one problem, fp32",
            lambda: engine.score(batch),
            "one at a time, all logits",
            lambda: plain_loop(network, PrmConfig.read(mini.ADAPTER), batch),
        )
    ]
