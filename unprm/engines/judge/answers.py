"""Reads which of a few answers a model gives: from the likeliest tokens in a place, or from its text."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from unprm.openai.completion import Completion
from unprm.openai.models import Alternative, Token

THOUGHT = "</think>"
"""Ends a reasoning model's thoughts; verdicts after it count before those within."""
LEAST_SHARE = 0.1
"""Least probability of all answers together: a model that would rather write something else says nothing by it."""
_STEP = rf"(?:^|{THOUGHT})[ \t*#>_-]*step[ \t]*(?P<step>\d{{1,9}})\b"
"""The name of a step at the beginning of a line, or after the thoughts."""
_SHORTEST = 2
"""Fewest characters by which the beginning of an answer is recognised: `in` of `incorrect`."""
_WORD = re.compile(r"\w+")


class Verdict(NamedTuple):
    """A written answer: its score, the expected score in its place, and the number of the step named last before."""

    stated: float
    score: float
    step: int | None


def verdicts(choice: Completion, answers: Mapping[str, float]) -> list[Verdict]:
    r"""The answers that a completion puts in `\boxed{}`, in order. `answers`: scores of answers in lower case."""
    text = "".join(token.token for token in choice.tokens) or choice.text
    boxed = rf"\\boxed\{{\s*(?:\\text\{{\s*)?(?P<answer>{'|'.join(answers)})\b"
    marks = list(re.finditer(rf"{_STEP}|{boxed}", text, re.IGNORECASE | re.MULTILINE))
    last = [mark for mark in marks if mark.start() >= text.rfind(THOUGHT)]
    found, step = [], None
    for mark in last if any(mark["answer"] for mark in last) else marks:
        if mark["step"]:
            step = int(mark["step"])
        else:
            said = answers[mark["answer"].lower()]
            score = _expected_at(mark.start("answer"), choice.tokens, answers)
            found.append(Verdict(said, said if score is None else score, step))
    return found


def expected(likely: Iterable[Alternative], answers: Mapping[str, float]) -> float | None:
    """The answers' mean score by their probabilities; None if these have less than `LEAST_SHARE` together."""
    weighted = total = 0.0
    for alternative in likely:
        if (answer := _meant(alternative.token, answers)) is not None:
            probability = math.exp(min(0.0, alternative.logprob))
            weighted += probability * answers[answer]
            total += probability
    return min(1.0, weighted / total) if total >= LEAST_SHARE else None


def stated(text: str, answers: Mapping[str, float]) -> float | None:
    """The score of the answer that is the text's first word; None if that is none of them."""
    word = _WORD.search(text)
    return answers.get(word[0].lower()) if word else None


def _expected_at(place: int, tokens: Sequence[Token], answers: Mapping[str, float]) -> float | None:
    """The expected score of the answer that begins at this character; None if the tokens there don't show it."""
    starts = accumulate((len(token.token) for token in tokens), initial=0)
    for token, start in zip(tokens, starts, strict=False):
        before = place - start  # characters of the token before the verdict, such as a brace
        if 0 <= before < len(token.token):
            others = [
                Alternative(token=alternative.token[before:], logprob=alternative.logprob)
                for alternative in token.top_logprobs
                if alternative.token[:before] == token.token[:before]
            ]
            return expected(others, answers)
    return None


def _meant(token: str, answers: Mapping[str, float]) -> str | None:
    """The answer that the token is, or with which no other answer begins."""
    word = token.strip(" \n\t▁Ġ*\"'.{}").lower()
    if word in answers:
        return word
    begun = [answer for answer in answers if len(word) >= _SHORTEST and answer.startswith(word)]
    return begun[0] if len(begun) == 1 else None
