"""The answer in a solution, and its canonical form."""

import re

from unprm.mathtext.characters import plain_characters
from unprm.mathtext.prose import boxes, unwrap
from unprm.mathtext.spelling import respell
from unprm.types import Extraction

MAX_REWRITTEN = 2000  # characters; a longer answer keeps its spelling
_ROUNDS = 8
_MARKER = re.compile(r"(?:final answer is|answer is|####)[\s:]*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|\n")
_WRAPPING = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"))
_INTEGER = re.compile(r"-?[1-9][0-9]{0,17}|0")
# What a rewriting to a rational leaves; no second round could change it.
_FINAL = re.compile(r"-?[1-9][0-9]{0,17}(?:/[0-9]{1,18})?|0")


def extract(text: str, mode: Extraction = "auto") -> str | None:
    """The answer that a solution states, as it is written there, or None.

    The content of the last balanced ``\\boxed{…}`` or ``\\fbox{…}`` (without braces, the next token); without
    any box, what follows the last "answer is" or "####", to the end of that sentence or line. An empty box is
    no answer, and no number is guessed from the text. Linear in the length.
    """
    found = boxes(text)
    if found:
        return text[found[-1].inner].strip() or None
    start = max((marker.end() for marker in _MARKER.finditer(text)), default=None)
    if start is None:
        return None
    end = _SENTENCE_END.search(text, start)
    return _unwrapped(text[start : end.start() if end else len(text)]) or None


def _unwrapped(answer: str) -> str:
    """Without the delimiters around it, and without the period that ends it."""
    answer = answer.strip().removesuffix(".")
    for opening, closing in _WRAPPING:
        inside = answer[len(opening) : -len(closing)]
        if answer == opening + inside + closing and opening not in inside:
            return _unwrapped(inside)
    return answer


def is_integer(answer: str) -> bool:
    """Whether an answer is a whole number in canonical form, as most are."""
    return _INTEGER.fullmatch(answer) is not None


def canonical(answer: str) -> str:
    """The canonical form of an answer: the same for spellings that differ in layout only.

    ``0.5``, ``1/2``, ``$\\dfrac12$`` and ``x = \\frac{2}{4}`` are ``1/2``; ``\\text{Monday}`` is ``monday``.
    Idempotent, deterministic, linear in the length; an answer of more than `MAX_REWRITTEN` characters keeps
    its spelling but for white space.
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
    return collapsed  # its rewriting never ends, so it has no form but its own
