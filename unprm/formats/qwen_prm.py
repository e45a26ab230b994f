"""Qwen2.5-Math's PRMs: `<extra_0>` after each step of the assistant's turn, and a head of two classes that is read
there (Zhang et al., "The Lessons of Developing Process Reward Models in Mathematical Reasoning", 2025)."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from unprm.formats.chatml import ChatmlFormat
from unprm.formats.family import Family, Head, KnownModel, Readout
from unprm.formats.pieces import StepTag
from unprm.types import Encoded

TAG = "<extra_0>"


class QwenPrmFormat(ChatmlFormat):
    """Raises `ModelInvalid` if the vocabulary lacks the tag or the layout's marks."""

    family = "qwen-prm"
    marks = (*ChatmlFormat.marks, TAG)
    readout: Readout = Head(("score.0", "score.2"))
    input_format = (
        "chat: system, user {problem}, assistant {step 1}<extra_0>{step 2}<extra_0>… (scored at each <extra_0>)"
    )
    tag: StepTag

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.tag = StepTag(self.pieces.mark(TAG), TAG)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; scored at the tag after each step."""
        draft, tag = self.opened(problem), self.tag.id
        first, *others = steps
        for piece in self.pieces.encode([f"assistant\n{first}", *others]):
            draft.step(piece, tag)
        return self.closed(draft).done()


FAMILY = Family(
    name=QwenPrmFormat.family,
    about="Qwen2 with a head of two classes, read at <extra_0> after each step",
    readout=Head,
    architectures=("Qwen2ForProcessRewardModel",),
    models=(
        KnownModel("Qwen/Qwen2.5-Math-PRM-7B", "Qwen", 7.6, 73.5),
        KnownModel("Qwen/Qwen2.5-Math-PRM-72B", "Qwen", 72.7, 78.3),
        KnownModel("Qwen/Qwen2.5-Math-7B-PRM800K", "Apache-2.0", 7.6, 56.5),
    ),
    build=lambda tokenizer, directory: QwenPrmFormat(tokenizer),
)
