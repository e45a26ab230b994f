"""Where a solution of a word problem first goes wrong, by its equations and those of the gold solution.

A step is right if its equations hold and each is a part of some way to the gold answer: its result is one of the gold
solution's results as a function of the question's numbers, or few more operations lead from it to the answer. So other
right ways count as right, and the right number by accident doesn't.
"""

import ast
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

from unprm.answers.extraction import extract

from .equations import Equation, Meaning, combine, equations, leaf, meanings, number, numbers, operands, symbols

_OPERATIONS = ast.Add, ast.Sub, ast.Mult, ast.Div
_SPARE = 1
"""A right solution may have as many operations more than the gold one."""
_AHEAD = 2
"""Operations that are looked ahead from a step's result to the answer."""
_WIDEST = 8
"""With more results and numbers at hand than this, only one operation is looked ahead: work grows with their cube."""


@dataclass(slots=True)
class _Known:
    """What a written number can mean: a number of the question, a constant, the result of an earlier equation."""

    variables: dict[Fraction, Meaning]
    results: dict[Fraction, list[Meaning]] = field(default_factory=dict)

    def of(self, value: Fraction) -> list[Meaning]:
        found = list(self.results.get(value, ()))
        return found if found and value not in self.variables else [*found, leaf(value, self.variables)]

    def add(self, value: Fraction, meaning: Meaning) -> None:
        if meaning not in self.results.setdefault(value, []):
            self.results[value].append(meaning)


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold solution. `targets`: what its answer can mean, each with the results and numbers that it is made of;
    `numbers`: those that it takes from the question, or knows; `operations`: how many it needs; `answer`: its value.
    """

    variables: dict[Fraction, Meaning]
    targets: dict[Meaning, set[Meaning]]
    numbers: set[Meaning]
    operations: int
    answer: Fraction

    @classmethod
    def read(cls, problem: str, chain: Sequence[Equation], answer: Fraction) -> Self:
        """From the equations of a right solution, the last of which has the answer as its result.

        Raises `ValueError` if there is none, one doesn't hold, or the last has another result.
        """
        if not chain or not all(equation.holds for equation in chain) or chain[-1].result != answer:
            raise ValueError("the equations of a gold solution must hold and lead to its answer")
        known = _Known(symbols(numbers(problem)))
        parts: dict[Meaning, set[Meaning]] = {}
        taken: set[Meaning] = set()
        for equation in chain:
            taken |= {leaf(value, known.variables) for value in operands(equation.tree) if value not in known.results}
            found = meanings(equation.tree, known.of)
            for whole, inner in found.items():
                parts[whole] = inner.union(*(parts[part] for part in inner if part in parts))
                known.add(equation.result, whole)
        operations = sum(equation.operations for equation in chain)
        return cls(known.variables, {whole: parts[whole] for whole in found}, taken, operations, answer)

    def first_error(self, steps: Sequence[str]) -> int | None:
        """Index of a solution's first wrong step; None if it is right. If all equations lead to the answer, but
        another one is stated or none, the last step is wrong."""
        known, used = _Known(self.variables), 0
        for index, step in enumerate(steps):
            for equation in equations(step):
                used += equation.operations
                found = meanings(equation.tree, known.of) if equation.holds else {}
                right = [
                    meaning for meaning in found if self._leads_on(meaning, known, self.operations + _SPARE - used)
                ]
                if not right:
                    return index
                for meaning in right:
                    known.add(equation.result, meaning)
        return None if _states(steps, self.answer) else len(steps) - 1

    def _leads_on(self, meaning: Meaning, known: _Known, operations: int) -> bool:
        at_hand = self.numbers.union(*known.results.values())
        return any(
            meaning in parts or _reaches(meaning, target, at_hand, min(_AHEAD, operations))
            for target, parts in self.targets.items()
        )


def _states(steps: Sequence[str], answer: Fraction) -> bool:
    stated = extract("\n".join(steps))
    try:
        return stated is not None and number(stated.strip().lstrip("$")) == answer
    except ValueError:
        return False


def _reaches(start: Meaning, target: Meaning, pool: Set[Meaning], operations: int) -> bool:
    """Whether at most so many operations lead from `start` to `target`, each with one of the pool."""
    if operations <= 0:
        return start == target
    around = {constant for other in pool for constant in _around(start, other)}
    if target in around or operations == 1 or len(pool) > _WIDEST:
        return target in around
    pairs = {made for first in pool for second in pool for made in _around(first, second)}
    return any(_joined(made, target, pool) for made in around) or _joined(start, target, pairs)


def _joined(start: Meaning, target: Meaning, pool: Iterable[Meaning]) -> bool:
    return any(target in _around(start, other) for other in pool)


def _around(first: Meaning, second: Meaning) -> set[Meaning]:
    """The results of one operation on two expressions, in both orders."""
    pairs = (first, second), (second, first)
    made = (combine(operation, *pair) for operation in _OPERATIONS for pair in pairs)
    return {meaning for meaning in made if meaning is not None}
