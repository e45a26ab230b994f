"""Scores read from the answer to each step: P(Yes) against P(No), or the expected grade.

Each step has a request of its own, which allows one token. The answer's probabilities are summed over its spellings.
Where the server gives no log-probabilities, the score is the mean over several sampled answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from unprm.concurrent import all_of
from unprm.engines.judge.answers import expected, stated
from unprm.engines.judge.chat import JudgeChat, Refused, Sample
from unprm.engines.judge.layouts import Messages, StepLayout
from unprm.engines.judge.readout import Reading, asked, mean
from unprm.types import Usage

ANSWER_TOKENS = 4
"""Most tokens of an answer: some models begin with white space, and some spell an answer in several tokens."""


@dataclass(frozen=True, slots=True)
class Stepwise:
    """Asks for each step by each of the layouts, and takes the mean. `repeats`: sampled answers to each, where the
    server gives no log-probabilities."""

    layouts: Sequence[StepLayout]
    repeats: int
    rounds: ClassVar[int] = 1

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """For each layout the conversation of the last step."""
        return [layout.messages(problem, steps) for layout in self.layouts]

    def asked(self, problem: str, steps: Sequence[str]) -> int:
        """A prompt for each step by each layout."""
        return sum(map(asked, self.conversations(problem, steps)))

    def described(self, likeliest: int) -> str:
        """The answers, and how they are read."""
        answers = " or ".join(self.layouts[0].answers) if len(self.layouts[0].answers) == 2 else "a digit"
        if likeliest:
            return f"expected score of the answer ({answers}) over the {likeliest} likeliest tokens"
        return f"mean score of {self.repeats} sampled answers ({answers})"

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The last step is asked first: its conversation begins with all others, so the server's prefix cache then has
        nearly all that they need."""
        last = len(steps) - 1
        by_step = [await self._read(chat, problem, steps)] if steps else []
        by_step += await all_of(self._read(chat, problem, steps[: count + 1]) for count in range(last))
        scores, usages = zip(*(by_step[1:] + by_step[:1]), strict=True)
        return Reading(list(scores), sum(usages, Usage()))

    async def _read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> tuple[float | None, Usage]:
        """The last step's score, and what it cost."""
        found = await all_of(self._ask(chat, layout, layout.messages(problem, steps)) for layout in self.layouts)
        return mean([score for score, _ in found]), sum((usage for _, usage in found), Usage())

    async def _ask(self, chat: JudgeChat, layout: StepLayout, messages: Messages) -> tuple[float | None, Usage]:
        try:
            if chat.likeliest:
                found = await chat.complete(
                    messages, max_tokens=chat.answer_tokens, temperature=0.0, likeliest=chat.likeliest
                )
                return mean([_expected(sample, layout) for sample in found.samples]), found.usage
            found = await chat.complete(messages, max_tokens=ANSWER_TOKENS, temperature=1.0, count=self.repeats)
        except Refused:
            return None, Usage()
        return mean([stated(sample.text, layout.answers) for sample in found.samples]), found.usage


def _expected(sample: Sample, layout: StepLayout) -> float | None:
    """The expected score at the first token that is not blank."""
    for token in sample.tokens:
        if token.token.strip(" \n\t▁Ġ"):
            return expected(token.top_logprobs, layout.answers)
    return None
