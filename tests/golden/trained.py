"""What training leaves in a PRM's directory, without what machines measure otherwise: of the losses, times and figures
their names."""

import json
import re
from pathlib import Path


def trained(directory: Path) -> dict[str, str]:
    """The text files of a tiny PRM, and the names of all."""
    # PyTorch takes seconds to import: only this needs it
    from rich.progress import Progress

    from tests.tiny import write_base
    from tests.training.solutions import learnable
    from training import resumable
    from training.prm.train import Trainer
    from training.prm.train_settings import TrainSettings

    data, held_out, output = directory / "steps.jsonl", directory / "held-out.jsonl", directory / "prm"
    resumable.write_lines(data, learnable(6))
    resumable.write_lines(held_out, learnable(2, seed=1))
    settings = TrainSettings(
        str(write_base(directory / "base")), (data,), output, validation=(held_out,), epochs=1, batch_size=4
    )
    Trainer(settings).train(Progress(disable=True))
    card, config, steps, epochs = (
        (output / name).read_text("utf-8")
        for name in ("README.md", "prm_config.json", "train.jsonl", "validation.jsonl")
    )
    return {
        "files.txt": "".join(f"{name}\n" for name in sorted(path.name for path in output.iterdir())),
        "README.md": re.sub(r"(?<=\| loss at the end \| )[\d.]+", "0.0000", card),
        "prm_config.json": config,
        "train.txt": _names(steps),
        "validation.txt": _names(epochs),
    }


def _names(lines: str) -> str:
    return "".join(f"{' '.join(json.loads(line))}\n" for line in lines.splitlines())
