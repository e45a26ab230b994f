"""What a training run leaves: an adapter and its configuration, or a checkpoint of all weights."""

import os
from pathlib import Path

import torch
from peft import PeftModel

from unprm.checkpoints.files import load_base
from unprm.formats.unprm import PrmConfig

from .heads import write_layer
from .network import Network
from .publish import write_checkpoint


def write_adapter(network: Network, config: PrmConfig, output: Path) -> None:
    """Writes a trained adapter, its head and its configuration."""
    tuned = network.model
    assert isinstance(tuned, PeftModel)
    tuned.peft_config["default"].base_model_name_or_path = config.base
    tuned.save_pretrained(str(output), save_embedding_layers=False)
    write_layer({name: p for name, p in network.head.named_parameters() if p.requires_grad}, output)
    config.write(output)


@torch.no_grad()
def write_all(network: Network, base: Path, config: PrmConfig, output: Path) -> None:
    """Writes a checkpoint of the base with the trained weights of a network, in the number type of the base's files."""
    model = load_base(base, "auto")
    layer = {}
    for name, values in network.named_parameters():
        place, _, rest = name.partition(".")
        if place == "model":
            model.get_parameter(rest).copy_(values)
        elif config.head == "verdicts":
            rows = model.get_output_embeddings().weight
            rows[[config.positive_id, config.negative_id]] = values.to(rows)
        else:
            layer[rest] = values
    write_layer(layer, output)
    write_checkpoint(model, base, output, config, output)


def portable(base: str, output: Path) -> str:
    """The base's name in an adapter's configuration: a path relative to the adapter, or the hub name."""
    if not Path(base).is_dir():
        return base
    relative = os.path.relpath(Path(base).resolve(), output.resolve())
    return relative if relative.startswith(".") else f"./{relative}"
