"""PathFinder-PRM: whether a step errs in its mathematics and in its consistency is predicted first; then, after these
answers, whether it is correct (Pala et al., "Error Typing for Smarter Rewards: Improving Process Reward Models with
Error-Aware Hierarchical Supervision", 2025).

A step's score is the second pass's P(`<+>`) against `<->`, whatever the first pass answered. The authors' guided search
takes -1 where an answer is `<->`, and their run of ProcessBench stops after the first pass; but the model is trained to
call no such step correct. The layout is that of their training data; their guided search and model card spell the
instruction "mathemetical", and the former gives the step in a user's turn.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.chatml import ChatmlFormat
from unprm.formats.family import Family, KnownModel, Verdicts
from unprm.formats.pieces import Draft
from unprm.formats.rendered import PROBLEM, SOLUTION, render
from unprm.types import Encoded

GOOD, BAD, OPEN = "<+>", "<->", "<extra>"
"""The answers, and what stands where one is predicted."""
INSTRUCTION = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness, logic "
    "consistency of the current step and whether it will lead to the correct final solution"
)
_TURN = "<\\|im_start\\|>{}\n{}<\\|im_end\\|>\n".format
_CHAT = re.compile(_TURN("system", "(.*)") + _TURN("user", PROBLEM) + _TURN("assistant", SOLUTION))


@dataclass(frozen=True, slots=True)
class EncodedTexts(Encoded):
    """The input of the last step, and the texts that those of the other steps are made from."""

    problem: str = ""
    steps: tuple[str, ...] = ()


class PathfinderFormat(ChatmlFormat):
    """`system`: the system turn of the model's chat template.

    Raises `ModelInvalid` if the vocabulary lacks an answer or one of the layout's marks.
    """

    family = "pathfinder"
    marks = (*ChatmlFormat.marks, GOOD, BAD, OPEN)
    input_format = (
        f"for each step a chat: system, user {INSTRUCTION}\\n\\n Question: {{problem}}, assistant "
        f"{{step 1}}\\n\\n{{step 2}}\\n\\n… Current Step: {{step}} Math reasoning: {OPEN}, Consistency: {OPEN}; then "
        f"again, with the two answers and Correctness: {OPEN} (scored before this: P({GOOD}) against {BAD})"
    )

    def __init__(self, tokenizer: Tokenizer, system: str) -> None:
        super().__init__(tokenizer)
        self.system = system
        self._good, self._bad, self._open = map(self.pieces.mark, (GOOD, BAD, OPEN))
        self._consistency, self._correctness = self.pieces.encode([", Consistency: ", ", Correctness: "])
        self.readout = Verdicts(self._good, self._bad)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the last step's second pass, the longest input, as if both answers were good.

        Positions: where that step is scored, and before it the last tokens of the others.
        """
        draft = self._opened(problem)
        ids, places = self.pieces.locate(_parts(steps))
        draft.add(ids, scored=places[:-2])
        tail = self._answered(self._good, self._good)
        item = self.closed(draft.add([*tail, self._open], scored=[len(tail) - 1])).done()
        return EncodedTexts(item.ids, item.positions, problem=problem, steps=tuple(steps))

    def first(self, item: Encoded) -> list[Encoded]:
        """As `TwoPassFormat`: for each step, where mathematics and consistency are judged."""
        made = cast(EncodedTexts, item)  # what `encode` returns
        head = self._opened(made.problem).done().ids
        texts = ["".join(_parts(made.steps[:count])) for count in range(1, len(made.steps) + 1)]
        tail = [self._open, *self._consistency]
        return [
            Draft().add(head).add(ids, scored=[len(ids) - 1]).add(tail, scored=[len(tail) - 1]).done()
            for ids in self.pieces.encode(texts)
        ]

    def second(self, first: Encoded, good: Sequence[bool]) -> Encoded:
        """As `TwoPassFormat`: where correctness is judged."""
        ids = first.ids[: first.positions[0] + 1]
        tail = self._answered(*(self._good if answer else self._bad for answer in good))
        return Draft().add(ids).add(tail, scored=[len(tail) - 1]).done()

    def _opened(self, problem: str) -> Draft:
        return self.opened(f"{INSTRUCTION}\n\n Question: {problem}")

    def _answered(self, mathematics: int, consistency: int) -> list[int]:
        return [mathematics, *self._consistency, consistency, *self._correctness]


def _parts(steps: Sequence[str]) -> list[str]:
    """The assistant's turn up to the first answer about the last of these steps: a part per step, and what follows."""
    *before, current = steps
    first, *others = [*before, f"Current Step: {current}"]
    return [f"assistant\n{first}", *(f"\n\n{part}" for part in others), " Math reasoning: "]


def _build(tokenizer: Tokenizer, directory: Path) -> PathfinderFormat:
    text, stripped, _ = render(directory, PROBLEM, SOLUTION)
    found = _CHAT.fullmatch(text)
    if found is None or stripped:
        raise ModelInvalid(f"{directory}: its chat template is not Qwen2.5's, which this family's input is made with")
    return PathfinderFormat(tokenizer, found[1])


FAMILIES = (
    Family(
        name=PathfinderFormat.family,
        about="Qwen2.5 that is asked twice about each step: for its errors, then for P(<+>) given these",
        readout=Verdicts,
        models=(KnownModel("declare-lab/PathFinder-PRM-7B", "MIT", 7.6, 69.5),),
        build=_build,
    ),
)
