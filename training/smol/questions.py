"""School word problems: their gold equations, variants with other numbers, and which stage may use which of them."""

import ast
import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfVectorizer

from .equations import NUMBER, Equation, calculated, equations, evaluate, number, operands, parse
from .truth import Gold

Part = Literal["reasoner", "construct", "test", "others"]
"""A stage that may use a question; "others": tests only, with questions that no stage may train on."""
_SHARES: tuple[tuple[Part, int], ...] = (("test", 20), ("construct", 60), ("reasoner", 100))
"""Up to which hundredth of the families belong to a part."""
_NEAR = 0.4
"""Cosine of the pairs of words of two problems from which on they are near matches. SVAMP varies about a hundred
problems: with it, the largest family of theirs has 34 members."""
_CALCULATION = re.compile(r"<<([^<>]*)=([^<>]*)>>")
_PLACEHOLDER = re.compile(r"number(\d+)")
_LONGEST = 5
_TRIES = 50
_SIGNS = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div}


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A problem with its gold solution's steps, and their equations in order."""

    id: str
    problem: str
    answer: Fraction
    steps: tuple[str, ...]
    chain: tuple[Equation, ...]

    @property
    def text(self) -> str:
        """The gold solution, a line per step."""
        return "\n".join(self.steps)

    def gold(self) -> Gold:
        """What tells right from wrong steps."""
        return Gold.read(self.problem, self.chain, self.answer)


def written(value: Fraction) -> str:
    """A number as decimals, at most two."""
    return str(int(value)) if value.denominator == 1 else f"{float(value):.2f}".rstrip("0")


def easy(row: Mapping[str, Any]) -> WordProblem | None:
    """From a row with `problem`, `answer`, and `equation`: infix, or prefix over `number0`, `number1`... as in MAWPS.

    None if it isn't a formula of the problem's numbers in at most two decimals.
    """
    problem, equation = str(row["problem"]), str(row["equation"])
    stated = [number(text) for text in NUMBER.findall(problem)]
    try:
        infix = _from_prefix(equation, stated) if "number" in equation else equation.partition("=")[0]
        answer = number(str(row["answer"]))
    except (IndexError, ValueError):
        return None
    tree = parse(infix)
    values = [answer, *operands(tree)] if tree is not None else []
    if tree is None or evaluate(tree) != answer or any((value * 100).denominator != 1 for value in values):
        return None
    return _solved(str(row["id"]), problem, tree, answer)


def _from_prefix(equation: str, stated: list[Fraction]) -> str:
    pieces = iter(equation.split())

    def read() -> str:
        piece = next(pieces)
        if piece in "+-*/":
            return f"({read()} {piece} {read()})"
        found = _PLACEHOLDER.fullmatch(piece)
        return written(stated[int(found[1])]) if found else piece

    return read()


def _solved(name: str, problem: str, tree: ast.expr, answer: Fraction) -> WordProblem | None:
    lines: list[str] = []
    _write(tree, lines)
    chain = tuple(equation for line in lines for equation in equations(line))
    if not chain or len(chain) != len(lines) or not all(e.holds and e.result >= 0 for e in chain):
        return None
    return WordProblem(name, problem, answer, (*lines, f"The answer is \\boxed{{{written(answer)}}}."), chain)


def _write(tree: ast.expr, lines: list[str]) -> Fraction:
    """Appends one line per operation, innermost first; returns the value, rounded as the lines have it."""
    value = evaluate(tree)
    if not isinstance(tree, ast.BinOp) or value is None:
        return value or Fraction(0)
    left, right = _write(tree.left, lines), _write(tree.right, lines)
    sign = next(sign for sign, kind in _SIGNS.items() if isinstance(tree.op, kind))
    lines.append(f"{written(left)} {sign} {written(right)} = {written(value)}")
    return value


