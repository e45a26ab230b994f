"""Reads which of a few answers a model gives: from the likeliest tokens in a place, or from its text."""

import math
import re
from collections.abc import Iterable, Mapping

from unprm.engines.judge.chat import Likely

_SHORTEST = 2
"""Fewest characters by which the beginning of an answer is recognised: `in` of `incorrect`."""
_WORD = re.compile(r"\w+")


def expected(likely: Iterable[Likely], answers: Mapping[str, float]) -> float | None:
    """The mean of the answers' scores, each weighted by its probability, summed over its spellings; None if no token is
    one of them. `answers`: scores of the answers, which are in lower case."""
    weighted = total = 0.0
    for each in likely:
        if (answer := _meant(each.token, answers)) is not None:
            probability = math.exp(min(0.0, each.logprob))
            weighted += probability * answers[answer]
            total += probability
    return min(1.0, weighted / total) if total > 0 else None


def stated(text: str, answers: Mapping[str, float]) -> float | None:
    """The score of the answer that is the text's first word; None if that is none of them."""
    word = _WORD.search(text)
    return answers.get(word[0].lower()) if word else None


def _meant(token: str, answers: Mapping[str, float]) -> str | None:
    """The answer that the token is, or with which no other answer begins."""
    word = token.strip(" \n\t▁Ġ*\"'.{}").lower()
    if word in answers:
        return word
    begun = [answer for answer in answers if len(word) >= _SHORTEST and answer.startswith(word)]
    return begun[0] if len(begun) == 1 else None
