"""PRMs that answer each step of a chat with a verdict, in their tokenizer's template: RLHFlow's, FoVer's, IBM's
Granite.

All answers of an input are the positive one, as in the authors' evaluations. A verdict is read at the token before it,
so one causal pass scores all steps. Granite's model card takes P(Y) among all tokens; here it is P(Y) against N.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import Family, KnownModel, Verdicts
from unprm.formats.pieces import Draft, PieceFormat, parts_of
from unprm.formats.rendered import ChatTemplate, system_turn
from unprm.types import Encoded

_MARKS = "\ue000\ue001\ue002\ue003\ue004\ue005"


@dataclass(frozen=True, slots=True)
class Conversation:
    """`first`, `later`: the user's messages, with the fields `problem` and `step`; `positive`, `negative`: answers."""

    first: str
    later: str
    positive: str
    negative: str


RLHFLOW = Conversation(first="{problem} {step}", later="{step}", positive="+", negative="-")
"""RLHFlow's PRMs (Xiong et al., "An Implementation of Generative PRM", 2024)."""

FOVER = Conversation(
    first="** Problem **\n{problem}\n\n** Task **\nYour task is to evaluate the accuracy of each step in the provided "
    'solution to the above question. For each step, respond with "correct" if the reasoning is logically valid and '
    "mathematically sound, or if the step is a general statement or transition that does not contain reasoning. "
    'Respond with "incorrect" if the step includes any errors or flawed logic.\n\n** Sotluion **\n{step}',
    later="{step}",
    positive="correct",
    negative="incorrect",
)
"""FoVer's PRMs (Kamoi et al., "Efficient PRM Training Data Synthesis via Formal Verification", 2025). The
misspelling is theirs: the models were trained with it."""

GRANITE = Conversation(
    first="{problem} {step} Is this response correct so far (Y/N)?",
    later="{step} Is this response correct so far (Y/N)?",
    positive="Y",
    negative="N",
)
"""IBM's Granite 3.3 8B Math PRMs, as their model cards have it."""


class Chat(NamedTuple):
    """What a template writes around messages: `opening` before the first, `asked` (`asked_last`, as with an empty
    thought) before an answer, `answered` after it, `closing` after the last. `strips`: whether it strips the user's
    space."""

    opening: str
    asked: str
    answered: str
    asked_last: str
    closing: str
    strips: bool

    @classmethod
    def read(cls, directory: Path) -> Self:
        """That of a directory's model. Raises `ModelInvalid` if there is none, or it differs between messages."""
        text, stripped = ChatTemplate(directory).around(*_MARKS)
        opening, asked, answered, *again, asked_last, closing = re.split(f"[{_MARKS}]", text)
        if again != [asked, answered]:
            raise ModelInvalid(f"{directory}: its chat template does not treat all messages alike")
        return cls(opening, asked, answered, asked_last, closing, _MARKS[0] in stripped)


class _Answer(NamedTuple):
    """Ids of an answer with what the template writes around it, and the one at which it is predicted."""

    ids: list[int]
    scored: list[int]