def gsm8k(row: Mapping[str, Any]) -> WordProblem | None:
    """From a row of GSM8K: `idx`, `question`, and a solution with its calculations in `<<...>>` and the answer after
    `####`, in `answer` or, beside the answer, in `solution`.

    None if there are more than `_LONGEST` calculations, or they aren't the equations of the text, or don't lead to the
    answer.
    """
    *lines, last = str(row.get("solution", row["answer"])).strip().split("\n")
    answer = last.removeprefix("####").strip()
    calculations = (f"{left}={right}" for line in lines for left, right in _CALCULATION.findall(line))
    chain = tuple(equation for calculation in calculations for equation in equations(calculation))
    plain = tuple(filter(None, (_CALCULATION.sub("", line).strip() for line in lines)))
    written_out = tuple(equation for line in plain for equation in equations(line))
    if len(chain) > _LONGEST or list(map(str, chain)) != list(map(str, written_out)):
        return None
    steps = (*plain, f"The answer is \\boxed{{{answer}}}.")
    try:
        found = WordProblem(f"gsm8k-{row['idx']}", str(row["question"]), number(answer), steps, chain)
        return found if found.gold().first_error(steps) is None else None
    except ValueError:
        return None


def bare(question: WordProblem) -> WordProblem:
    """The same question with an equation per step and no words, as the solutions of easy questions are."""
    lines = [f"{ast.unparse(equation.tree)} = {written(equation.result)}" for equation in question.chain]
    return replace(question, steps=(*lines, f"The answer is \\boxed{{{written(question.answer)}}}."))


def variant(question: WordProblem, number_of: int, seed: int) -> WordProblem | None:
    """The same problem with other numbers, so that what is learnt is its words and not its numbers; for easy problems
    that state each number once, in digits, and whole. None if no fitting numbers are found."""
    values = [number(text) for text in NUMBER.findall(question.problem)]
    results = [equation.result for equation in question.chain]
    if any(value.denominator != 1 for value in values) or len({*values, *results}) < len(values) + len(results):
        return None
    rng = random.Random(f"{seed}/{question.id}/{number_of}")
    for _ in range(_TRIES):
        drawn = {value: Fraction(rng.randint(2, max(9, int(value) * 3 // 2 + 3))) for value in values}
        if (made := _with(question, drawn, f"{question.id}/{number_of}")) is not None:
            return made
    return None


def _with(question: WordProblem, drawn: Mapping[Fraction, Fraction], name: str) -> WordProblem | None:
    """The problem with each number replaced; None if a result isn't whole and positive, or equals another number."""
    known, lines, result = dict(drawn), [], Fraction(0)
    for equation in question.chain:
        if not {*operands(equation.tree)} <= known.keys():
            return None  # a number that the problem has in words, or not at all
        left, right = (known[value] for value in operands(equation.tree))
        sign = next(sign for sign, kind in _SIGNS.items() if isinstance(equation.tree.op, kind))  # type: ignore[attr-defined]
        value = calculated(f"{left}{sign}{right}")
        if value is None or value <= 0 or value.denominator != 1 or value in known.values():
            return None
        known[equation.result] = result = value
        lines.append(f"{left} {sign} {right} = {value}")
    if len(set(known.values())) < len(known):
        return None
    problem = NUMBER.sub(lambda found: str(drawn[number(found[0])]), question.problem)
    chain = tuple(equation for line in lines for equation in equations(line))
    return WordProblem(name, problem, result, (*lines, f"The answer is \\boxed{{{result}}}."), chain)


def split(
    questions: Sequence[WordProblem], measured: Sequence[WordProblem], reserved: Sequence[str]
) -> dict[Part, list[WordProblem]]:
    """Which stage may use which questions. Near matches, their numbers apart, stay together, and those of the problems
    in `reserved`, on which others measure, are in no part. `measured`: the questions of the part "others"; those with a
    near match that is trained on are in no part."""
    words = TfidfVectorizer(token_pattern=r"[a-z]+", ngram_range=(2, 2), binary=True)
    problems = [*(question.problem for question in (*questions, *measured)), *reserved]
    vectors = words.fit_transform([problem.lower() for problem in problems])
    _, families = connected_components(vectors @ vectors.T >= _NEAR, directed=False)
    closed = set(families[len(questions) + len(measured) :])
    names: dict[int, str] = {}
    for question, family in zip(questions, families, strict=False):
        names[family] = min(names.get(family, question.id), question.id)
    parts: dict[Part, list[WordProblem]] = {"reasoner": [], "construct": [], "test": [], "others": []}
    for question, family in zip(questions, families, strict=False):
        if family not in closed:
            parts[_part(names[family])].append(question)
    for question, family in zip(measured, families[len(questions) :], strict=False):
        if family not in closed and (family not in names or _part(names[family]) == "test"):
            parts["others"].append(question)
    return parts


def _part(name: str) -> Part:
    hundredth = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100
    return next(part for part, end in _SHARES if hundredth < end)
