"""Chats in which the assistant answers each step with a verdict, in the template of the model's own tokenizer.

A verdict is the model's predicted answer, so it is read at the token before the answer, and one causal pass scores all
steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.chatml import END, START
from unprm.formats.conversations import Conversation
from unprm.formats.family import Verdicts
from unprm.formats.pieces import Draft, PieceFormat
from unprm.types import Encoded


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template: `begin` once, then `{start}{role}{stop}{lead}{text}{end}{tail}` for each turn.

    `begin`, `start`, `stop` and `end` are tokens of the vocabulary; `begin` and `stop` may be empty. `system`: text of
    the system turn that it adds to a chat without one, if not empty. `strips`: whether it strips the other texts.
    """

    start: str
    end: str
    begin: str = ""
    stop: str = ""
    lead: str = ""
    tail: str = ""
    system: str = ""
    strips: bool = False

    @property
    def marks(self) -> list[str]:
        """Its tokens."""
        return [mark for mark in (self.begin, self.start, self.stop, self.end) if mark]


LLAMA = Template(
    begin="<|begin_of_text|>",
    start="<|start_header_id|>",
    stop="<|end_header_id|>",
    lead="\n\n",
    end="<|eot_id|>",
    strips=True,
)
"""Llama 3, without a system turn."""

QWEN = Template(
    start=START,
    lead="\n",
    end=END,
    tail="\n",
    system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
)
"""Qwen2.5's instruction models."""


class VerdictChatFormat(PieceFormat):
    """A conversation in a template. `logits_divisor`: what the model divides its logits by.

    Raises `ModelInvalid` if the vocabulary lacks a token of the template, or the answers begin with the same token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        family: str,
        conversation: Conversation,
        template: Template,
        logits_divisor: float = 1.0,
    ) -> None:
        super().__init__(tokenizer, template.marks)
        self.family = family
        self._conversation, self._template = conversation, template
        opened, self._answer, other = self._turns("assistant", ["", conversation.positive, conversation.negative])
        size = len(opened)
        positive, negative = (ids[size : size + 1] if ids[:size] == opened else [] for ids in (self._answer, other))
        if not positive or not negative or positive == negative:
            raise ModelInvalid(
                f"the answers {conversation.positive!r} and {conversation.negative!r} don't begin with a token each "
                f"that tells them apart in this vocabulary: the model is none of family {family}"
            )
        self.readout = Verdicts(positive[0], negative[0], logits_divisor)
        self._before = size - 1
        self._closing = [self.pieces.mark(template.end), *self.pieces.encode([template.tail])[0]]
        self._opening = [self.pieces.mark(template.begin)] if template.begin else []
        if template.system:
            self._opening += [*self._turns("system", [template.system])[0], *self._closing]

    @property
    def input_format(self) -> str:
        """The input, described in words."""
        words, system = self._conversation, self._template.system
        head = f"chat: system {system}, user" if system else "chat without a system turn: user"
        first = words.first.format(problem="{problem}", step="{step 1}")
        later = words.later.format(step="{step 2}")
        text = f"{head} {first}, assistant {words.positive}, user {later}, assistant {words.positive}, … "
        read = f"(scored before each {words.positive}: P({words.positive}) against {words.negative})"
        return text.replace("\n", "\\n") + read

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; scored where each answer is predicted."""
        words = self._conversation
        texts = [words.first.format(problem=problem, step=steps[0]), *(words.later.format(step=s) for s in steps[1:])]
        if self._template.strips:
            texts = [text.strip() for text in texts]
        draft = Draft().add(self._opening)
        for turn in self._turns("user", texts):
            draft.add(turn).add(self._closing).add(self._answer, scored=[self._before]).add(self._closing)
        return draft.done()

    def _turns(self, role: str, texts: Sequence[str]) -> list[list[int]]:
        """Ids of a turn with each of the texts, up to the mark that ends it."""
        start, stop, lead = [self.pieces.mark(self._template.start)], self._template.stop, self._template.lead
        if not stop:
            return [start + ids for ids in self.pieces.encode([f"{role}{lead}{text}" for text in texts])]
        name, *bodies = self.pieces.encode([role, *(lead + text for text in texts)])
        return [[*start, *name, self.pieces.mark(stop), *body] for body in bodies]
