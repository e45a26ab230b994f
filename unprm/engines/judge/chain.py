r"""Scores read from written checks of whole solutions (Khalifa et al., "Process Reward Models That Think", 2025).

A chain ends the check of each step with `\boxed{correct}` or `\boxed{incorrect}`, in the order of the steps. A step's
score is the mean over several sampled chains of P(correct) against P(incorrect) where its verdict is written, or of 1
and 0 where the server gives no log-probabilities. What a chain writes is read and never run.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from unprm.engines.judge.answers import expected
from unprm.engines.judge.chat import JudgeChat, Likely, Refused, Sample, Token
from unprm.engines.judge.layouts import ChainLayout, Messages
from unprm.engines.judge.readout import Reading, mean
from unprm.types import Usage

LIKELIEST = 5
"""Tokens whose log-probabilities are asked for at each place of a chain; two of them are the verdicts."""
TEMPERATURE = 0.6
"""As DeepSeek recommends for the models that ThinkPRM was made of; chains of one solution must differ."""
THOUGHT = "</think>"
"""Ends a reasoning model's thoughts; verdicts after it count before those within."""
_VERDICT = re.compile(r"\\boxed\{\s*(?:\\text\{\s*)?(correct|incorrect)\b", re.IGNORECASE)
_ANSWERS = {"correct": 1.0, "incorrect": 0.0}


@dataclass(frozen=True, slots=True)
class Chain:
    """Samples `repeats` chains of at most `max_tokens` tokens for each solution."""

    layout: ChainLayout
    repeats: int
    max_tokens: int

    def conversations(self, problem: str, steps: Sequence[str]) -> list[Messages]:
        """The conversation that asks for a chain."""
        return [self.layout.messages(problem, steps)]

    def described(self, likeliest: int) -> str:
        """The verdicts, and how they are read."""
        read = "P(correct) against P(incorrect) at" if likeliest else "the share of correct among"
        return rf"{read} the verdicts \boxed{{correct}} or \boxed{{incorrect}} of {self.repeats} sampled checks"

    async def read(self, chat: JudgeChat, problem: str, steps: Sequence[str]) -> Reading:
        """Chains without a verdict for each step are left out."""
        messages = self.layout.messages(problem, steps)
        likeliest = min(LIKELIEST, chat.likeliest)
        try:
            found = await chat.complete(
                messages,
                max_tokens=self.max_tokens,
                temperature=TEMPERATURE,
                count=self.repeats,
                likeliest=likeliest,
            )
        except Refused:
            return Reading([None] * len(steps), Usage())
        chains = [scores for sample in found.samples if (scores := chain_scores(sample, len(steps)))]
        return Reading([mean([scores[index] for scores in chains]) for index in range(len(steps))], found.usage)


def chain_scores(sample: Sample, steps: int) -> list[float] | None:
    """A chain's scores of the steps; None unless it has a verdict for each.

    A chain may stop at the first incorrect step: those after it get 0.
    """
    text = "".join(token.token for token in sample.tokens) if sample.tokens else sample.text
    verdicts = list(_VERDICT.finditer(text, text.rfind(THOUGHT) + 1)) or list(_VERDICT.finditer(text))
    scores = [_score(verdict, sample.tokens) for verdict in verdicts]
    if 0 < len(verdicts) < steps and verdicts[-1][1].lower() == "incorrect":
        scores += [0.0] * (steps - len(verdicts))
    return scores if len(scores) == steps else None


def _score(verdict: re.Match[str], tokens: Sequence[Token]) -> float:
    stated = _ANSWERS[verdict[1].lower()]
    for token, start in _placed(tokens):
        before = verdict.start(1) - start  # characters of the token before the verdict, such as a brace
        if 0 <= before < len(token.token):
            others = [
                Likely(token=each.token[before:], logprob=each.logprob)
                for each in token.top_logprobs
                if each.token[:before] == token.token[:before]
            ]
            found = expected(others, _ANSWERS)
            return stated if found is None else found
    return stated


def _placed(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """The tokens, each with the index of its first character."""
    return zip(tokens, accumulate((len(token.token) for token in tokens), initial=0), strict=False)
