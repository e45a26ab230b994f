"""The heads that can be trained: from the last hidden states at the tags, (tags, hidden), to margins, (tags,), fp32."""

from collections.abc import Mapping
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from unprm.engines.torch.heads import LayersHead
from unprm.formats.family import LAYER, Verdicts

from .train_settings import TrainSettings

FILE = "head.safetensors"
"""A trained layer, beside the adapter or the other weights."""


class VerdictRows(nn.Module):
    """Two rows of the output layer, those of both verdicts, at the tag itself (no shift by one).

    Where the layer's weights are not the embedding's, the rows are kept here: the others are never read, so training
    these two is training the layer.
    """

    def __init__(self, model: PreTrainedModel | PeftModel, verdicts: Verdicts) -> None:
        super().__init__()
        output, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        self._embedding = model.get_input_embeddings
        self.kept, self._rows = None, [verdicts.positive, verdicts.negative]
        if output.weight is not embedding.weight:
            rows = output.weight.detach()[self._rows].clone()
            frozen = not output.weight.requires_grad
            self.kept, self._rows = nn.Embedding.from_pretrained(rows, freeze=frozen), [0, 1]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Margins, the difference of the verdicts' logits."""
        positive, negative = (self.kept or self._embedding()).weight[self._rows].float()
        margins: torch.Tensor = states.float() @ (positive - negative)
        return margins


def make_head(
    model: PreTrainedModel | PeftModel, settings: TrainSettings, verdicts: Verdicts
) -> VerdictRows | LayersHead:
    """The head in the settings for a model from `prepare`; removes what it doesn't need of the output layer."""
    if settings.head == "verdicts":
        head: VerdictRows | LayersHead = VerdictRows(model, verdicts)
    else:
        layer = nn.Linear(model.config.get_text_config().hidden_size, 1 if settings.head == "value" else 2)
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)  # no step is right or wrong before anything was learned
        head = LayersHead([layer])
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        model.set_output_embeddings(nn.Identity())
    return head


def write_layer(trained: Mapping[str, torch.Tensor], directory: Path) -> None:
    """Writes the weights of a trained layer, by their names in the head, if there are any."""
    if trained:
        tensors = {f"{LAYER}.{name.rpartition('.')[2]}": t.detach().cpu().contiguous() for name, t in trained.items()}
        save_file(tensors, directory / FILE, {"format": "pt"})
