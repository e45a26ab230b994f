r"""The ways in which scores are read from a judge.

`Stepwise`: from the answer to each step, P(Yes) against P(No). Each step has a request of its own, which allows one
token. The answer's probabilities are summed over its spellings.

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
from typing import Any, ClassVar

from unprm.engines.judge.answers import THOUGHT, expected, stated, verdicts
from unprm.engines.judge.chat import JudgeChat, Refused
from unprm.engines.judge.layouts import CHECKED, Layout, Messages, defuse
from unprm.openai.completion import Completion
from unprm.task_groups import all_of
from unprm.types import Evidence, Usage

BYTES_PER_TOKEN = 4
"""Bytes that count as a token; the judge's own tokens are known to its server alone."""
CALL = 512
"""Fewest tokens that a call counts as: however short its prompt, it takes a place among those in flight."""
ANSWER_TOKENS = 4
"""Maximum tokens of an answer: some models begin with white space, and some spell an answer in several tokens."""
LIKELIEST = 5
"""Tokens whose log-probabilities are requested at each position of a check; two of them are the verdicts."""
SAMPLING = {"temperature": 0.6, "top_p": 0.95}
"""As DeepSeek recommends, and ThinkPRM's own configuration has it; checks of one solution must differ."""
_REPLY = re.compile(r"(</?(?:analyze|verify|output)>|\[Code Output\]|\\boxed\{)")
"""What GenPRM's checks are built of."""
Scores = list[float | None]
"""Scores in [0, 1] of a solution's steps, None where no verdict was found."""


class Inquiry:
    """Asks the judge about one solution. `usage`: the cost of the answers so far, by the server's count."""

    def __init__(self, chat: JudgeChat) -> None:
        self.chat = chat
        self.usage = Usage()

    async def ask(self, messages: Messages, **sampling: Any) -> list[Completion]:
        """Completions, none if the server refuses. `sampling`: of `JudgeChat.complete`. Raises `ModelUnreachable`."""
        try:
            choices, usage = await self.chat.complete(messages, **sampling)
        except Refused:
            return []
        self.usage += usage
        return choices


