"""Reads what a text that states no answer may mean by its last numbers or words. Such a reading is weak, alone it is
often wrong: it counts only with a witness, another reply or a right answer that equals it."""

import re

from unprm.answers.kinds import CLAUSE, short_text
from unprm.answers.tables import pattern
from unprm.steps import separated

_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+|\n+")
_LONGEST_SENTENCE = 500  # characters; of a longer one the end is read
_MARKS = " *_$.[]()\\"
_MOST_WORDS = 3
_LAST_VERB = re.compile(r".*\b(?:is|are)\b[\s*_\"“‘']+(?:the )?(?P<words>[^\W\d_][^.!?,;:]*)", re.DOTALL)
_IN_BRACKETS = re.compile(r"(?<![\\\w])\([^()]*\)(?! ?[=*/×÷^+-])")
_IN_COMMAND = re.compile(r"[\\^_{}]")


def weak_reading(text: str, problem: str = "") -> str | None:
    """The number or formula in which a text ends: of its last sentence, the number after the last equals sign; else the
    last number that the problem does not give; else the first. In a formula that is more than a number, its last side.
    Of a sentence without numbers, the words after its verb. None if it has neither. Linear in the length."""
    sentences = _SENTENCE_END.split(separated(text)[0])
    last = next((sentence for sentence in reversed(sentences) if sentence.strip(_MARKS)), "")[-_LONGEST_SENTENCE:]
    return _number(last, problem) or _words(last)


def _number(sentence: str, problem: str) -> str | None:
    brackets = [found.span() for found in _IN_BRACKETS.finditer(sentence)]
    numbers = list(pattern("any_number").finditer(sentence))
    outside = [number for number in numbers if not any(start < number.start() < end for start, end in brackets)]
    numbers = outside or numbers
    if not numbers:
        return None
    equals = sentence.rfind("=")
    number = next((number for number in numbers if number.start() > equals >= 0), None)
    if number is None:
        given = {_bare(found[0]) for found in pattern("any_number").finditer(problem)}
        number = next((number for number in reversed(numbers) if _bare(number[0]) not in given), numbers[0])
    for formula in pattern("formula").finditer(sentence):
        if formula.start() <= number.start() < formula.end():
            side = next(group for group in formula.groups() if group is not None).rsplit("=", 1)[-1].strip(" .,")
            if _IN_COMMAND.search(side):
                return side
    value = number[0].strip()
    return value.strip("$") if value.endswith("$") else value  # the end of a formula, no currency


def _bare(number: str) -> str:
    return number.replace(",", "").strip(" $.")


def _words(sentence: str) -> str | None:
    found = _LAST_VERB.fullmatch(sentence.rstrip(" .!*_\"”’'"))
    words = short_text(found["words"]) if found else None
    said = (words or "").casefold().split()
    return words if len(said) <= _MOST_WORDS and CLAUSE.isdisjoint(said) else None
