"""A probe's scores in plain steps."""

import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from unprm.engines.torch.probe import EVEN, FILE
from unprm.formats.probe import ProbeConfig
from unprm.types import Encoded


def reference(place: Path, item: Encoded) -> list[float]:
    """The scores of an item by the probe in a directory, as formulas have them."""
    config = ProbeConfig.read(place)
    network = AutoModelForCausalLM.from_pretrained(place / config.base, dtype=torch.float32).eval()
    head = load_file(place / FILE)
    with torch.no_grad():
        made = network(torch.tensor([item.ids]), output_hidden_states=True)
    states = torch.cat([made.hidden_states[layer][0] for layer in config.layers], 1)
    values = states @ head["token.weight"][0]
    logs = made.logits[0].float().log_softmax(-1)
    scores, start = [], item.response
    for end in item.positions:
        surprise = [-float(logs[index - 1, item.ids[index]]) for index in range(start, end + 1)]
        figures = np.log1p([np.mean(surprise), max(surprise), sum(surprise), np.mean(sorted(surprise)[-3:])])
        margin = (
            np.average(values[start : end + 1], weights=np.array(surprise) + EVEN)
            + figures @ head["measures.weight"][0].numpy()
        )
        scores.append(1 / (1 + math.exp(-float(margin + head["measures.bias"][0]))))
        start = end + 1
    return scores
