"""What vLLM pools of a model, in its own process or behind HTTP. Needs no PyTorch."""

from collections.abc import Sequence
from pathlib import Path

from unprm.calibration import sigmoid
from unprm.checkpoints.files import read_config
from unprm.types import Encoded


def classifies_tokens(directory: Path) -> bool:
    """Whether a checkpoint is transformers' and vLLM's classifier of tokens."""
    return any(name.endswith("ForTokenClassification") for name in read_config(directory).get("architectures") or ())


def step_scores(item: Encoded, rows: Sequence[Sequence[float]], first: int = 0) -> tuple[float, ...]:
    """An item's step scores in [0, 1] at positions from `first` on. `rows`: pooled at each needed token from `first`
    on, (tokens, 1 or 2), without activation. Raises `RuntimeError` for another number of rows."""
    tokens = len(item.ids_to_last_position) - first
    if len(rows) != tokens:
        raise RuntimeError(f"vLLM returned {len(rows)} rows for {tokens} tokens")
    scored = [rows[position - first] for position in item.positions if position >= first]
    return tuple(sigmoid(margin - sum(wrong)) for *wrong, margin in scored)
