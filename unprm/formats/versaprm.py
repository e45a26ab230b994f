"""VersaPRM and the PRMs that it was trained from: no chat, a space and four newlines after each step, P(+) against `-`
there (Zeng et al., "VersaPRM: Multi-Domain Process Reward Model via Synthetic Reasoning Data", 2025)."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from unprm.formats.family import Family, KnownModel, Verdicts
from unprm.formats.pieces import Draft, PieceFormat, StepTag
from unprm.types import Encoded

TAG = " \n\n\n\n"
_BEGIN = "<|begin_of_text|>"
"""What Llama begins every text with."""


class VersaprmFormat(PieceFormat):
    """Raises `ModelInvalid` if the tag or a verdict is not one token."""

    family = "versaprm"
    input_format = (
        "{begin of text, with Llama}{problem} \\n\\n{step 1} \\n\\n\\n\\n{step 2} \\n\\n\\n\\n… "
        "(scored after each step: P(+) against -)"
    )
    tag: StepTag

    def __init__(self, tokenizer: Tokenizer) -> None:
        begin = tokenizer.token_to_id(_BEGIN)
        super().__init__(tokenizer, () if begin is None else [_BEGIN])
        self._begin = [] if begin is None else [begin]
        tag, positive, negative = map(self.pieces.single, (TAG, "+", "-"))
        self.tag = StepTag(tag, TAG)
        self.readout = Verdicts(positive, negative)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of problem and steps, a tag after each step; scored at the tags.

        As by the authors, space around a text is left out, and so is what looks like a tag within it.
        """
        question, *texts = (text.strip().replace(TAG, "") for text in (problem, *steps))
        head, *pieces = self.pieces.encode([f"{question} \n\n", *texts])
        draft = Draft().add(self._begin).add(head)
        for piece in pieces:
            draft.step(piece, self.tag.id)
        return draft.done()


FAMILY = Family(
    name=VersaprmFormat.family,
    about="Llama 3.1 or Qwen2.5-Math; P(+) at the four newlines after each step",
    readout=Verdicts,
    architectures=(),
    models=(
        KnownModel("UW-Madison-Lee-Lab/VersaPRM", "Llama 3.1 Community", 8.0),
        KnownModel("UW-Madison-Lee-Lab/VersaPRM-Aug", "Llama 3.1 Community", 8.0),
        KnownModel("UW-Madison-Lee-Lab/VersaPRM-Base-8B", "Llama 3.1 Community", 8.0),
        KnownModel("UW-Madison-Lee-Lab/Llama-PRM800K", "Llama 3.1 Community", 8.0),
        KnownModel("UW-Madison-Lee-Lab/Qwen-PRM800K", "not known", 7.6),
    ),
    build=lambda tokenizer, directory: VersaprmFormat(tokenizer),
)
