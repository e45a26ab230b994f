"""Baselines: other approaches, each implemented as well as it allows."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

import torch
from torch import nn
from transformers import PreTrainedModel

from benchmarks import models, servers
from unprm.checkpoints.files import load_base
from unprm.engines.torch.heads import VerdictHead
from unprm.engines.vllm.model import prepare
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig
from unprm.models.load import load_engine
from unprm.models.options import Dtype, ModelSpec
from unprm.models.source import ModelSource
from unprm.types import Encoded, Engine

ROWS = 8
"""Solutions of a padded batch."""
Scores = list[tuple[float, ...]]


class Plain:
    """A causal language model of transformers, scored by two rows of its output layer; counts its multiplications."""

    def __init__(self, network: PreTrainedModel, verdicts: Verdicts) -> None:
        self.network, self.verdicts = network, verdicts
        self.decoder, output = network.get_decoder(), network.get_output_embeddings()
        self.head = VerdictHead(output.weight, verdicts)
        self.weights: int = sum(
            module.weight.numel() for module in self.decoder.modules() if isinstance(module, nn.Linear)
        )
        self._logits: int = output.weight.numel()

    @classmethod
    def load(cls, place: Path) -> Self:
        config = PrmConfig.read(place)
        return cls(load_base(place, torch.float32), Verdicts(config.positive_id, config.negative_id))

    def work(self, items: Sequence[Encoded], logits: bool = False) -> int:
        """Multiplications of the linear layers if no prefix is shared; with `logits`, including those of all logits."""
        return sum(len(item.ids) for item in items) * (self.weights + logits * self._logits)

    def least(self, items: Sequence[Encoded]) -> int:
        """Multiplications if each distinct token runs once."""
        return models.distinct(items) * self.weights


@contextmanager
def loaded(prefix_cache_gb: float = 0.0, dtype: Dtype = "float32") -> Iterator[tuple[Engine, Plain]]:
    """The PRM of `models` on the CPU: in our torch engine, and as a plain model in fp32."""
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory))
        engine = load_engine(str(place), device="cpu", dtype=dtype, prefix_cache_gb=prefix_cache_gb)
        plain = Plain.load(place)
    with closing(engine):
        yield engine, plain


@contextmanager
def vllm(place: Path, *options: str) -> Iterator[str]:
    """vLLM's pooling server of a PRM in fp32, quiet, and with no more memory than a small model needs; yields its
    address."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "2"}
    source = ModelSource.find(ModelSpec(model=str(place)))
    model = prepare(source.files, source.readout, source.tokenizer, torch.float32)
    with servers.vllm(model.directory, "--dtype=float32", *options, *model.options) as url:
        yield url


@torch.inference_mode()
def plain_loop(plain: Plain, items: Sequence[Encoded]) -> Scores:
    """One solution per forward pass, with logits of the whole vocabulary, like the public scripts."""
    scores = []
    for item in items:
        logits = plain.network(input_ids=torch.tensor([item.ids])).logits[0, list(item.positions)].float()
        margins = logits[:, plain.verdicts.positive] - logits[:, plain.verdicts.negative]
        scores.append(tuple(torch.sigmoid(margins).tolist()))
    return scores


@torch.inference_mode()
def padded(plain: Plain, items: Sequence[Encoded]) -> Scores:
    """Good use of transformers: batches of solutions of similar length, padded on the right, with only two rows of the
    output layer."""
    scores: Scores = [()] * len(items)
    order = sorted(range(len(items)), key=lambda index: len(items[index].ids))
    for start in range(0, len(order), ROWS):
        batch = order[start : start + ROWS]
        length = max(len(items[index].ids) for index in batch)
        ids = torch.zeros(len(batch), length, dtype=torch.long)
        for row, index in enumerate(batch):
            ids[row, : len(items[index].ids)] = torch.tensor(items[index].ids)
        hidden = plain.decoder(input_ids=ids.to(plain.decoder.device), use_cache=False).last_hidden_state
        for row, index in enumerate(batch):
            margins = plain.head(hidden[row, list(items[index].positions)])
            scores[index] = tuple(torch.sigmoid(margins).tolist())
    return scores
