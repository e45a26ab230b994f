"""Outcome reward models: one score for a whole solution, read at the end of a chat (Liu et al., "Skywork-Reward-V2",
2025, and other sequence classifiers with one output).

The score is each step's, so all aggregates but the product are the reward: the sigmoid of a logit of Bradley and
Terry's model, which tells solutions of one problem apart; 0.5 does not part right from wrong.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from unprm.formats.family import Family, KnownModel, Outcome
from unprm.formats.pieces import Draft, PieceFormat, added_names, parted_at, parts_of
from unprm.formats.rendered import PROBLEM, SOLUTION, ChatTemplate, system_turn
from unprm.steps import blanked, join
from unprm.types import Encoded

_GUARDS = "".join(map(chr, range(0xE002, 0xE00A)))
"""Characters of no meaning."""


class OutcomeFormat(PieceFormat):
    """`write`: makes the model's chat. `pad`: the id that is skipped in search of the chat's last token."""

    family = "outcome"
    readout = Outcome("score")
    input_format = (
        "the model's chat template: user {problem}, assistant {step 1}\\n\\n{step 2}… (scored once, at the end: every "
        "step has the solution's score)"
    )

    def __init__(self, tokenizer: Tokenizer, write: Callable[[str, str], str], pad: int | None) -> None:
        text = write(PROBLEM, SOLUTION)
        marks = parts_of(text, tokenizer)[1::2]
        super().__init__(tokenizer, marks)
        self._write, self._pad, self._marks = write, pad, Counter(marks)
        self.system = system_turn(parts_of(text.partition(PROBLEM)[0], tokenizer))
        names = [name for name in added_names(tokenizer) if name.strip()]
        self._names, self._names_in_solution = parted_at(names), parted_at(filter(str.strip, map(blanked, names)))

    def at_tags(self, ids: Sequence[int]) -> Encoded:
        """As `Format`: the one place is the last token, as transformers finds it."""
        return Encoded(tuple(ids), (self._last(ids),))

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat, scored at its last token. The template reads thoughts, and may move their tags."""
        solution = join(steps)
        texts = problem + solution
        guard = next((sign for sign in _GUARDS if sign not in texts), _GUARDS[0])  # of all, the first is left out

        def guarded(found: re.Match[str]) -> str:
            return found[0][0] + guard + found[0][1:]

        chat = self._write(self._names.sub(guarded, problem), self._names_in_solution.sub(guarded, solution))
        parts, left = [""], self._marks.copy()
        for number, part in enumerate(self._names.split(chat)):
            if number % 2 and left[part]:
                left[part] -= 1
                parts += (part, "")
            else:
                parts[-1] += part
        plain = iter(self.pieces.encode([part.replace(guard, "") for part in parts[::2]]))
        draft = Draft()
        for number, part in enumerate(parts):
            draft.add([self.pieces.mark(part)] if number % 2 else next(plain))
        ids = draft.done().ids
        return Encoded(ids, (self._last(ids),) * len(steps))

    def _last(self, ids: Sequence[int]) -> int:
        return max((index for index, token in enumerate(ids) if token != self._pad), default=len(ids) - 1)


def _build(tokenizer: Tokenizer, directory: Path) -> OutcomeFormat:
    template = ChatTemplate(directory)
    template.around(PROBLEM, SOLUTION)
    model = template.tokenizer
    # as its authors do: what begins every text is left to the tokenizer, also where the template has it
    begin = "".join(model.convert_ids_to_tokens(model("")["input_ids"]))
    config = json.loads((directory / "config.json").read_text("utf-8"))

    def write(problem: str, solution: str) -> str:
        return begin + template(problem, solution).removeprefix(model.bos_token or "")

    return OutcomeFormat(tokenizer, write, config.get("pad_token_id"))


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
