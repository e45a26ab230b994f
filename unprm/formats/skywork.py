"""Skywork-o1's PRMs: a value head that is read at the newline after each step (Skywork-o1 Open Series, 2024)."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import Family, Head, KnownModel
from unprm.formats.pieces import Draft, PieceFormat
from unprm.types import Encoded


class SkyworkFormat(PieceFormat):
    """`begin`: id of the token that begins a text. Raises `ModelInvalid` if a newline is not one token."""

    family = "skywork"
    readout = Head(("v_head.summary",))
    input_format = "{begin of text}{problem}\\n{step 1}\\n{step 2}\\n… (scored at the newline after each step)"

    def __init__(self, tokenizer: Tokenizer, begin: int) -> None:
        super().__init__(tokenizer)
        self._begin = begin
        self._newline = self.pieces.single("\n")

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, each encoded separately, a newline after each; scored at the steps' newlines."""
        head, *pieces = self.pieces.encode([f"{problem}\n", *steps])
        draft = Draft().add([self._begin]).add(head)
        for piece in pieces:
            draft.step(piece, self._newline)
        return draft.done()


def _build(tokenizer: Tokenizer, directory: Path) -> SkyworkFormat:
    begin = json.loads((directory / "config.json").read_text("utf-8")).get("bos_token_id")
    if not isinstance(begin, int):
        raise ModelInvalid(f"{directory / 'config.json'} has no bos_token_id, which begins this family's input")
    return SkyworkFormat(tokenizer, begin)


FAMILY = Family(
    name=SkyworkFormat.family,
    about="Qwen2 with a value head, read at the newline after each step",
    readout=Head,
    architectures=("Qwen2ForPrmModel",),
    models=(
        KnownModel("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B", "Skywork Community", 1.5),
        KnownModel("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "Skywork Community", 7.6),
    ),
    build=_build,
    aggregate="mean",
)
