"""Math-Shepherd's PRM: no chat, ` ки` after each step, P(+) against `-` there (Wang et al., "Math-Shepherd", 2024)."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from unprm.formats.family import Family, KnownModel, Verdicts
from unprm.formats.numbering import numbered
from unprm.formats.pieces import PieceFormat, StepTag, token_id
from unprm.types import Encoded

BEGIN = "<s>"
SPACE = "▁"
"""A space, as SentencePiece writes it; in a text, this character can't be distinguished from a space."""
TAG = " ки"


class MathShepherdFormat(PieceFormat):
    """Raises `ModelInvalid` if the tag or a verdict is not in the vocabulary."""

    family = "math-shepherd"
    input_format = "{problem} Step 1: {step 1} ки\\nStep 2: {step 2} ки\\n… (scored at each ки: P(+) against -)"
    tag: StepTag

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._begin = token_id(tokenizer, BEGIN)
        tag, positive, negative = (token_id(tokenizer, SPACE + name) for name in ("ки", "+", "-"))
        self.tag = StepTag(tag, "")
        self.readout = Verdicts(positive, negative)

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the whole input as one text, since a separate piece would get a space before it; scored at the tags.

        Space at a step's end is left out: next to the space of the tag it would change the tag's token.
        """
        first, *others = (step.replace(SPACE, " ").rstrip() + TAG for step in numbered(steps))
        ids, (_, *positions, _) = self.pieces.locate([f"{problem} ", first, *(f"\n{step}" for step in others), "\n"])
        assert all(ids[position] == self.tag.id for position in positions), "the tag was merged with what is before it"
        return Encoded((self._begin, *ids), tuple(position + 1 for position in positions))


FAMILY = Family(
    name=MathShepherdFormat.family,
    about="Mistral; P(+) at ки after each step",
    readout=Verdicts,
    architectures=(),
    models=(KnownModel("peiyi9979/math-shepherd-mistral-7b-prm", "not stated", 7.2, 31.5),),
    build=lambda tokenizer, directory: MathShepherdFormat(tokenizer),
)
