"""The letters of a multiple-choice question: A to P, in a statement or named in a text."""

import re

from unprm.answers.tables import pattern

_OTHER_LETTERS = str.maketrans("أبجدঅবডঢ", "ABCDABCD")
_REACH = 80  # characters between a verb and the letters it chooses


def lists_options(question: str) -> bool:
    """Whether a question lists options to choose from: three or more, marked A) B) C) or (A) (B) (C), or two at the
    start of lines, where A. and A: are marks too."""
    marks = list(pattern("option_mark").finditer(question))
    inline = "".join(mark["letter"] for mark in marks)
    lines = "".join(mark["letter"] for mark in marks if mark["line"] is not None)
    return "ABC" in inline or "AB" in lines


def stated_letters(statement: str) -> str | None:
    """The letters with which a statement begins, in alphabetical order: ``(B) Paris`` gives B, ``A and D`` AD,
    ``CCCCC`` C."""
    found = pattern("letters").match(statement)
    if found is None:
        return None
    if found["one"]:
        return found["one"].translate(_OTHER_LETTERS).upper()
    letters = sorted(re.findall("[A-P]", found["several"]))
    is_word = found["several"].isalpha() and "".join(letters) != found["several"]
    return None if is_word else "".join(dict.fromkeys(letters))


def named_letter(text: str) -> str | None:
    """The last letters that the text chooses ("it must be B", "B is correct"); else the letter of its first or last
    line, if no line begins with another one (``B) Paris``); else the option that it names last."""
    text = text.strip()
    if chosen := _last_letters(text, pattern("chosen"), capital=True):
        return chosen
    lines = list(pattern("option_line").finditer(text))
    if len({line[1].upper() for line in lines}) == 1 and (lines[0].start() == 0 or lines[-1].end() == len(text)):
        return lines[0][1].upper()
    return _last_letters(text, pattern("named_option"))


def _last_letters(text: str, intro: re.Pattern[str], *, capital: bool = False) -> str | None:
    last = None
    for found in intro.finditer(text):
        said = text[found.end() : found.end() + _REACH]
        letters = stated_letters(said)
        if not letters or pattern("refused_option").match(said) or (capital and letters[0] not in said):
            continue
        if not capital or letters[0] <= "J" or f"{letters[0]})" in text:  # M is a midpoint, O a centre
            last = letters
    return last