@dataclass(frozen=True)
class JudgeMethod(ABC):
    """Reads steps' scores from `repeats` replies of at most `max_tokens` tokens. `rounds`: calls one after the other;
    `written`: the judge writes checks, a hundred times as long as an answer."""

    layout: Layout
    repeats: int
    max_tokens: int
    rounds: ClassVar[int] = 1
    written: ClassVar[bool] = True

    def prompt_tokens(self, problem: str, steps: Sequence[str]) -> int:
        """Tokens of a solution's prompts: one for each message of the user's, of at least `CALL` tokens."""
        tokens = said = 0
        for message in self.layout.messages(problem, steps):
            said += len(message["content"].encode())
            if message["role"] == "user":
                tokens += max(CALL, said // BYTES_PER_TOKEN)
        return tokens

    def described(self, likeliest: int) -> str:
        """How scores are read, in words; `likeliest`: of how many tokens the server gives log-probabilities."""
        better, worse = self.layout.answers
        read = f"P({better}) against P({worse}) at" if likeliest else f"the share of {better} among"
        return rf"{read} the verdicts \boxed{{{better}}} or \boxed{{{worse}}} of {self.repeats} sampled checks"

    @abstractmethod
    async def read(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> Scores:
        """The scores of a solution. Raises `ModelUnreachable`."""

    async def _check(self, inquiry: Inquiry, messages: Messages, count: int = 1) -> list[Completion]:
        likeliest = min(LIKELIEST, inquiry.chat.likeliest)
        return await inquiry.ask(messages, max_tokens=self.max_tokens, count=count, likeliest=likeliest, **SAMPLING)


JudgeMethods = Mapping[Evidence | None, JudgeMethod]
"""A way for each kind of steps: actions, by what they are judged by, and None for steps of solutions."""


class Stepwise(JudgeMethod):
    """Asks for the answer to each step. Where the server gives no log-probabilities, it is sampled."""

    written: ClassVar[bool] = False

    def described(self, likeliest: int) -> str:
        answers = " or ".join(self.layout.answers)
        if likeliest:
            return f"expected score of the answer ({answers}) over the {likeliest} likeliest tokens"
        return f"mean score of {self.repeats} sampled answers ({answers})"

    async def read(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> Scores:
        """The last step first: its conversation puts nearly all that the others need into the server's prefix cache."""
        last = await self._ask(inquiry, problem, steps)
        others = await all_of(self._ask(inquiry, problem, steps[:count]) for count in range(1, len(steps)))
        return [*others, last]

    async def _ask(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> float | None:
        """The last step's score: expected at the answer's first token that is not blank, or the mean of samples."""
        messages, answers, chat = self.layout.messages(problem, steps), self.layout.answers, inquiry.chat
        if not chat.likeliest:
            choices = await inquiry.ask(messages, max_tokens=ANSWER_TOKENS, temperature=1.0, count=self.repeats)
            return _mean(stated(choice.text, answers) for choice in choices)
        choices = await inquiry.ask(messages, max_tokens=chat.answer_tokens, temperature=0.0, likeliest=chat.likeliest)
        words = (token for choice in choices for token in choice.tokens if not token.is_blank)
        return next((expected(word.top_logprobs, answers) for word in words), None)


class Chain(JudgeMethod):
    """Samples chains, each a check of all steps."""

    async def read(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> Scores:
        """Chains without a verdict for each step are left out."""
        chains = await self._check(inquiry, self.layout.messages(problem, steps), self.repeats)
        return _means(len(steps), [chain_scores(chain, len(steps), self.layout.stops) or [] for chain in chains])


class StepChain(JudgeMethod):
    """Samples checks step after step; that of a step follows the same check's text on the steps before."""

    rounds: ClassVar[int] = 8

    def prompt_tokens(self, problem: str, steps: Sequence[str]) -> int:
        """A prompt for each step of each check, as if the judge wrote the assumed answers."""
        return self.repeats * super().prompt_tokens(problem, steps)

    async def read(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> Scores:
        """The checks run side by side. One without a verdict on a step is left out of that step's mean."""
        return _means(len(steps), await all_of(self._read(inquiry, problem, steps) for _ in range(self.repeats)))

    async def _read(self, inquiry: Inquiry, problem: str, steps: Sequence[str]) -> Scores:
        """One check. Where the server refuses a step it ends, since the conversations of later ones are longer."""
        scores: Scores = []
        replies: list[str] = []
        for count in range(1, len(steps) + 1):
            checks = await self._check(inquiry, self.layout.messages(problem, steps[:count], replies))
            if not checks:
                break
            written = verdicts(checks[0], self.layout.answers)
            scores.append(written[-1].score if written else None)
            replies.append(_reply(checks[0].text))
        return scores


def chain_scores(choice: Completion, steps: int, stops: bool = True) -> list[float] | None:
    """A chain's scores of its `steps` steps, by the last verdict on each; None unless all have one. A chain that
    `stops` may do so at the first incorrect step: later ones get 0."""
    only = 1 if steps == 1 else None
    found = {verdict.step or only: verdict for verdict in verdicts(choice, CHECKED)}
    read = [found[number] for number in takewhile(found.__contains__, range(1, steps + 1))]
    scores = [verdict.score for verdict in read]
    if stops and read and read[-1].stated == 0:
        scores += [0.0] * (steps - len(read))
    return scores if len(scores) == steps else None


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def _means(steps: int, checks: Iterable[Sequence[float | None]]) -> Scores:
    """The mean score of each of `steps` steps; a check may break off."""
    return [_mean(check[index] for check in checks if index < len(check)) for index in range(steps)]


def _reply(text: str) -> str:
    """A check as it is sent back, without thoughts and, beside the layout's own words, without special tokens."""
    parts = _REPLY.split(text.rpartition(THOUGHT)[2])
    return "".join(part if index % 2 else defuse(part) for index, part in enumerate(parts))
