"""Reads what a text that states no answer may mean by its last numbers or words. Such a reading is weak, alone it is
often wrong: it counts only with a witness, another reply or a right answer that equals it."""

import re

from unprm.answers.kinds import CLAUSE, short_text
from unprm.answers.moments import MOMENTS
from unprm.answers.tables import pattern
from unprm.steps import separated

_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+|\n+")
_LONGEST_SENTENCE = 500  # characters; of a longer one the end is read
_MARKS = " *_$.[]()\\"
_MOST_WORDS = 3
_LAST_VERB = re.compile(r".*\b(?:is|are)\b[\s*_\"“‘']+(?:the )?(?P<words>[^\W\d_][^.!?,;:]*)", re.DOTALL)
_IN_BRACKETS = re.compile(r"(?<![\\\w])\([^()]*\)(?! ?[=*/×÷^+-])")
_IN_COMMAND = re.compile(r"[\\^_{}]")
_BOLD = re.compile(r"\*\*[^*]*+(?<!:)\*\*(?!:)")
_PLUS_MINUS = re.compile(r"(?:±|\\pm)\s?$")
# atomic groups, as in `unprm.checks`
_TERM = r"(?>(?:(?>[0-9]+(?:\.[0-9]+)?)|(?<![^\W\d_])(?:[a-z]|π)(?![^\W\d_])|[\^²³()√])+)"
_EXPRESSION = re.compile(rf"{_TERM}(?>(?:\s?[-+*/·=]\s?{_TERM})*)")
_VARIABLE = re.compile(r"[a-zπ]\s?[-+*/^²³]|[-+*/(]\s?[0-9.]*[a-zπ]|[0-9)][xyznπ]")
"""A letter in an expression, rather than the unit of a number, as in 5m."""
_SOLUTIONS = re.compile(
    r"(?<!\w)[A-Za-z]\s?=\s?[^\s=,;]{1,30}(?>(?:(?:[,;]|[,;]?\s(?:or|and))\s\$?[A-Za-z]\s?=\s?[^\s=,;]{1,30})+)(?=[\s*_]*$)"
)


def weak_reading(text: str, problem: str = "") -> str | None:
    """What a text ends in, in its last sentence: several solutions (``x = 3 or x = -3``), the number after the last
    equals sign, else the last in bold, else the last that the problem does not give, else the first; as part of an
    expression, formula, date or time, this as a whole, or its last side. Of a sentence without numbers, the words after
    its verb, or a whole text of few words. None if it has neither. Linear in the length."""
    sentences = [each for each in _SENTENCE_END.split(separated(text)[0]) if each.strip(_MARKS)]
    last = sentences[-1][-_LONGEST_SENTENCE:] if sentences else ""
    if solutions := _SOLUTIONS.search(last):
        return solutions[0].replace("$", "").rstrip(".")
    return _number(last, problem) or _words(last, alone=len(sentences) == 1)


def _number(sentence: str, problem: str) -> str | None:
    brackets = [found.span() for found in _IN_BRACKETS.finditer(sentence)]
    numbers = list(pattern("any_number").finditer(sentence))
    outside = [number for number in numbers if not any(start < number.start() < end for start, end in brackets)]
    numbers = [each for each in outside if not sentence[: each.start()].endswith(("^", "_"))] or outside or numbers
    if not numbers:
        return None
    equals = sentence.rfind("=")
    number = next((number for number in numbers if number.start() > equals >= 0), None)
    if number is None:
        if bold := [*_BOLD.finditer(sentence)]:
            numbers = [each for each in numbers if bold[-1].start() < each.start() < bold[-1].end()] or numbers
        given = {_bare(found[0]) for found in pattern("any_number").finditer(problem)}
        number = next((number for number in reversed(numbers) if _bare(number[0]) not in given), numbers[0])
    for formula in pattern("formula").finditer(sentence):
        if formula.start() <= number.start() < formula.end():
            side = next(group for group in formula.groups() if group is not None).rsplit("=", 1)[-1].strip(" .,")
            if _IN_COMMAND.search(side):
                return side
    for kind in (*MOMENTS, _EXPRESSION):
        for whole in kind.finditer(sentence):
            side = whole[0].rsplit("=", 1)[-1].strip()
            if whole.start() < number.end() <= whole.end() and (kind is not _EXPRESSION or _is_term(side, problem)):
                return side
    value = ("±" if _PLUS_MINUS.search(sentence, 0, number.start()) else "") + number[0].strip()
    return value.strip("$") if value.endswith("$") else value  # the end of a formula, no currency


def _is_term(side: str, problem: str) -> bool:
    """Whether an expression has a variable, and is not the one that the problem asks for."""
    return bool(_VARIABLE.search(side)) and side.count("(") == side.count(")") and side not in problem


def _bare(number: str) -> str:
    return number.replace(",", "").strip(" $.")


def _words(sentence: str, *, alone: bool) -> str | None:
    found = _LAST_VERB.fullmatch(sentence.rstrip(" .!*_\"”’'"))
    words = short_text(found["words"]) if found else short_text(sentence) if alone else None
    said = (words or "").casefold().split()
    return words if len(said) <= _MOST_WORDS and CLAUSE.isdisjoint(said) else None
