"""Step scores without a model: how many of a problem's other candidates have the values that a step computes.

It knows arithmetic alone, and no right answer: what most candidates get wrong scores high, and a right step that nobody
else takes scores low. docs/lab/decisions.md has figures.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from unprm.answers.canonical import plain_characters

LEAST = 4
"""Candidates of a problem; among fewer it says too little that one agrees."""

_NUMBER = r"(?>(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}(?![0-9])|[0-9]{1,18})(?:\.[0-9]{1,18})?|\.[0-9]{1,18})(?![0-9])"
_FRACTION = re.compile(r"\\[dt]?frac ?\{ ?([0-9.,]{1,18}) ?\} ?\{ ?([0-9.,]{1,18}) ?\}")
_VALUE = re.compile(rf"(?<![\w.])(-?{_NUMBER})(?: ?/ ?({_NUMBER})(?! ?=))?")
_RESULT = re.compile(
    r"(?:=|\\approx)(?:[ $({\[*]|\\[a-z]{4,6}(?=\{)|\\[ $(\[,;!])*"
    rf"(?>(-? ?{_NUMBER})(?: ?/ ?({_NUMBER}))?)"
    r"(?![ )}\]$]*(?:[*/+^x×÷-] ?[0-9($\\{]|\\(?:times|div|cdot)))"
)
"""What follows an equals sign, unless it is part of a calculation that goes on."""
_DECIMAL = re.compile(
    r"(?<![0-9.,(\[/^])(?<!\\\{)(?<![(\[]-)(0|[0-9]{1,18}(?!,[0-9]{3}(?![0-9]))),([0-9]{1,18})(?![0-9]|,[0-9])"
)
"""A number with a decimal comma: neither thousands, nor the beginning of a point, an interval, a set or a list."""
_BLANKS = str.maketrans("", "", ", ")


def support(problem: str, candidates: Sequence[Sequence[str]]) -> list[list[float | None]]:
    """Scores in [0, 1] for the steps of each candidate: the share of the other candidates that have a value which the
    step computes, the lowest share if the step computes several; None for a step that computes nothing. Values of the
    problem don't count. Raises `ValueError` for fewer than `LEAST` candidates. Linear in the length."""
    if len(candidates) < LEAST:
        raise ValueError(f"expected at least {LEAST} candidates, got {len(candidates)}")
    given = set(_values(_plain(problem)))
    having, computed = Counter[int | Fraction](), list[list[set[int | Fraction]]]()
    for steps in (list(map(_plain, each)) for each in candidates):
        results = [{_quotient(*found) for found in _RESULT.findall(step)} - given for step in steps]
        having.update(set().union(*results, *map(_values, steps)))
        computed.append(results)

    def score(values: set[int | Fraction]) -> float | None:
        return min((having[value] - 1) / (len(computed) - 1) for value in values) if values else None

    return [list(map(score, results)) for results in computed]


def _plain(text: str) -> str:
    return _FRACTION.sub(r" \1/\2 ", _DECIMAL.sub(r"\1.\2", plain_characters(text.replace("{,}", ","))))


def _values(text: str) -> Iterator[int | Fraction]:
    """The numbers of a text; of a fraction its parts, too, and of a division that is carried out nothing else."""
    for over, under in _VALUE.findall(text):
        yield _quotient(over)
        if under:
            yield from (_quotient(under), _quotient(over, under))


def _quotient(over: str, under: str = "") -> int | Fraction:
    if over.isdigit() and not under:  # as most, and many times as fast
        return int(over)
    value = Fraction(over.translate(_BLANKS))
    divisor = _quotient(under) if under else 1
    return value / divisor if divisor else value
