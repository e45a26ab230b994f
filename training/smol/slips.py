"""Plants one error in a right solution: another operation or another number. The sums stay right, as the reasoner's do
with its calculator."""

import random
import re
from collections.abc import Iterator
from fractions import Fraction

from .equations import calculated, number, numbers
from .questions import WordProblem, written

_DECIMAL = r"\d+(?:\.\d+)?"
_CALCULATION = re.compile(
    rf"(?<![\d.,)%/*+-])(\$?)({_DECIMAL})(\s*)([-+*/x])(\s*\$?)({_DECIMAL})(\s*=\s*\$?)({_DECIMAL})(?![\d.,]\d|[%\d])"
)
_STATED = re.compile(r"\\boxed\{([^{}]*)\}")
_LARGEST = 10**6


def slips(question: WordProblem, rng: random.Random) -> Iterator[tuple[str, ...]]:
    """One solution for each step in which an error can be planted: right up to this step, with which it ends."""
    gold = question.gold()
    known = sorted(numbers(question.problem))
    for index, step in enumerate(question.steps):
        found = [match for match in _CALCULATION.finditer(step) if not _goes_on(step[: match.start()])]
        if len(found) == 1:
            texts = list(_miscalculated(step, found[0], known))
        elif stated := _STATED.search(step):
            texts = [_STATED.sub(rf"\\boxed{{{written(value)}}}", step) for value in known if value != question.answer]
            texts = [text for text in texts if text != step] if stated else []
        else:
            continue
        rng.shuffle(texts)
        for text in texts:
            whole = (*question.steps[:index], text)
            # with the gold answer stated at the end, no later step is at fault
            closed = whole if index == len(question.steps) - 1 else (*whole, question.steps[-1])
            if gold.first_error(closed) == index:
                yield whole
                break
        known += [number(match[8]) for match in found]


def _goes_on(before: str) -> bool:
    """Whether what follows is only the end of a longer expression."""
    return before.rstrip().endswith((*"+-*/(", " x"))


def _miscalculated(step: str, match: re.Match[str], known: list[Fraction]) -> Iterator[str]:
    """The step with another operation or another operand."""
    currency, left, space, sign, gap, right, equals, _ = match.groups()
    first, second = number(left), number(right)

    def text(a: Fraction, operation: str, b: Fraction, value: Fraction) -> str:
        made = f"{currency}{written(a)}{space}{operation}{gap}{written(b)}{equals}{written(value)}"
        return step[: match.start()] + made + step[match.end() :]

    times = "x" if sign == "x" else "*"
    others = [operation for operation in ("+", "-", times, "/") if operation != sign]
    changed = [(first, operation, second) for operation in others]
    changed += [(second, operation, first) for operation in ("-", "/")]
    changed += [(value, sign, second) for value in known if value != first]
    changed += [(first, sign, value) for value in known if value != second]
    for a, operation, b in changed:
        value = calculated(f"{written(a)}{operation}{written(b)}")
        if value is not None and 0 <= value <= _LARGEST and (value * 100).denominator == 1:
            yield text(a, operation, b, value)
