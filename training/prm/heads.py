"""The heads that can be trained: from the last hidden states of a micro-batch to the margins at its tags."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

from training.prm.collate import MicroBatch
from training.prm.network import drop_output
from training.settings import TrainSettings
from unprm.engines.torch.heads import LayersHead, VerdictHead
from unprm.engines.torch.readers import LOGITS, log_probs
from unprm.errors import ModelInvalid
from unprm.formats.family import LAYER, Verdicts

FILE = "head.safetensors"
"""A trained layer, beside the adapter."""


class Head(Protocol):
    """`module`: its weights; those that require a gradient are trained."""

    module: nn.Module

    def margins(self, states: Callable[[], torch.Tensor], micro: MicroBatch) -> torch.Tensor:
        """Margins at the tags, (tags,) in fp32. `states` runs the network: last hidden states, (tokens, hidden)."""
        ...


class AtTags:
    """Reads the hidden state at the tag itself (no shift by one)."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def margins(self, states: Callable[[], torch.Tensor], micro: MicroBatch) -> torch.Tensor:
        """As `Head`."""
        tags = states()[micro.places.to(_device(self.module))]
        margins: torch.Tensor = self.module(tags)
        return margins


class Implicit:
    """`beta` times the log-likelihood ratio of the response so far, of the network to its base without the adapter
    (Yuan et al., "Free Process Rewards without Process Labels", 2024)."""

    def __init__(self, tuned: PeftModel, beta: float, bf16: bool) -> None:
        self.module: nn.Module = nn.Identity()
        self._tuned = tuned
        self._beta = beta
        self._bf16 = bf16

    def margins(self, states: Callable[[], torch.Tensor], micro: MicroBatch) -> torch.Tensor:
        """As `Head`."""
        # the adapter is frozen while it is disabled, so the reference comes first
        with torch.no_grad(), self._tuned.disable_adapter():
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
        output = self._tuned.get_base_model().get_output_embeddings()
        wanted = micro.ids.to(states.device).flatten()[places]
        with torch.autocast(states.device.type, torch.bfloat16, enabled=self._bf16):
            slices = zip(states[before].split(LOGITS), wanted.split(LOGITS), strict=True)
            return torch.cat([checkpoint(log_probs, output, *each, use_reentrant=False) for each in slices])


def add_head(tuned: PeftModel, settings: TrainSettings, verdicts: Verdicts, bf16: bool) -> Head:
    """The head in the settings for a network with a new adapter; removes what it doesn't need of the output layer.

    `bf16`: whether matrix products are computed in bfloat16. Raises `ModelInvalid` if the loss or the base does not fit
    the head.
    """
    base = tuned.get_base_model()
    if settings.head == "implicit":
        _check_implicit(settings, base.config)
        return Implicit(tuned, settings.beta, bf16)
    if settings.head == "verdicts":
        head: nn.Module = VerdictHead(base.get_output_embeddings().weight, verdicts)
    else:
        outputs = 1 if settings.head == "value" else 2
        layer = nn.Linear(base.config.get_text_config().hidden_size, outputs, device=tuned.device)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)  # no step is right or wrong before anything was learned
        head = LayersHead([layer])
    drop_output(base)
    return AtTags(head)


def write_head(head: Head, directory: Path) -> None:
    """Writes the trained layer, if the head has one."""
    if isinstance(head.module, LayersHead):
        (layer,) = head.module.layers
        tensors = {f"{LAYER}.{name}": tensor.cpu().contiguous() for name, tensor in layer.state_dict().items()}
        save_file(tensors, directory / FILE, {"format": "pt"})


def _check_implicit(settings: TrainSettings, config: Any) -> None:
    if settings.loss != "orm":
        raise ModelInvalid(
            f"--head implicit is trained on outcomes, with --loss orm, not {settings.loss}: a solution's last label"
        )
    for name in ("logits_scaling", "final_logit_softcapping"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ModelInvalid(f"--head implicit is not trained on {settings.base}: it changes its logits by {name}")


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
