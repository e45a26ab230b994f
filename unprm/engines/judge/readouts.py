r"""The ways in which scores are read from a judge.

`Stepwise`: from the answer to each step, P(Yes) against P(No), or the expected grade. Each step has a request of its
own, which allows one token. The answer's probabilities are summed over its spellings.

`Chain`: from checks of a whole solution, as ThinkPRM writes them (Khalifa et al., "Process Reward Models That Think",
2025). A chain names each step, and ends its check with `\boxed{correct}` or `\boxed{incorrect}`.

`StepChain`: from checks of step after step, as GenPRM writes them (Zhao et al., "GenPRM: Scaling Test-Time Compute of
Process Reward Models via Generative Reasoning", 2025, equation 6). Each ends with `\boxed{Yes}` or `\boxed{No}`.

A check's score of a step is the probability of the better answer against that of the other where its verdict is
written. Where the server gives no log-probabilities, an answer counts as its score, and the mean over several samples
is taken. What a judge writes, code included, is read and never run.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from unprm.concurrent import all_of
from unprm.engines.judge.answers import THOUGHT, expected, stated, verdicts
from unprm.engines.judge.chat import JudgeChat, Refused
from unprm.engines.judge.layouts import CHECKED, ChainLayout, Messages, StepLayout, plain
from unprm.openai.models import ChatChoice
from unprm.types import Evidence, Usage

BYTES_PER_TOKEN = 4
"""Bytes that count as a token; the judge's own tokens are known to its server alone."""
CALL = 512
"""Fewest tokens that a call counts as: however short its prompt, it takes a place among those in flight."""
ANSWER_TOKENS = 4
"""Maximum tokens of an answer: some models begin with white space, and some spell an answer in several tokens."""
LIKELIEST = 5
"""Tokens whose log-probabilities are requested at each position of a check; two of them are the verdicts."""
TEMPERATURE, TOP_P = 0.6, 0.95
"""As DeepSeek recommends for the models that GenPRM and ThinkPRM were made of, and ThinkPRM's own configuration has it;
checks of one solution must differ."""
_REPLY = re.compile(r"(</?(?:analyze|verify|output)>|\[Code Output\]|\\boxed\{)")
"""What GenPRM's checks are built of."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A solution's step scores in [0, 1], None where no verdict was found, and what they cost."""

    scores: list[float | None]
    usage: Usage


class Readout(ABC):
    """A way to read the scores of a solution's steps. `rounds`: how many calls of a usual solution come one after the
    other. `written`: the judge writes checks, which are a hundred times as long as an answer."""

    rounds: ClassVar[int] = 1
    written: ClassVar[bool] = True

    @abstractmethod
    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversations that are sent, each with all of its messages; replies still to be written are marked."""

    def prompt_tokens(self, problem: str, steps: Sequence[str]) -> int:
        """Tokens of the prompts that it takes to read a solution. Each message of the user's is a call, whose prompt is
        all that was said until then; a call counts as at least `CALL` tokens."""
        return sum(map(_prompt_tokens, self.conversations(problem, steps)))

    @abstractmethod
    def described(self, likeliest: int) -> str:
        """How scores are read, in words; `likeliest`: of how many tokens the server gives log-probabilities."""

    @abstractmethod
    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The scores of a solution. Raises `ModelUnreachable`."""


Readouts = Mapping[Evidence | None, Readout]
"""A way for each kind of steps: actions, by what they are judged by, and None for steps of solutions."""


@dataclass(frozen=True)
class Stepwise(Readout):
    """Asks for each step by each of the layouts, and takes the mean. `repeats`: sampled answers to each, where the
    server gives no log-probabilities."""

    layouts: Sequence[StepLayout]
    repeats: int
    written: ClassVar[bool] = False

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """For each layout the conversation of the last step."""
        return [layout.messages(problem, steps) for layout in self.layouts]

    def described(self, likeliest: int) -> str:
        answers = " or ".join(self.layouts[0].answers) if len(self.layouts[0].answers) == 2 else "a digit"
        if likeliest:
            return f"expected score of the answer ({answers}) over the {likeliest} likeliest tokens"
        return f"mean score of {self.repeats} sampled answers ({answers})"

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """Reads the last step first: its conversation begins with all the others, so the server's prefix cache then has
        nearly all that they need."""
        last = await self._read(chat, problem, steps)
        others = await all_of(self._read(chat, problem, steps[:count]) for count in range(1, len(steps)))
        scores, usages = zip(*others, last, strict=True)
        return Reading(list(scores), sum(usages, Usage()))

    async def _read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> tuple[float | None, Usage]:
        """The last step's score, and what it cost."""
        found = await all_of(self._ask(chat, layout, layout.messages(problem, steps)) for layout in self.layouts)
        return _mean(score for score, _ in found), sum((usage for _, usage in found), Usage())

    async def _ask(self, chat: JudgeChat, layout: StepLayout, messages: Messages) -> tuple[float | None, Usage]:
        try:
            if chat.likeliest:
                choices, usage = await chat.complete(
                    messages, max_tokens=chat.answer_tokens, temperature=0.0, likeliest=chat.likeliest
                )
                return _mean(_expected(choice, layout) for choice in choices), usage
            choices, usage = await chat.complete(
                messages, max_tokens=ANSWER_TOKENS, temperature=1.0, count=self.repeats
            )
        except Refused:
            return None, Usage()
        return _mean(stated(choice.text, layout.answers) for choice in choices), usage


