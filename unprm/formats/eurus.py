"""EurusPRM: implicit rewards, the log-likelihood ratio of the model and the one that it was trained from (Cui et al.,
"Process Reinforcement through Implicit Rewards", 2025).

A step's value is the sum over the response up to the step's last token. The authors' script goes up to two tokens
further, over the blank line into the next step; with their β of 0.001 that makes hardly any difference.
"""

from collections.abc import Sequence

from unprm.formats.chatml import ChatmlFormat
from unprm.formats.family import Family, KnownModel, LikelihoodRatio
from unprm.formats.numbering import numbered
from unprm.types import Encoded

HEAD = "assistant\n"


class EurusFormat(ChatmlFormat):
    """Raises `ModelInvalid` if the vocabulary lacks the layout's marks."""

    family = "eurus"
    readout = LikelihoodRatio(beta=0.001, reference="Qwen/Qwen2.5-Math-7B-Instruct")
    input_format = (
        "chat: system, user {problem}, assistant Step 1: {step 1}\\n\\nStep 2: {step 2}… (scored at each step's end: "
        "log-likelihood ratio of the response so far)"
    )

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; scored at each step's last token, over the response from its first token."""
        first, *others = numbered(steps)
        ids, (head, *places) = self.pieces.locate([HEAD, first, *(f"\n\n{step}" for step in others)])
        draft = self.opened(problem)
        start = len(draft)
        return self.closed(draft.add(ids, scored=places)).done(response=start + head + 1)


FAMILY = Family(
    name=EurusFormat.family,
    about="implicit rewards: a Qwen2 and the reference model it was trained from",
    readout=LikelihoodRatio,
    architectures=(),
    models=(KnownModel("PRIME-RL/EurusPRM-Stage2", "Apache-2.0", 7.6, 31.3),),
    build=lambda tokenizer, directory: EurusFormat(tokenizer),
)
