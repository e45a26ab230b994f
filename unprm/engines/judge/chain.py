r"""Scores read from written checks.

ThinkPRM (Khalifa et al., "Process Reward Models That Think", 2025) checks a whole solution at once. A chain names
each step, and ends its check with `\boxed{correct}` or `\boxed{incorrect}`. GenPRM (Zhao et al.,
"GenPRM: Scaling Test-Time Compute of Process Reward Models via Generative Reasoning", 2025, equation 6) checks step
after step, and ends each check with `\boxed{Yes}` or `\boxed{No}`. A step's score is the mean over several samples of
the probability of the better answer against that of the other where its verdict is written, or of 1 and 0 where the
server gives no log-probabilities. What a judge writes, code included, is read and never run.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from unprm.concurrent import all_of
from unprm.engines.judge.answers import THOUGHT, verdicts
from unprm.engines.judge.chat import JudgeChat, Refused, Sample
from unprm.engines.judge.layouts import ChainLayout, Messages, StepLayout
from unprm.engines.judge.material import plain
from unprm.engines.judge.readout import Reading, asked, mean
from unprm.types import Usage

LIKELIEST = 5
"""Tokens whose log-probabilities are asked for at each place of a chain; two of them are the verdicts."""
TEMPERATURE, TOP_P = 0.6, 0.95
"""As DeepSeek recommends for the models that GenPRM and ThinkPRM were made of, and ThinkPRM's own configuration has it;
checks of one solution must differ."""
_ANSWERS = {"correct": 1.0, "incorrect": 0.0}
_REPLY = re.compile(r"(</?(?:analyze|verify|output)>|\[Code Output\]|\\boxed\{)")
"""What GenPRM's checks are built of."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Samples `repeats` chains of at most `max_tokens` tokens for each solution."""

    layout: ChainLayout
    repeats: int
    max_tokens: int
    rounds: ClassVar[int] = 1

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversation that asks for a chain."""
        return [self.layout.messages(problem, steps)]

    def asked(self, problem: str, steps: Sequence[str]) -> int:
        """One prompt for all chains of a solution."""
        return asked(self.layout.messages(problem, steps))

    def described(self, likeliest: int) -> str:
        """The verdicts, and how they are read."""
        return _described(_ANSWERS, likeliest, self.repeats)

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """Chains without a verdict for each step are left out."""
        messages = self.layout.messages(problem, steps)
        likeliest = min(LIKELIEST, chat.likeliest)
        try:
            found = await chat.complete(
                messages,
                max_tokens=self.max_tokens,
                count=self.repeats,
                likeliest=likeliest,
                temperature=TEMPERATURE,
                top_p=TOP_P,
            )
        except Refused:
            return Reading([None] * len(steps), Usage())
        chains = [scores for sample in found.samples if (scores := chain_scores(sample, len(steps)))]
        return Reading([mean([scores[index] for scores in chains]) for index in range(len(steps))], found.usage)


@dataclass(frozen=True, slots=True)
class StepChain:
    """Samples `repeats` checks of each solution, step after step; that of a step has at most `max_tokens` tokens, and
    follows the same check's text on the steps before."""

    layout: StepLayout
    repeats: int
    max_tokens: int
    rounds: ClassVar[int] = 8

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversation of the last step, in which the layout's assumed answer stands for each earlier check."""
        return [self.layout.messages(problem, steps)]

    def asked(self, problem: str, steps: Sequence[str]) -> int:
        """A prompt for each step of each check, as if the judge wrote the assumed answers."""
        return self.repeats * asked(self.layout.messages(problem, steps))

    def described(self, likeliest: int) -> str:
        """The verdicts, and how they are read."""
        return _described(self.layout.answers, likeliest, self.repeats)

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """The checks run side by side. One without a verdict on a step is left out of that step's mean."""
        checks = await all_of(self._check(chat, problem, steps) for _ in range(self.repeats))
        scores = [mean([check.scores[index] for check in checks]) for index in range(len(steps))]
        return Reading(scores, sum((check.usage for check in checks), Usage()))

    async def _check(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """One check. Where the server refuses a step it ends, since the conversations of later ones are longer."""
        scores: list[float | None] = []
        replies: list[str] = []
        usage = Usage()
        likeliest = min(LIKELIEST, chat.likeliest)
        for count in range(1, len(steps) + 1):
            messages = self.layout.messages(problem, steps[:count], replies)
            try:
                found = await chat.complete(
                    messages,
                    max_tokens=self.max_tokens,
                    temperature=TEMPERATURE,
                    top_p=TOP_P,
                    likeliest=likeliest,
                )
            except Refused:
                break
            usage += found.usage
            if not found.samples:
                break
            written = verdicts(found.samples[0], self.layout.answers)
            scores.append(written[-1].score if written else None)
            replies.append(_reply(found.samples[0]))
        return Reading(scores + [None] * (len(steps) - len(scores)), usage)


def chain_scores(sample: Sample, steps: int) -> list[float] | None:
    """A chain's scores of the steps; None unless it has a verdict for each.

    A verdict is on the step that was named last before it, or on the only step; the last one on a step counts. A chain
    may stop at the first incorrect step: those after it get 0.
    """
    only = 1 if steps == 1 else None
    found = {verdict.step or only: verdict for verdict in verdicts(sample, _ANSWERS)}
    read = [found[number] for number in takewhile(found.__contains__, range(1, steps + 1))]
    scores = [verdict.score for verdict in read]
    if read and read[-1].stated == 0:
        scores += [0.0] * (steps - len(read))
    return scores if len(scores) == steps else None


def _reply(sample: Sample) -> str:
    """The check as it is sent back, without thoughts. It may quote a hostile text, so what may be a special token is
    broken up; what the layout itself is built of stays."""
    parts = _REPLY.split(sample.text.rpartition(THOUGHT)[2])
    return "".join(part if index % 2 else plain(part) for index, part in enumerate(parts))


def _described(answers: Iterable[str], likeliest: int, repeats: int) -> str:
    better, worse = answers
    read = f"P({better}) against P({worse}) at" if likeliest else f"the share of {better} among"
    return rf"{read} the verdicts \boxed{{{better}}} or \boxed{{{worse}}} of {repeats} sampled checks"
