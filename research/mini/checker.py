"""The exact check of solutions to problems of the `unprm-mini` domain."""

import re
from collections.abc import Sequence

from unprm.mini.domain import Operation, Problem

_EQUATION = re.compile(r"(-?\d{1,12}) *([-+*/×÷]) *(-?\d{1,12}) *= *(-?\d{1,12})(?!\d)")
_BOXED = re.compile(r"\\boxed\{(-?\d{1,12})\}")
_SYMBOLS = {"×": "*", "÷": "/"}


def first_error(problem: Problem, steps: Sequence[str]) -> int | None:
    """Index of the first wrong step, None if all are right.

    A step is right if it contains an equation or a boxed answer, and all that it contains are right: an
    equation if it performs one of the problem's operations on quantities that are given or were derived by an
    earlier equation, with the right result (the operands of + and * in either order; repeating an operation is
    no error); a boxed answer if it is the problem's answer.
    """
    done: set[int] = set()
    for index, step in enumerate(steps):
        if not _is_right(problem, step, done):
            return index
    return None


def labels(problem: Problem, steps: Sequence[str]) -> list[bool]:
    """True for every step before the first wrong one, False from there on."""
    wrong = first_error(problem, steps)
    return [wrong is None or index < wrong for index in range(len(steps))]


def _is_right(problem: Problem, step: str, done: set[int]) -> bool:
    """Checks one step and adds the operations that it performs to `done`."""
    equations, boxed = _EQUATION.findall(step), _BOXED.findall(step)
    for left, symbol, right, value in equations:
        performed = _performed(problem, done, int(left), _SYMBOLS.get(symbol, symbol), int(right))
        if performed is None or problem.operations[performed].value != int(value):
            return False
        done.add(performed)
    return bool(equations or boxed) and all(int(answer) == problem.answer for answer in boxed)


def _performed(problem: Problem, done: set[int], left: int, symbol: str, right: int) -> int | None:
    """Index of the operation that `left symbol right` performs, preferring those not yet done."""
    fitting = (
        index
        for index, operation in enumerate(problem.operations)
        if operation.symbol == symbol and _operands_fit(operation, done, left, right)
    )
    return min(fitting, key=lambda index: index in done, default=None)


def _operands_fit(operation: Operation, done: set[int], left: int, right: int) -> bool:
    if any(quantity.source is not None and quantity.source not in done for quantity in operation.operands):
        return False
    expected = tuple(quantity.value for quantity in operation.operands)
    return (left, right) == expected or (operation.symbol in "+*" and (right, left) == expected)
