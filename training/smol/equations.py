"""Equations in the text of solutions, and their meaning as functions of a question's numbers.

An expression is known by its values at two random points, modulo a prime: two expressions that agree there are the same
function but with probability below 1e-15 (Schwartz, 1980).
"""

import ast
import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

PRIME = 2**61 - 1
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?|\.\d+"
NUMBER = re.compile(rf"(?<![\w.])(?:{_NUMBER})(?![\w]*[a-zA-Z])")
_EQUATION = re.compile(rf"((?:[(\s$-]|{_NUMBER})(?:{_NUMBER}|[\s$%()+*/x×÷−-])*)=\s*(-?)\s*\$?\s*({_NUMBER})(%?)")
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = dict(zip((*_ONES, *_TENS), (*range(20), *range(20, 100, 10)), strict=True))
_WORD = re.compile(r"[a-z]+")
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LONGEST = 200
"""Characters of an equation that are read."""

Meaning = tuple[int, int]
"""An expression's values at the two points."""


@dataclass(frozen=True, slots=True)
class Equation:
    """`expression = result`, as it is written; `tree` is the parsed expression."""

    tree: ast.expr
    result: Fraction

    def __str__(self) -> str:
        return f"{ast.unparse(self.tree)} = {self.result}"

    @property
    def holds(self) -> bool:
        """Whether the expression has this value, up to rounding to two digits."""
        value = evaluate(self.tree)
        return value is not None and abs(value - self.result) <= Fraction(1, 100) * max(1, abs(value) // 100)

    @property
    def operations(self) -> int:
        """Number of additions, subtractions, multiplications and divisions."""
        return sum(isinstance(node, ast.BinOp) for node in ast.walk(self.tree))


def number(text: str) -> Fraction:
    """The value of a written number, which may have thousands' commas."""
    return Fraction(text.replace(",", ""))


def numbers(problem: str) -> set[Fraction]:
    """The values of all numbers in a problem, in digits or in English words up to ninety."""
    words = {Fraction(_WORDS[word]) for word in _WORD.findall(problem.lower()) if word in _WORDS}
    return words | {number(text) for text in NUMBER.findall(problem)}


def parse(expression: str) -> ast.expr | None:
    """The tree of an expression of numbers, `+ - * /`, and brackets; None for anything else."""
    for sign, meaning in {"x": "*", "×": "*", "÷": "/", "−": "-", "$": "", ",": "", "%": "/100"}.items():
        expression = expression.replace(sign, meaning)
    try:
        tree = ast.parse(re.sub(r"(?<![\d.])0+(?=\d)", "", expression).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return tree if _is_plain(tree) else None


def _is_plain(tree: ast.expr) -> bool:
    match tree:
        case ast.BinOp(left, op, right):
            return type(op) in _OPERATIONS and _is_plain(left) and _is_plain(right)
        case ast.UnaryOp(ast.USub(), operand):
            return _is_plain(operand)
        case ast.Constant(int() | float()):
            return True
    return False


def equations(step: str) -> Iterator[Equation]:
    """The equations with at least one operation in a step's text."""
    for found in _EQUATION.finditer(step):
        tree = parse(found[1]) if len(found[1]) <= _LONGEST else None
        if tree is not None and any(isinstance(node, ast.BinOp) for node in ast.walk(tree)):
            result = number(found[3]) * (-1 if found[2] else 1) / (100 if found[4] else 1)
            yield Equation(tree, result)


def evaluate(tree: ast.expr) -> Fraction | None:
    """The exact value; None for a division by zero."""
    try:
        return _evaluate(tree)
    except ZeroDivisionError:
        return None


def calculated(expression: str) -> Fraction | None:
    """The value of an expression's text; None if it has none."""
    tree = parse(expression)
    return None if tree is None else evaluate(tree)


def _evaluate(tree: ast.expr) -> Fraction:
    match tree:
        case ast.BinOp(left, op, right):
            return _OPERATIONS[type(op)](_evaluate(left), _evaluate(right))
        case ast.UnaryOp(_, operand):
            return -_evaluate(operand)
        case ast.Constant(value):
            return Fraction(str(value))
    raise ValueError(f"not an expression of numbers: {ast.unparse(tree)!r}")


def constant(value: Fraction) -> Meaning:
    """The meaning of a number that is the same for every question."""
    residue = value.numerator * pow(value.denominator, -1, PRIME) % PRIME
    return residue, residue


def symbols(values: set[Fraction]) -> dict[Fraction, Meaning]:
    """A variable for each of a question's numbers; equal values are one variable."""
    made = {}
    for value in values:
        rng = random.Random(f"{value}")
        made[value] = (rng.randrange(PRIME), rng.randrange(PRIME))
    return made


def combine(op: type[ast.operator], left: Meaning, right: Meaning) -> Meaning | None:
    """The meaning of an operation; None for a division by zero."""
    if op is ast.Div:
        if 0 in right:
            return None
        return left[0] * pow(right[0], -1, PRIME) % PRIME, left[1] * pow(right[1], -1, PRIME) % PRIME
    apply = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}[op]
    return apply(left[0], right[0]) % PRIME, apply(left[1], right[1]) % PRIME


def meanings(tree: ast.expr, of: Callable[[Fraction], list[Meaning]]) -> dict[Meaning, set[Meaning]]:
    """What an expression can mean, each meaning with those of its parts; `of`: what a number can mean."""
    match tree:
        case ast.BinOp(left, op, right):
            found: dict[Meaning, set[Meaning]] = {}
            for first, below in meanings(left, of).items():
                for second, beside in meanings(right, of).items():
                    if (whole := combine(type(op), first, second)) is not None:
                        found.setdefault(whole, {whole} | below | beside)
            return found
        case ast.UnaryOp(_, operand):
            return {(-a % PRIME, -b % PRIME): parts for (a, b), parts in meanings(operand, of).items()}
    return {meaning: {meaning} for meaning in of(_evaluate(tree))}


def operands(tree: ast.expr) -> list[Fraction]:
    """The numbers of an expression, in order."""
    return [Fraction(str(node.value)) for node in ast.walk(tree) if isinstance(node, ast.Constant)]


def leaf(value: Fraction, variables: Mapping[Fraction, Meaning]) -> Meaning:
    """What a number means that isn't the result of a step: a variable of the question, or a constant."""
    return variables.get(value) or constant(value)
