"""Determinants of numbers of any kind."""

from collections.abc import Callable, Sequence
from functools import cache
from math import isqrt
from typing import TypeVar

MAX_ROWS = 5

Value = TypeVar("Value")


def determinant(
    cells: Sequence[Value],
    multiplied: Callable[[Value, Value], Value],
    added: Callable[[Sequence[Value]], Value],
    negated: Callable[[Value], Value],
) -> Value:
    """The determinant of a square matrix, given row by row, by Laplace's expansion; each minor is computed once."""
    size = isqrt(len(cells))

    @cache
    def minor(columns: tuple[int, ...]) -> Value:
        row = cells[(size - len(columns)) * size :]
        if len(columns) == 1:
            return row[columns[0]]
        terms = [multiplied(row[column], minor(columns[:at] + columns[at + 1 :])) for at, column in enumerate(columns)]
        return added([negated(term) if at % 2 else term for at, term in enumerate(terms)])

    return minor(tuple(range(size)))
