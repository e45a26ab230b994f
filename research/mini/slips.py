"""Simulated authors who make the mistakes ("slips") that people make.

They write the pretraining corpus of the embedded model, so the generator trained on it makes such mistakes;
its PRM is also trained on such solutions. `Author.solve` carries a slip through to the end, as people do: later steps
build on the wrong value.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from unprm.mini.domain import OPPOSITE, Operation, Problem, Quantity, calculate, write_steps

ARITHMETIC = {"+": 0.08, "-": 0.08, "*": 0.1, "/": 0.1}
"""Probability of a wrong result, plus `PER_CARRY` for each carry or borrow."""
PER_CARRY = 0.03
READING = {
    "misread": 0.02,
    "distracted": 0.02,
    "stale": 0.015,
    "confused": 0.015,
    "inverted": 0.01,
    "skipped": 0.01,
}
"""Probability of each kind of slip in reading the story, if the story allows it."""


def carries(symbol: str, left: int, right: int) -> list[int]:
    """The decimal places (0 = ones) at which an addition carries or a subtraction borrows."""
    places, carry, place = [], 0, 0
    while right or carry:
        low = left % 10 + right % 10 + carry if symbol == "+" else left % 10 - right % 10 - carry
        carry = int(not 0 <= low <= 9)
        if carry:
            places.append(place)
        left, right, place = left // 10, right // 10, place + 1
        if place > 12:
            break  # a negative difference would borrow forever
    return places


def wrong_result(rng: random.Random, symbol: str, left: int, right: int) -> int:
    """A plausible wrong result: a forgotten carry, a neighbouring multiplication-table entry, or a digit off by one."""
    value = calculate(symbol, left, right)
    ways = [value + rng.choice([-1, 1]) * 10 ** rng.randrange(len(str(abs(value))))]
    match symbol:
        case "+" | "-":
            forgotten = (10 ** (place + 1) for place in carries(symbol, left, right))
            ways += [calculate(OPPOSITE[symbol], value, carry) for carry in forgotten] * 2
        case "*":
            ways += [value + rng.choice([-1, 1]) * rng.choice([left, right]), value - 10, value - 100]
        case _:
            ways += [value + 1, value - 1, value + 10]
    plausible = [way for way in ways if way != value and way >= 0]
    chosen: int = rng.choice(plausible or [value + 1])
    return chosen


@dataclass(slots=True)
class Author:
    """Writes solutions; `carelessness` scales every probability of a slip (0: never wrong)."""

    rng: random.Random
    carelessness: float = 1.0
    _believed: dict[int, int] = field(default_factory=dict)

    def solve(self, problem: Problem) -> list[str]:
        """The steps of a solution, right or wrong, with a boxed answer in the last."""
        self._believed = {}
        lines = [line for index in range(len(problem.operations)) for line in self._step(problem, index)]
        return write_steps(lines, self._believed[len(problem.operations) - 1])

    def _slips(self, probability: float) -> bool:
        return self.rng.random() < self.carelessness * probability

    def _value(self, quantity: Quantity) -> int:
        return quantity.value if quantity.source is None else self._believed[quantity.source]

    def _step(self, problem: Problem, index: int) -> Iterator[str]:
        operation = problem.operations[index]
        symbol, left, right = operation.symbol, self._value(operation.left), self._value(operation.right)
        for slip in READING:
            if self._slips(READING[slip]):
                symbol, left, right = self._misunderstand(slip, problem, operation, (symbol, left, right))
                if slip == "skipped" and index + 1 < len(problem.operations):
                    self._believed[index] = left
                    return
        value = calculate(symbol, left, right or 1)
        if self._slips(ARITHMETIC[symbol] + PER_CARRY * self._effort(symbol, left, right)):
            value = wrong_result(self.rng, symbol, left, right or 1)
        self._believed[index] = value
        yield f"{left} {symbol} {right or 1} = {value}"

    def _effort(self, symbol: str, left: int, right: int) -> int:
        if symbol in "+-":
            return len(carries(symbol, left, right))
        return len(str(abs(left))) + len(str(abs(right))) - 2

    def _misunderstand(
        self, slip: str, problem: Problem, operation: Operation, step: tuple[str, int, int]
    ) -> tuple[str, int, int]:
        """The step `(symbol, left, right)` after one slip in reading; unchanged if the slip is not possible there."""
        symbol, left, right = step
        match slip:
            case "misread" if operation.right.source is None:
                right = _misread(self.rng, right)
            case "distracted" if problem.asides:
                right = self.rng.choice(problem.asides)
            case "stale" if operation.left.source is not None:
                left = self._value(problem.operations[operation.left.source].left)
            case "confused" if self._believed:
                left = self.rng.choice(list(self._believed.values()))
            case "inverted":
                symbol = OPPOSITE[symbol]
        return symbol, left, right


def _misread(rng: random.Random, number: int) -> int:
    """The number with two neighbouring digits swapped, or one digit off by one."""
    digits = list(str(number))
    if len(digits) > 1 and rng.random() < 0.6:
        k = rng.randrange(len(digits) - 1)
        digits[k], digits[k + 1] = digits[k + 1], digits[k]
        return int("".join(digits))
    place: int = 10 ** rng.randrange(len(digits))
    return max(1, number + rng.choice([-1, 1]) * place)