class VerdictChatFormat(PieceFormat):
    """A conversation in a model's chat template. Raises `ModelInvalid` if no token of the vocabulary parts the
    messages, or answers begin alike."""

    def __init__(self, tokenizer: Tokenizer, family: str, conversation: Conversation, chat: Chat) -> None:
        # text and tokens by turns: what text a token of the template does not part from a message is encoded with it
        opening, asked, answered, asked_last, closing = parts = [parts_of(text, tokenizer) for text in chat[:5]]
        super().__init__(tokenizer, sorted({mark for part in parts for mark in part[1::2]}))
        if 1 in map(len, (asked, answered, asked_last)):
            raise ModelInvalid(
                f"the chat template separates messages by no token of its own, as family {family} needs: is this the "
                "right --family?"
            )
        self.family = family
        self.system = system_turn(opening)
        self._conversation, self._strips = conversation, chat.strips
        self._leads, self._tails = (opening[-1], answered[-1]), (asked[0], asked_last[0])
        self._opening = self._ids(opening[:-1])
        self._answer, verdicts = self._answered(asked, answered[:-1])
        self._end, last_verdicts = self._answered(asked_last, closing)
        positive, negative = verdicts
        if not positive or not negative or positive == negative or verdicts != last_verdicts:
            raise ModelInvalid(
                f"the answers {conversation.positive!r} and {conversation.negative!r} don't begin with a token each "
                f"that tells them apart in this vocabulary: the model is none of family {family}"
            )
        self.readout = Verdicts(positive[0], negative[0])

    def _answered(self, asked: Sequence[str], end: Sequence[str]) -> tuple["_Answer", list[list[int]]]:
        """The positive answer in its place, and each answer's first token, None if merged with what is before."""
        asking, lead, words = self._ids(["", *asked[1:-1]]), asked[-1], self._conversation
        answers = [f"{lead}{word}{end[0]}" for word in (words.positive, words.negative)]
        before, *ids = self.pieces.encode([lead, *answers])
        count = len(before)
        firsts = [each[count : count + 1] if each[:count] == before else [] for each in ids]
        return _Answer([*asking, *ids[0], *self._ids(["", *end[1:]])], [len(asking) + count - 1]), firsts

    @property
    def input_format(self) -> str:
        words = self._conversation
        first = words.first.format(problem="{problem}", step="{step 1}")
        later = words.later.format(step="{step 2}")
        text = (
            f"the model's chat template: user {first}, assistant {words.positive}, user {later}, "
            f"assistant {words.positive}, … "
        )
        read = f"(scored before each {words.positive}: P({words.positive}) against {words.negative})"
        return text.replace("\n", "\\n") + read

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; scored where each answer is predicted."""
        words, (first, later) = self._conversation, self._leads
        texts = [words.first.format(problem=problem, step=steps[0]), *(words.later.format(step=s) for s in steps[1:])]
        if self._strips:
            texts = [text.strip() for text in texts]
        before, (tail, last_tail) = len(steps) - 1, self._tails
        parts = zip([first, *[later] * before], texts, [*[tail] * before, last_tail], strict=True)
        turns = self.pieces.encode(list(map("".join, parts)))
        draft = Draft().add(self._opening)
        for turn, answer in zip(turns, [*[self._answer] * before, self._end], strict=True):
            draft.add(turn).add(*answer)
        return draft.done()

    def _ids(self, parts: Sequence[str]) -> list[int]:
        """Ids of text and tokens by turns."""
        texts = iter(self.pieces.encode(parts[::2]))
        return [token for k, part in enumerate(parts) for token in ([self.pieces.mark(part)] if k % 2 else next(texts))]


FAMILIES = (
    Family(
        name="rlhflow",
        about="Llama 3.1 that answers each step of a chat; P(+) where the answer is predicted",
        readout=Verdicts,
        models=(
            KnownModel("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "Llama 3.1 Community", 8.0, 28.4),
            KnownModel("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "Llama 3.1 Community", 8.0, 26.6),
        ),
        build=lambda tokenizer, directory: VerdictChatFormat(tokenizer, "rlhflow", RLHFLOW, Chat.read(directory)),
        aggregate="mean",
    ),
    Family(
        name="fover",
        about="Llama 3.1 or Qwen2.5 that answers each step of a chat; P(correct) where the answer is predicted",
        readout=Verdicts,
        models=(
            KnownModel("ryokamoi/Llama-3.1-8B-FoVer-PRM", "Llama 3.1 Community", 8.0),
            KnownModel("ryokamoi/Llama-3.1-8B-FoVer-PRM-2026", "Llama 3.1 Community", 8.0),
            KnownModel("ryokamoi/Qwen-2.5-7B-FoVer-PRM", "Apache-2.0", 7.6),
            KnownModel("ryokamoi/Qwen-2.5-7B-FoVer-PRM-2026", "Apache-2.0", 7.6),
        ),
        build=lambda tokenizer, directory: VerdictChatFormat(tokenizer, "fover", FOVER, Chat.read(directory)),
    ),
    Family(
        name="granite",
        about="Granite 3.3 that answers each step of a chat; P(Y) where the answer is predicted",
        readout=Verdicts,
        models=(
            KnownModel("ibm-granite/granite-3.3-8b-lora-math-prm", "Apache-2.0", 8.2),
            KnownModel("ibm-granite/granite-3.3-8b-math-prm-v2", "Apache-2.0", 8.2),
        ),
        build=lambda tokenizer, directory: VerdictChatFormat(tokenizer, "granite", GRANITE, Chat.read(directory)),
        aggregate="mean",
    ),
)
