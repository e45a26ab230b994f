"""The canonical form of an answer."""

import re

from unprm.answers.mathtext.characters import plain_characters
from unprm.answers.mathtext.prose import unwrap
from unprm.answers.mathtext.spelling import respell

MAX_REWRITTEN = 2000  # characters; a longer answer keeps its spelling
_ROUNDS = 8
_INTEGER = re.compile(r"-?[1-9][0-9]{0,17}|0")
# A rational that another rewriting round could not change.
_FINAL = re.compile(r"-?[1-9][0-9]{0,17}(?:/[0-9]{1,18})?|0")


def is_integer(answer: str) -> bool:
    """Whether an answer is a whole number in canonical form, as most are."""
    return _INTEGER.fullmatch(answer) is not None


def canonical(answer: str) -> str:
    """The canonical form of an answer: the same for spellings that differ in layout only.

    ``0.5``, ``1/2``, ``$\\dfrac12$`` and ``x = \\frac{2}{4}`` are ``1/2``; ``\\text{Monday}`` is ``monday``.
    Idempotent, deterministic, linear in the length; an answer of more than `MAX_REWRITTEN` characters keeps
    its spelling except for white space.
    """
    if is_integer(answer):  # nothing to rewrite
        return answer
    collapsed = " ".join(answer.split())
    text = collapsed
    for _ in range(_ROUNDS):
        plain = plain_characters(text) if len(text) <= MAX_REWRITTEN else text
        if len(plain) > MAX_REWRITTEN:
            return text
        rewritten = respell(unwrap(plain))
        if rewritten == text or _FINAL.fullmatch(rewritten):
            return rewritten
        text = rewritten
    return collapsed  # rewriting does not converge: keep the original spelling
