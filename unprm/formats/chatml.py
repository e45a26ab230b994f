"""PRMs in the chat layout of Qwen2, between `<|im_start|>` and `<|im_end|>`: Qwen2.5-Math's, ActPRM, EurusPRM."""

from collections.abc import Sequence
from typing import ClassVar

from tokenizers import Tokenizer

from unprm.formats.family import Ensemble, Family, Head, KnownModel, LikelihoodRatio, Readout
from unprm.formats.pieces import Draft, PieceFormat
from unprm.steps import numbered
from unprm.types import Encoded, StepTag

START, END = "<|im_start|>", "<|im_end|>"
SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
"""The system turn that Qwen2.5-Math models are trained with."""
TAG = "<extra_0>"


class ChatmlFormat(PieceFormat):
    """Begins every input with the system turn, and the problem as the user's turn."""

    marks: ClassVar[tuple[str, ...]] = (START, END)
    system = SYSTEM

    def opened(self, problem: str) -> Draft:
        """An input up to the mark that begins the assistant's turn."""
        start, end = [self.pieces.mark(START)], [self.pieces.mark(END)]
        system, user, between = self.pieces.encode([f"system\n{self.system}", f"user\n{problem}", "\n"])
        draft = Draft().add(start).add(system).add(end).add(between)
        return draft.add(start).add(user).add(end).add(between).add(start)

    def closed(self, draft: Draft) -> Draft:
        """The input with the assistant's turn ended."""
        (line,) = self.pieces.encode(["\n"])
        return draft.add([self.pieces.mark(END)]).add(line)


class QwenPrmFormat(ChatmlFormat):
    """Qwen2.5-Math's PRMs: a head of two classes at `<extra_0>` after each step (Zhang et al., "The Lessons of
    Developing Process Reward Models in Mathematical Reasoning", 2025). Raises `ModelInvalid` without tag or marks."""

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
        first, *others = steps
        pieces = self.pieces.encode([f"assistant\n{first}", *others])
        return self.closed(self.opened(problem).steps(pieces, [self.tag.id])).done()


class ActPrmFormat(QwenPrmFormat):
    """ActPRM: an ensemble of heads at each `<extra_0>` (Duan et al., "Efficient Process Reward Model Training via
    Active Learning", 2025), with the system turn of their training, not of their run of ProcessBench."""

    family = "actprm"
    readout = Ensemble(("score.model.nn1", "score.model.nn2", "score.model.nn_out"))


class EurusFormat(ChatmlFormat):
    """EurusPRM: implicit rewards, the log-likelihood ratio to the model that it was trained from (Cui et al., "Process
    Reinforcement through Implicit Rewards", 2025), summed up to a step's last token.

    The authors' script goes up to two tokens further; with their β of 0.001 that makes hardly any difference.
    """

    family = "eurus"
    readout = LikelihoodRatio(beta=0.001, reference="Qwen/Qwen2.5-Math-7B-Instruct")
    input_format = (
        "chat: system, user {problem}, assistant Step 1: {step 1}\\n\\nStep 2: {step 2}… (scored at each step's end: "
        "log-likelihood ratio of the response so far)"
    )

    def encode(self, problem: str, steps: Sequence[str]) -> Encoded:
        """Ids of the chat; scored at each step's last token, over the response from its first token."""
        first, *others = numbered(steps)
        ids, (head, *places) = self.pieces.locate(["assistant\n", first, *(f"\n\n{step}" for step in others)])
        draft = self.opened(problem)
        start = len(draft)
        return self.closed(draft.add(ids, scored=places)).done(response=start + head + 1)


FAMILIES = (
    Family(
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
    ),
    Family(
        name=ActPrmFormat.family,
        about="Qwen2 with an ensemble of heads, whose mean is read at <extra_0> after each step",
        readout=Ensemble,
        architectures=("Qwen2ForEnsemblePRM",),
        models=(
            KnownModel("sail/ActPRM", "Apache-2.0", 7.6, 75.0),
            KnownModel("sail/ActPRM-X", "Apache-2.0", 7.6, 76.0),
        ),
        build=lambda tokenizer, directory: ActPrmFormat(tokenizer),
    ),
    Family(
        name=EurusFormat.family,
        about="implicit rewards: a Qwen2 and the reference model it was trained from",
        readout=LikelihoodRatio,
        models=(KnownModel("PRIME-RL/EurusPRM-Stage2", "Apache-2.0", 7.6, 31.3),),
        build=lambda tokenizer, directory: EurusFormat(tokenizer),
    ),
)
