"""The value in what follows "the answer is": without fences, quotes, and the prose after it."""

import re

from unprm.answers.mathtext.units import is_unit_after, unit_name
from unprm.answers.mathtext.words import CONTRASTS
from unprm.answers.tables import pattern, words

MAX_CUT = 2000  # characters; a longer text is not a value followed by prose
_TURNING, _ENDING = words("turning"), words("ending")
_REACH = 4  # how many words after a number are searched for one of `_TURNING`


def stated_value(text: str) -> str | None:
    """The value that a statement begins with, as it is written there; None if it says nothing.

    Delimiters of display mathematics, code, bold and quotes are removed, also if the value is on the next line. A
    formula ends at its delimiter, a number where prose continues, either with its unit if one follows; a number gets a
    blank before its unit. A second quantity beside the first keeps the sentence whole. Linear in the length.
    """
    opening = pattern("opening").match(text)
    rest = text[opening.end() :] if opening else text
    formula = pattern("formula").match(rest)
    if formula is None and (unfinished := pattern("unfinished").match(rest)):
        rest = rest[unfinished.end() :]
    if enclosed := pattern("enclosed").match(rest):
        rest = enclosed[1]
    end = pattern("sentence_end").search(rest, formula.end() if formula else 0)
    sentence = rest[: end.start() if end else len(rest)].rstrip(' \t\r\n*_`",;:”\\')
    if sentence.endswith(")") and sentence.count("(") < sentence.count(")"):
        sentence = sentence[:-1]
    value = sentence if len(sentence) > MAX_CUT else _value(pattern("bold").sub("", sentence), formula)
    return value if pattern("says_something").search(value) else None


def _value(sentence: str, formula: re.Match[str] | None) -> str:
    if formula:
        inside = next(group for group in formula.groups() if group is not None).strip().removesuffix(".")
        end = value_end(sentence, formula.end(), is_money=False)
        return inside if end == formula.end() else sentence[:end]
    start = preamble.end() if (preamble := pattern("preamble").match(sentence)) else 0
    start = approximation.end() if (approximation := pattern("approximation").match(sentence, start)) else start
    verb = pattern("verb").match(sentence, start)
    if verb and not pattern("negation").search(verb[0]):
        start = verb.end()
    number = pattern("number").match(sentence, start)
    if number is None:
        return sentence
    end = value_end(sentence, number.end(), is_money=bool(number["currency"]))
    if end is None:
        return sentence
    unit = sentence[number.end() : end]
    # a letter that touches a number is read as a factor of it
    return sentence[start : number.end()] + (" " if unit[:1].isalpha() else "") + unit


def value_end(sentence: str, number_end: int, *, is_money: bool) -> int | None:
    """Where the value at the start of a sentence ends, given where its number or formula does.

    It ends after its unit and the words that make it another number, before the prose. None if the whole sentence is
    the value: it continues as mathematics, or has another quantity beside the first. `is_money`: a currency precedes
    the number, so that no unit follows.
    """
    end = number_end
    while scale := pattern("scale").match(sentence, end):
        end = scale.end()
    if not is_money:
        end = _unit_end(sentence, end)
    after = ordinal.end() if end == number_end and (ordinal := pattern("ordinal").match(sentence, end)) else end
    if _goes_on(sentence, after, is_bare=end == number_end):
        return None
    return _qualified_end(sentence, after) or end


def _unit_end(sentence: str, start: int) -> int:
    """Where the unit that begins here ends, with its power and what it is counted by; `start` if there is none."""
    found = pattern("unit_after").match(sentence, start)
    if found is None or found["square"]:
        return found.end() if found else start
    word, raised = found["unit"], found["power"] != ""
    touches = not found["blank"] and len(word) == 1
    if not (word in "mglhs" if touches else is_unit_after(word, spaced=True, literal=True, raised=raised)):
        return start
    return found.end() if found["per"] is None or unit_name(found["per"]) else found.end("power")


def _goes_on(sentence: str, end: int, *, is_bare: bool) -> bool:
    if any(pattern(further).match(sentence, end) for further in ("operator", "date", "number_beside")):
        return True
    if is_bare and pattern("share").match(sentence, end):
        return True
    following = pattern("next_number").search(sentence, end)
    before = sentence[end : following.start()] if following else sentence[end:]
    return bool(following and pattern("joined_number").search(before)) or bool(pattern("joined_word").search(before))


def _qualified_end(sentence: str, start: int) -> int | None:
    """The end of the last of the next `_REACH` words that is in `_TURNING` or `CONTRASTS`."""
    found, end = None, start
    for _ in range(_REACH):
        word = pattern("next_word").match(sentence, end)
        if word is None or word[1].lower() in _ENDING:
            break
        end = word.end()
        if word[1].lower() in _TURNING or unit_name(word[1]) in CONTRASTS:
            found = end
    return found
