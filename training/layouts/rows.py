"""A row of each layout, checked, and the labelled solutions in it.

`solutions()` of a row raises `ValueError` where the row contradicts itself.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AliasChoices, AliasPath, Field

from unprm import steps

from ..schema import Label, LabelledSolution, NonEmpty, adapter

Rating = Literal[-1, 0, 1]
Text = Annotated[str, Field(pattern=r"\S")]
TAG = "ки"
"""Follows each step in Math-Shepherd."""
INTRODUCTION = "Let's think step by step."
"""Begins every solution of Step-DPO, before its first step."""
_FIRST_STEP = re.compile(r"Step\s*1\s*:")
_HEADING = re.compile(r"Step\s*\d+\s*:")


def _solution(problem: str, steps: Sequence[str], labels: Sequence[Label], answer: object = None) -> LabelledSolution:
    fields = {"problem": problem.strip(), "steps": [step.strip() for step in steps], "labels": labels, "answer": answer}
    return adapter(LabelledSolution).validate_python(fields)


@dataclass(frozen=True, slots=True)
class MathShepherdRow:
    """Math-Shepherd (Wang et al., 2024): `input` is a problem and its steps with `TAG` after each; `label` is the same
    text with + or - in the place of each tag."""

    input: str
    label: str

    def solutions(self) -> Iterator[LabelledSolution]:
        """The one solution. A step after the last tag has no label. Where `label` has the tag itself, it is part of a
        word."""
        text, *others = self.input.split(TAG)
        pattern = f"({TAG}|[+-])".join(map(re.escape, (text, *others)))
        if (found := re.match(pattern, self.label)) is None:
            raise ValueError(f"label: expected the text of input with + or - in the place of each {TAG}")
        if self.label[found.end() :]:
            raise ValueError(f"label: expected the text of input after the last {TAG}, too")
        texts = [text]
        for sign, part in zip(found.groups(), others, strict=True):
            if sign == TAG:
                texts[-1] += sign + part
            else:
                texts.append(part)
        yield _tagged(texts, [sign == "+" for sign in found.groups() if sign != TAG])


@dataclass(frozen=True, slots=True)
class ValuesRow:
    """OpenRLHF's process rewards, in `input`, and those of ER-PRM (Zhang et al., 2024), in `text`: a problem and its
    steps with `TAG` after each, and for each tag a `value`: + or -, or a number in [0, 1]."""

    text: Annotated[str, Field(validation_alias=AliasChoices("input", "text"))]
    value: tuple[Literal["+", "-"] | Annotated[float, Field(ge=0, le=1)], ...]

    def solutions(self) -> Iterator[LabelledSolution]:
        """The one solution. A step after the last tag has no label."""
        texts = self.text.split(TAG)
        if len(self.value) != len(texts) - 1:
            raise ValueError(f"value: expected one for each of {len(texts) - 1} {TAG}, got {len(self.value)}")
        yield _tagged(texts, [value == "+" if isinstance(value, str) else value for value in self.value])


def _tagged(texts: Sequence[str], labels: Sequence[Label]) -> LabelledSolution:
    """The solution in the texts between tags, the first with the problem before its step; the last, which no tag
    follows, has no label, and is no step if it is blank."""
    texts = texts if texts[-1].strip() else texts[:-1]
    problem, first = _cut(texts[0] if texts else "")
    if not first:
        raise ValueError("input: expected a problem, then `Step 1:`")
    return _solution(problem, [first, *texts[1:]], [*labels, *[None] * (len(texts) - len(labels))])


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class RlhflowRow:
    """RLHFlow (Xiong et al., 2024): a user gives the steps, the first one with the problem before it, and an assistant
    answers each with + or -."""

    conversations: Annotated[tuple[ConversationTurn, ...], Field(min_length=2)]

    def solutions(self) -> Iterator[LabelledSolution]:
        """The one solution. Where no `Step 1:` parts the problem from the first step, both are taken for the problem,
        and the first answer counts for nothing."""
        if [turn.role for turn in self.conversations] != ["user", "assistant"] * (len(self.conversations) // 2):
            raise ValueError("conversations: expected a user and an assistant by turns")
        signs = [turn.content.strip() for turn in self.conversations[1::2]]
        if not {"+", "-"}.issuperset(signs):
            raise ValueError("conversations: expected + or - from the assistant")
        labels = [sign == "+" for sign in signs]
        problem, first = _cut(self.conversations[0].content)
        texts = [first, *(turn.content for turn in self.conversations[2::2])]
        yield _solution(problem, texts, labels) if first else _solution(problem, texts[1:], labels[1:])


@dataclass(frozen=True, slots=True)
class RatedCompletion:
    """A candidate for a step of PRM800K."""

    text: str
    rating: Rating | None = None

    @property
    def label(self) -> Label:
        """Neutral steps count as right."""
        return None if self.rating is None else self.rating >= 0


@dataclass(frozen=True, slots=True)
class RatedStep:
    """Candidates for one step of PRM800K. `chosen_completion`: index of the one that the solution goes on with, None if
    that is `human_completion`, or if it ends."""

    completions: tuple[RatedCompletion, ...] | None
    human_completion: RatedCompletion | None = None
    chosen_completion: Annotated[int, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        count = len(self.completions or ())
        if self.chosen_completion is not None and self.chosen_completion >= count:
            raise ValueError(f"chosen_completion {self.chosen_completion}, but {count} completions")

    @property
    def alternatives(self) -> list[RatedCompletion]:
        """The rated candidates that were not chosen."""
        rated = enumerate(self.completions or ())
        return [one for index, one in rated if index != self.chosen_completion and one.rating is not None]

    @property
    def chosen(self) -> tuple[str, Label] | None:
        """The step that the solution goes on with, and its label. People wrote a step where all others were wrong: it
        is right."""
        if self.chosen_completion is not None and self.completions:
            chosen = self.completions[self.chosen_completion]
            return chosen.text, chosen.label
        return (self.human_completion.text, True) if self.human_completion else None


@dataclass(frozen=True, slots=True)
class Prm800kRow:
    """PRM800K (Lightman et al., 2023), as its authors published it."""

    problem: Annotated[NonEmpty, Field(validation_alias=AliasPath("question", "problem"))]
    steps: Annotated[tuple[RatedStep, ...], Field(validation_alias=AliasPath("label", "steps"))]
    answer: Annotated[str | None, Field(validation_alias=AliasPath("question", "ground_truth_answer"))] = None

    def solutions(self) -> Iterator[LabelledSolution]:
        """The chosen steps; and for each rated alternative, the chosen steps before it with unknown labels, since the
        first solution has them, and itself. None if nothing is rated."""
        path: list[str] = []
        labels: list[Label] = []
        branches = []
        for step in self.steps:
            unknown: list[Label] = [None] * len(path)
            branches += [([*path, other.text], [*unknown, other.label]) for other in step.alternatives]
            if step.chosen is None:
                break
            path.append(step.chosen[0])
            labels.append(step.chosen[1])
        whole = [(path, labels)] if any(label is not None for label in labels) else []
        for texts, known in whole + branches:
            yield _solution(self.problem, texts, known, self.answer)


@dataclass(frozen=True, slots=True)
class PrmbenchRow:
    """PRMBench (Song et al., 2025): a right solution, and a version of it with wrong steps, which count from 1."""

    question: NonEmpty
    modified_question: NonEmpty
    original_process: tuple[str, ...]
    modified_process: tuple[str, ...]
    error_steps: Annotated[
        tuple[Annotated[int, Field(ge=1, strict=True)], ...],
        Field(validation_alias=AliasChoices("error_steps", "error_steps_1based")),
    ]

    def __post_init__(self) -> None:
        if max(self.error_steps, default=0) > len(self.modified_process):
            raise ValueError(f"error_steps: {max(self.error_steps)}, but {len(self.modified_process)} modified steps")

    def solutions(self) -> Iterator[LabelledSolution]:
        """Both solutions. Each step is judged for itself: one after a wrong step can be right."""
        count, wrong = len(self.modified_process), set(self.error_steps)
        yield _solution(self.question, self.original_process, [True] * len(self.original_process))
        yield _solution(self.modified_question, self.modified_process, [k not in wrong for k in range(1, count + 1)])


@dataclass(frozen=True, slots=True)
class StepDpoRow:
    """Step-DPO (Lai et al., 2024): a right and a wrong way to go on from the same steps. `initial_reason_steps` ends
    with the number of the step that follows."""

    prompt: NonEmpty
    initial_reason_steps: str
    chosen: Text
    rejected: Text
    answer: object = None

    def solutions(self) -> Iterator[LabelledSolution]:
        """Both ways. The steps before are right, as the rejected step was found to be the first wrong one; they have
        labels with the chosen step only, so that they count once."""
        texts = steps.split(self.initial_reason_steps.strip().removeprefix(INTRODUCTION), "step")
        number = texts.pop() if texts and _HEADING.fullmatch(texts[-1]) else ""
        chosen, rejected = (f"{number} {step.strip()}" for step in (self.chosen, self.rejected))
        yield _solution(self.prompt, [*texts, chosen], [True] * (len(texts) + 1), self.answer)
        yield _solution(self.prompt, [*texts, rejected], [*[None] * len(texts), False], self.answer)


def _cut(text: str) -> tuple[str, str]:
    """Problem and first step, which begins at the last `Step 1:`; an empty step if there is none."""
    starts = [match.start() for match in _FIRST_STEP.finditer(text)] or [len(text)]
    return text[: starts[-1]], text[starts[-1] :]