@dataclass(frozen=True)
class Written(Readout):
    """Samples `repeats` checks of a solution, which the judge writes in replies of at most `max_tokens` tokens."""

    layout: ChainLayout | StepLayout
    repeats: int
    max_tokens: int

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """That of a check; where the judge replies step after step, that of the last step, with the layout's assumed
        answer in place of each earlier reply."""
        return [self.layout.messages(problem, steps)]

    def described(self, likeliest: int) -> str:
        better, worse = self.layout.answers
        read = f"P({better}) against P({worse}) at" if likeliest else f"the share of {better} among"
        return rf"{read} the verdicts \boxed{{{better}}} or \boxed{{{worse}}} of {self.repeats} sampled checks"


class Chain(Written):
    """Samples chains, each a check of all steps."""

    layout: ChainLayout

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """Chains without a verdict for each step are left out."""
        try:
            choices, usage = await _check(chat, self.layout.messages(problem, steps), self.max_tokens, self.repeats)
        except Refused:
            return Reading([None] * len(steps), Usage())
        chains = [scores for choice in choices if (scores := chain_scores(choice, len(steps), self.layout.stops))]
        return Reading([_mean(scores[index] for scores in chains) for index in range(len(steps))], usage)


class StepChain(Written):
    """Samples checks step after step; that of a step follows the same check's text on the steps before."""

    layout: StepLayout
    rounds: ClassVar[int] = 8

    def prompt_tokens(self, problem: str, steps: Sequence[str]) -> int:
        """A prompt for each step of each check, as if the judge wrote the assumed answers."""
        return self.repeats * super().prompt_tokens(problem, steps)

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The checks run side by side. One without a verdict on a step is left out of that step's mean."""
        checks = await all_of(self._read(chat, problem, steps) for _ in range(self.repeats))
        scores = [_mean(check.scores[index] for check in checks) for index in range(len(steps))]
        return Reading(scores, sum((check.usage for check in checks), Usage()))

    async def _read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """One check. Where the server refuses a step it ends, since the conversations of later ones are longer."""
        scores: list[float | None] = []
        replies: list[str] = []
        total = Usage()
        for count in range(1, len(steps) + 1):
            try:
                choices, usage = await _check(
                    chat, self.layout.messages(problem, steps[:count], replies), self.max_tokens
                )
            except Refused:
                break
            total += usage
            if not choices:
                break
            written = verdicts(choices[0], self.layout.answers)
            scores.append(written[-1].score if written else None)
            replies.append(_reply(choices[0].text))
        return Reading(scores + [None] * (len(steps) - len(scores)), total)


def chain_scores(choice: ChatChoice, steps: int, stops: bool = True) -> list[float] | None:
    """A chain's scores of its `steps` steps; None unless it has a verdict for each.

    A verdict is on the step that was named last before it, or on the only step; the last one on a step counts. A chain
    that `stops` may do so at the first incorrect step: those after it get 0.
    """
    only = 1 if steps == 1 else None
    found = {verdict.step or only: verdict for verdict in verdicts(choice, CHECKED)}
    read = [found[number] for number in takewhile(found.__contains__, range(1, steps + 1))]
    scores = [verdict.score for verdict in read]
    if stops and read and read[-1].stated == 0:
        scores += [0.0] * (steps - len(read))
    return scores if len(scores) == steps else None


async def _check(
    chat: JudgeChat, messages: Messages, max_tokens: int, count: int = 1
) -> tuple[list[ChatChoice], Usage]:
    """`count` written checks, and what they cost. Raises as `JudgeChat.complete`."""
    likeliest = min(LIKELIEST, chat.likeliest)
    return await chat.complete(
        messages, max_tokens=max_tokens, count=count, likeliest=likeliest, temperature=TEMPERATURE, top_p=TOP_P
    )


def _prompt_tokens(messages: Messages) -> int:
    tokens = said = 0
    for message in messages:
        said += len(message["content"].encode())
        if message["role"] == "user":
            tokens += max(CALL, said // BYTES_PER_TOKEN)
    return tokens


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of what was found; None if nothing was."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def _expected(choice: ChatChoice, layout: StepLayout) -> float | None:
    """The expected score at the first token that is not blank."""
    first = next((token for token in choice.tokens if not token.is_blank), None)
    return None if first is None else expected(first.top_logprobs, layout.answers)


def _reply(text: str) -> str:
    """A check as it is sent back, without thoughts. It may quote a hostile text, so what may be a special token is
    broken up; what the layout itself is built of stays."""
    parts = _REPLY.split(text.rpartition(THOUGHT)[2])
    return "".join(part if index % 2 else plain(part) for index, part in enumerate(parts))
