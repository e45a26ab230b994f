"""Outcome reward models: one score for a whole solution, read at the end of a chat (Liu et al., "Skywork-Reward-V2",
2025, and other models of transformers' kind "sequence classification" with one output).

A solution's score is that of each of its steps, so its minimum, mean and last step score are the model's reward; only
their product is not. The reward is a logit of Bradley and Terry's model, which tells solutions of one problem apart;
its sigmoid is in [0, 1], and 0.5 does not part right from wrong.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from unprm.formats.family import Family, KnownModel, Outcome
from unprm.formats.pieces import Draft, PieceFormat, parts_of
from unprm.formats.rendered import PROBLEM, SOLUTION, render, system_turn
from unprm.steps import join
from unprm.types import Encoded

_PLACE = re.compile(f"{PROBLEM}|{SOLUTION}")


class OutcomeFormat(PieceFormat):
    """`text`: the model's chat of a problem and its solution, with a place for each; `stripped`: the places around
    which its chat template strips space. `pad`: the id that is skipped in search of the chat's last token."""

    family = "outcome"
    readout = Outcome("score")
    input_format = (
        "the model's chat template: user {problem}, assistant {step 1}\\n\\n{step 2}… (scored once, at the end: every "
        "step has the solution's score)"
    )

    def __init__(self, tokenizer: Tokenizer, text: str, stripped: frozenset[str], pad: int | None) -> None:
        parts = parts_of(text, tokenizer)
        super().__init__(tokenizer, parts[1::2])
        self._stripped, self._pad = stripped, pad
        self.system = system_turn(parts_of(text.partition(PROBLEM)[0], tokenizer))
        self._parts = [self.pieces.mark(part) if k % 2 else part for k, part in enumerate(parts) if part]

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        """As `Format`: the one place is the last token, as transformers finds it."""
        return Encoded(tuple(ids), (self._last(ids),))

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; every step is scored at its last token, as transformers finds it."""
        texts = {PROBLEM: problem, SOLUTION: join(steps)}
        kept = {mark: text.strip() if mark in self._stripped else text for mark, text in texts.items()}
        plain = [_PLACE.sub(lambda found: kept[found[0]], part) for part in self._parts if isinstance(part, str)]
        encoded = iter(self.pieces.encode(plain))
        draft = Draft()
        for part in self._parts:
            draft.add(next(encoded) if isinstance(part, str) else [part])
        ids = draft.done().ids
        return Encoded(ids, (self._last(ids),) * len(steps))

    def _last(self, ids: Sequence[int]) -> int:
        return max((index for index, token in enumerate(ids) if token != self._pad), default=len(ids) - 1)


def _build(tokenizer: Tokenizer, directory: Path) -> OutcomeFormat:
    text, stripped, model = render(directory, PROBLEM, SOLUTION)
    # as its authors do: what begins every text is left to the tokenizer, also where the template has it
    begin = "".join(model.convert_ids_to_tokens(model("")["input_ids"]))
    config = json.loads((directory / "config.json").read_text("utf-8"))
    text = begin + text.removeprefix(model.bos_token or "")
    return OutcomeFormat(tokenizer, text, stripped, config.get("pad_token_id"))


FAMILIES = (
    Family(
        name=OutcomeFormat.family,
        about="any classifier of chats with one output: an outcome reward, the same for every step",
        readout=Outcome,
        models=(
            KnownModel("Skywork/Skywork-Reward-V2-Qwen3-0.6B", "Apache-2.0", 0.6),
            KnownModel("Skywork/Skywork-Reward-V2-Qwen3-1.7B", "Apache-2.0", 1.7),
            KnownModel("Skywork/Skywork-Reward-V2-Qwen3-4B", "Apache-2.0", 4.0),
            KnownModel("Skywork/Skywork-Reward-V2-Qwen3-8B", "Apache-2.0", 8.2),
        ),
        build=_build,
        aggregate="last",
    ),
)
