"""The heads that can be trained: from the last hidden states of a micro-batch to the margins at its tags."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from unprm.engines.torch.heads import LayersHead, changed_logits
from unprm.engines.torch.readers import LOGITS, log_probs
from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Verdicts

from .collate import MicroBatch
from .loss import LOSSES
from .network import drop_output
from .train_settings import TrainSettings

FILE = "head.safetensors"
"""A trained layer, beside the adapter or the other weights."""


States = Callable[[], torch.Tensor]
"""Runs the network: last hidden states, (tokens, hidden)."""


class VerdictRows(nn.Module):
    """Two rows of the output layer, those of both verdicts, at the tag itself (no shift by one).

    Where the layer's weights are not the embedding's, the rows are kept here: the others are never read, so training
    these two is training the layer.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, verdicts: Verdicts) -> None:
        super().__init__()
        output, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        self._embedding = model.get_input_embeddings
        self.kept, self._places = None, [verdicts.positive, verdicts.negative]
        if output.weight is not embedding.weight:
            rows = output.weight.detach()[self._places].clone()
            frozen = not output.weight.requires_grad
            self.kept, self._places = nn.Embedding.from_pretrained(rows, freeze=frozen), [0, 1]

    def forward(self, states: States, micro: MicroBatch) -> torch.Tensor:
        """Margins at the tags, (tags,) in fp32; `states` gives the last hidden states, (tokens, hidden)."""
        positive, negative = (self.kept or self._embedding()).weight[self._places].float()
        margins: torch.Tensor = _at_tags(states(), micro).float() @ (positive - negative)
        return margins


class Layer(nn.Module):
    """A linear layer with one or two outputs at the tag itself. `distribution`: as in `LayersHead`."""

    def __init__(self, hidden_size: int, outputs: int, distribution: bool = False) -> None:
        super().__init__()
        layer = nn.Linear(hidden_size, outputs)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)  # no step is right or wrong before anything was learned
        self.read = LayersHead([layer], distribution)

    def forward(self, states: States, micro: MicroBatch) -> torch.Tensor:
        """Margins at the tags, (tags,), or both outputs, (tags, 2), in fp32; `states` gives the last hidden states,
        (tokens, hidden)."""
        read: torch.Tensor = self.read(_at_tags(states(), micro))
        return read


class Implicit(nn.Module):
    """`beta` times the log-likelihood ratio of the response so far, of the network to its base without the adapter
    (Yuan et al., "Free Process Rewards without Process Labels", 2024)."""

    def __init__(self, tuned: PeftModel, beta: float, bf16: bool) -> None:
        super().__init__()
        self._untuned, self._output = tuned.disable_adapter, tuned.get_base_model().get_output_embeddings
        self._beta = beta
        self._bf16 = bf16

    def forward(self, states: States, micro: MicroBatch) -> torch.Tensor:
        """Margins at the tags, (tags,) in fp32; `states` gives the last hidden states, (tokens, hidden)."""
        # the adapter is frozen while it is disabled, so the reference comes first
        with torch.no_grad(), self._untuned():
            reference = self._log_probs(states(), micro)
        ratios = self._log_probs(states(), micro) - reference
        steps = ratios.new_zeros(len(micro.places)).index_add(0, micro.responses[:, 2].to(ratios.device), ratios)
        solutions = micro.solutions.to(ratios.device)
        so_far = (solutions[:, None] == solutions).tril().to(ratios.dtype)  # (tags, tags)
        return (self._beta * (so_far @ steps)).float()

    def _log_probs(self, states: torch.Tensor, micro: MicroBatch) -> torch.Tensor:
        """Log-probability of each of `micro.responses`, (tokens,) in double precision; logits are kept of few tokens at
        once, and computed again for the gradient."""
        places, before, _ = micro.responses.to(states.device).unbind(1)
        output = self._output()
        wanted = micro.ids.to(states.device).flatten()[places]
        with torch.autocast(states.device.type, torch.bfloat16, enabled=self._bf16):
            slices = zip(states[before].split(LOGITS), wanted.split(LOGITS), strict=True)
            return torch.cat([checkpoint(log_probs, output, *each, use_reentrant=False) for each in slices])


def make_head(
    model: PreTrainedModel | PeftModel, settings: TrainSettings, verdicts: Verdicts, bf16: bool
) -> VerdictRows | Layer | Implicit:
    """The head in the settings for a model from `prepare`; removes what it doesn't need of the output layer.

    `bf16`: whether matrix products are computed in bfloat16. Raises `ModelInvalid` if the loss, the base or what is
    trained of it does not fit the head.
    """
    counts = LOSSES[settings.loss].counts
    if counts and settings.head != "classes":
        raise ModelInvalid(f"--loss {settings.loss} takes both outputs of a layer: --head classes, not {settings.head}")
    if settings.head == "implicit":
        _check_implicit(settings, model.config)
        assert isinstance(model, PeftModel)
        return Implicit(model, settings.beta, bf16)
    if settings.head == "verdicts":
        head: VerdictRows | Layer = VerdictRows(model, verdicts)
    else:
        head = Layer(model.config.get_text_config().hidden_size, 1 if settings.head == "value" else 2, counts)
    drop_output(model)
    return head


def write_layer(trained: Mapping[str, torch.Tensor], directory: Path) -> None:
    """Writes the weights of a `Layer`, by their names in the head, if there are any."""
    if trained:
        tensors = {f"{LAYER}.{name.rpartition('.')[2]}": t.detach().cpu().contiguous() for name, t in trained.items()}
        save_file(tensors, directory / FILE, {"format": "pt"})


def _check_implicit(settings: TrainSettings, config: Any) -> None:
    if settings.tune != "lora":
        raise ModelInvalid("--head implicit needs an adapter, without which the base is its reference: --tune lora")
    if settings.loss != "orm":
        raise ModelInvalid(
            f"--head implicit is trained on outcomes, with --loss orm, not {settings.loss}: a solution's last label"
        )
    if name := changed_logits(config.to_dict()):
        raise ModelInvalid(f"--head implicit is not trained on {settings.base}: it changes its logits by {name}")


def _at_tags(states: torch.Tensor, micro: MicroBatch) -> torch.Tensor:
    """The states of the tags, (tags, hidden)."""
    return states[micro.places.to(states.device)]
