"""The chats that published verifiers were trained with, word for word.

The user gives the steps one by one, and the assistant answers each with a verdict. In an input all answers are the
positive one, as in the authors' evaluations.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conversation:
    """`first` and `later`: templates of the user's messages, with the fields `problem` (first only) and `step`.
    `positive` and `negative`: the answers."""

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
