"""RLHFlow's PRMs: a Llama 3 chat in which the user gives the steps and the assistant answers each with `+` or `-`
(Xiong et al., "An Implementation of Generative PRM", 2024).

The verdict on a step is the model's predicted answer, so it is read at the position before the answer; all answers
in the input are `+`, as in the authors' evaluation, and one causal pass scores all steps.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from unprm.errors import ModelInvalid
from unprm.formats.family import Family, KnownModel, Verdicts
from unprm.formats.pieces import Draft, PieceFormat
from unprm.types import Encoded

BEGIN, START, STOP, END = "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"


class RlhflowFormat(PieceFormat):
    """Raises `ModelInvalid` if the vocabulary lacks the layout's marks, or a verdict is not a single token."""

    family = "rlhflow"
    marks = (BEGIN, START, STOP, END)
    input_format = (
        "chat without a system turn: user {problem} {step 1}, assistant +, user {step 2}, assistant +, … "
        "(scored before each +: P(+) against -)"
    )

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        positive, negative = self.pieces.encode(["\n\n+", "\n\n-"])
        if not len(positive) == len(negative) == 2 or positive[0] != negative[0]:
            raise ModelInvalid("'\\n\\n+' and '\\n\\n-' are not two tokens each: the model belongs to another family")
        self.readout = Verdicts(positive[1], negative[1])
        self._answer = positive

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat, with turns stripped as in its template; scored where each `+` is predicted."""
        start, stop, end = ([self.pieces.mark(name)] for name in (START, STOP, END))
        messages = [f"{problem} {steps[0]}", *steps[1:]]
        user, assistant, *turns = self.pieces.encode(
            ["user", "assistant", *(f"\n\n{text.strip()}" for text in messages)]
        )
        draft = Draft().add([self.pieces.mark(BEGIN)])
        for turn in turns:
            draft.add(start).add(user).add(stop).add(turn).add(end)
            draft.add(start).add(assistant).add(stop).add(self._answer, scored=[0]).add(end)
        return draft.done()


FAMILY = Family(
    name=RlhflowFormat.family,
    about="Llama 3.1 that answers each step of a chat; P(+) where the answer is predicted",
    readout=Verdicts,
    architectures=(),
    models=(
        KnownModel("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "Llama 3.1 Community", 8.0, 28.4),
        KnownModel("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "Llama 3.1 Community", 8.0, 26.6),
    ),
    build=lambda tokenizer, directory: RlhflowFormat(tokenizer),
    aggregate="mean",
)
