"""What TRL's `PRMTrainer` saves: a language model with a head of two classes on its tokens, which is read at the
separator after each step (TRL 1.13)."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from unprm.formats.family import LAYER, Family, Head
from unprm.formats.pieces import Draft, PieceFormat, token_id
from unprm.types import Encoded

SEPARATOR = "\n"
_NETWORKS = (
    "Gemma", "Gemma2", "Glm", "Glm4", "Llama", "Ministral", "Mistral", "Mixtral", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3",
    "Qwen3Moe", "SmolLM3", "Starcoder2",
)  # fmt: skip
"""Those whose head is a layer named `LAYER`."""


class TrlFormat(PieceFormat):
    """`begin`: the ids that begin a text, one or none."""

    family = "trl"
    readout = Head((LAYER,))
    input_format = "{begin of text, if any}{problem}{step 1}\\n{step 2}\\n… (scored at the newline after each step)"

    def __init__(self, tokenizer: Tokenizer, begin: Sequence[int]) -> None:
        super().__init__(tokenizer)
        self._begin = begin
        (self._separator,) = self.pieces.encode([SEPARATOR])

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, each encoded separately, and a separator after each step; scored at the separators'
        last tokens."""
        head, *pieces = self.pieces.encode([problem, *steps])
        draft = Draft().add([*self._begin, *head])
        for piece in pieces:
            step = [*piece, *self._separator]
            draft.add(step, [len(step) - 1])
        return draft.done()


def _build(tokenizer: Tokenizer, directory: Path) -> TrlFormat:
    try:
        begin = json.loads((directory / "tokenizer_config.json").read_text("utf-8")).get("bos_token")
    except FileNotFoundError:
        begin = None
    if isinstance(begin, dict):  # as transformers 4 writes it
        begin = begin["content"]
    return TrlFormat(tokenizer, [] if begin is None else [token_id(tokenizer, begin)])


FAMILY = Family(
    name=TrlFormat.family,
    about="a language model with a head of two classes that TRL's PRMTrainer made, read at the newline after each step",
    readout=Head,
    architectures=tuple(f"{network}ForTokenClassification" for network in _NETWORKS),
    models=(),
    build=_build,
)
