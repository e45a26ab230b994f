r"""Finds the answer that a solution states, by these rules, in this order:

1. Thoughts count only where nothing else states an answer: ``<think>…</think>``, ``[THINK]``, ``<reasoning>`` …
2. The text ends where a special token (``</s>``, ``<|im_end|>``) or another question follows a stated answer.
3. Boxes: the last one, or the last ones if only signs, units and labels stand between them
   (``x = \boxed{3}, y = \boxed{-1}`` is 3, -1). An empty box or ``\boxed{answer}`` is a placeholder; what stands before
   a ``\boxed{`` without its end does not count, since the text was truncated.
4. Tags: the last ``<answer>…``, or ``<solution>…`` with nothing but a value in it.
5. Statements: "the answer is", "Answer:", ``"final_answer":`` and their like in some sixty languages, and ``####``. The
   last one with a value (number, formula, letter, yes or no); else the last. "The answer is correct" states nothing.
6. A last line that is nothing but a number or formula, or several; of thoughts only if there is nothing else.

Of what a statement says, its value is taken; numbers are written with the digits 0 to 9 and a decimal point.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache

from unprm.answers.mathtext.prose import boxes, with_digits
from unprm.answers.mathtext.units import is_unit_after, unit_name
from unprm.answers.mathtext.words import CONTRASTS
from unprm.answers.options import named_letter, stated_letters
from unprm.answers.tables import pattern, words, words_of_languages
from unprm.errors import attempt
from unprm.steps import separated
from unprm.types import Extraction

_WORD_ENDS = " \n\t{}$"
_BETWEEN = 100  # characters between two boxes of one answer
_LAST_LINE = 200  # characters; a longer line is no bare value
_LONGEST_VALUE = 2000  # characters; a longer text is not a value followed by prose
_TURNING, _ENDING = words("turning"), words("ending")
_REACH = 4  # how many words after a number are searched for one of `_TURNING`

Read = Callable[[str], str | None]


def extract(text: str, mode: Extraction = "auto", *, cut: bool = False) -> str | None:
    """The answer that a solution states, or None, by the rules above.

    - ``auto``, ``stated``: all rules.
    - ``boxed``: only boxes.
    - ``last_number``: as ``auto``; if no answer is stated, the last number of the text.
    - ``choice``: the letters, A to P, of the options that are stated last (several as ABD).

    `cut`: the text breaks off, as at a limit of tokens. Then only boxes, tags and statements outside of thoughts count,
    and not the word at the end: 4 may have become 42.

    Linear in the length. If a rule fails by an error, the text states no answer (`unprm.errors.attempt`).
    """
    return attempt(lambda: _extract(text, mode, cut), None)


def _extract(text: str, mode: Extraction, cut: bool) -> str | None:
    if cut:
        text = text[: 1 + max(map(text.rfind, _WORD_ENDS))] + "…"
    thoughts = separated(with_digits(text).replace("assistantfinal", "<|channel|>final"))
    parts = [part for text in (thoughts[:1] if cut else thoughts) for part in pattern("text_end").split(text)]
    reads = _READS[mode] if not cut else (_stated_choice,) if mode == "choice" else _READS[mode][:1]
    outside = pattern("text_end").split(thoughts[0]) if thoughts[0].strip() else parts
    for read in reads:
        for part in outside if read is _bare else parts:
            answer = read(part)
            if answer is not None:
                return _with_decimal_point(answer, text)
    return None


def _auto(text: str) -> str | None:
    """The answer from the first kind of statement that the text has: box, answer tag or marker."""
    box, rest = _last_boxes(text)
    if box:
        return box
    tagged = _last_tagged(rest)
    if tagged:
        return _after_marker(tagged) or _bare(tagged) or stated_value(tagged)
    return _after_marker(rest)


def _last_boxes(text: str) -> tuple[str | None, str]:
    """The contents of the last boxes that belong together, and the text where other statements count: all of it,
    or that after a box without its end."""
    if "box" not in text:
        return None, text
    found = boxes(text)
    if cut := pattern("cut_box").search(text, found[-1].end if found else 0):
        return None, text[cut.start() + 1 :]
    parts: list[str] = []
    start, inside = None, len(text)
    for box in reversed(found):
        is_outer, inside = box.end > inside, box.start
        if is_outer or pattern("placeholder").fullmatch(text[box.inner]):
            continue
        if start is not None:
            between = text[box.end : start]
            if len(between) > _BETWEEN or not pattern("next_part").fullmatch(pattern("sign_between").sub(" ", between)):
                break
        parts.append(_plain(text[box.inner].strip()))
        start = box.start
    return ", ".join(dict.fromkeys(map(_without_label, reversed(parts)))) or None, text


def _plain(boxed: str) -> str:
    """The contents of a box without colour, size, arrows and quotes; of a sentence, the value that it states."""
    if "&" not in boxed and "\\\\" not in boxed:
        boxed = pattern("decoration").sub("", boxed).strip()
    if quoted := pattern("quoted").fullmatch(boxed):
        boxed = quoted[2] or quoted[3]
    boxed = pattern("noun_in_brackets").sub(r" \1", boxed)
    sentence = pattern("sentence").fullmatch(pattern("text_command").sub(r"\1", boxed))
    return stated_value(sentence[0]) or boxed if sentence else boxed


def _without_label(value: str) -> str:
    r"""Drops the letter of an option before its value: ``\text{(B) }14`` becomes 14."""
    label = pattern("option_label").match(value)
    return value[label.end() :] if label else value


def _last_tagged(text: str) -> str | None:
    """The content of the last answer tag; its end is often a stop sequence and so not in the text."""
    start, last = None, None
    for tag in pattern("answer_tag").finditer(text):
        if not tag[1]:
            start = tag
        elif start:
            content = text[start.end() : tag.start()].strip()
            last = content if content and (tag[2].lower() != "solution" or _bare(content)) else last
            start = None
    rest = text[start.end() :].strip() if start and start[2].lower() != "solution" else ""
    return rest if pattern("has_value").search(rest) else last


def _after_marker(text: str) -> str | None:
    """The value of the last statement that has one; else what the last statement says."""
    said = None
    for value in map(stated_value, _statements(text)):
        if value and not pattern("placeholder").fullmatch(value):
            said = said or value
            if pattern("has_value").search(value):
                return _without_label(value) or value
    return said


def _statements(text: str) -> Iterator[str]:
    """The text from each marker to the next one, last marker first."""
    end = len(text)
    markers = [marker for marker in pattern("marker").finditer(text) if _announces(text, marker)]
    for marker in sorted([*markers, *_announcements(text)], key=re.Match.start, reverse=True):
        if marker.end() <= end:
            yield text[marker.end() : end]
            end = marker.start()


def _announces(text: str, marker: re.Match[str]) -> bool:
    if marker["hashes"]:
        return not pattern("heading").match(text, marker.end())
    if marker["alone"] is None:
        return True
    before = text[text.rfind("\n", 0, marker.start()) + 1 : marker.start()]
    return bool(pattern("before_alone").fullmatch(before)) or (
        before.endswith(("final ", "Final ")) and not text.startswith("\n", marker.end())
    )


def _bare(text: str) -> str | None:
    """The last line, if it is only a number or formula."""
    line = pattern("bare").search(("\n" + text.strip())[-_LAST_LINE:])
    if line is None or line["value"].count("{") != line["value"].count("}"):
        return None
    return line["value"].strip().removesuffix("$") if line["open"] else line["value"].strip()


def _last_number(text: str) -> str | None:
    """The last number; in a text without digits, the last that is a word."""
    for line in reversed(text.splitlines()):
        if last := deque(pattern("any_number").finditer(line), maxlen=1):
            number = last[0][0].strip()
            return number.lstrip("$") if last[0]["more"] else number
    words = pattern("number_word").findall(text)
    return words[-1] if words else None


def _stated_choice(text: str) -> str | None:
    box, rest = _last_boxes(text)
    for statement in (box, _last_tagged(rest), *_statements(rest)):
        if statement and (letters := stated_letters(statement)):
            return letters
    return None


def stated_value(text: str) -> str | None:
    """The value that a statement begins with, as it is written there; None if it says nothing.

    Delimiters, code, bold and quotes are removed. A formula ends at its delimiter, a number where prose goes on, either
    with its unit; a number gets a blank before its unit. Linear in the length.
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
    value = sentence if len(sentence) > _LONGEST_VALUE else _value(pattern("bold").sub("", sentence), formula)
    return value if pattern("says_something").search(value) else None


def _value(sentence: str, formula: re.Match[str] | None) -> str:
    if formula:
        inside = next(group for group in formula.groups() if group is not None).strip().removesuffix(".")
        end = _value_end(sentence, formula.end(), is_money=False)
        return inside if end == formula.end() else sentence[:end]
    start = preamble.end() if (preamble := pattern("preamble").match(sentence)) else 0
    start = approximation.end() if (approximation := pattern("approximation").match(sentence, start)) else start
    verb = pattern("verb").match(sentence, start)
    if verb and not pattern("negation").search(verb[0]):
        start = verb.end()
    number = pattern("number").match(sentence, start)
    if number is None:
        return sentence
    end = _value_end(sentence, number.end(), is_money=bool(number["currency"]))
    if end is None:
        return sentence
    unit = sentence[number.end() : end]
    # a letter that touches a number is read as a factor of it
    return sentence[start : number.end()] + (" " if unit[:1].isalpha() else "") + unit


def _value_end(sentence: str, number_end: int, *, is_money: bool) -> int | None:
    """Where the value at the start of a sentence ends, given where its number or formula does: after its unit and the
    words that make it another number. None if the whole sentence is the value, since it goes on as mathematics or has a
    second quantity. `is_money`: a currency precedes the number, so that no unit follows."""
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
    """Where the last word ends, of the next few, that makes the value another number; None if none does."""
    found, end = None, start
    for _ in range(_REACH):
        word = pattern("next_word").match(sentence, end)
        if word is None or word[1].lower() in _ENDING:
            break
        end = word.end()
        if word[1].lower() in _TURNING or unit_name(word[1]) in CONTRASTS:
            found = end
    return found


_READS: dict[Extraction, tuple[Read, ...]] = {
    "auto": (_auto, _bare),
    "stated": (_auto, _bare),
    "boxed": (lambda text: _last_boxes(text)[0],),
    "last_number": (_auto, _last_number),
    "choice": (lambda text: _stated_choice(text) or named_letter(_last_boxes(text)[1]),),
}


@cache
def _nouns() -> frozenset[str]:
    nouns = words_of_languages("answer", joined=False) | words_of_languages("answer", joined=True)
    return frozenset(noun.replace(".", " ") for noun in nouns)


def _announcements(text: str) -> Iterator[re.Match[str]]:
    """From each noun that announces an answer to where the answer begins."""
    lower = text.lower()
    return pattern("announcement").finditer(text) if any(noun in lower for noun in _nouns()) else iter(())


def _with_decimal_point(answer: str, text: str) -> str:
    """The answer in a text with a number such as 1.234,5 written 1234.5; in a text of a language with a decimal comma,
    also 3,5 as 3.5 and 12.000 as 12000. Answers with brackets or several numbers are left alone."""
    if number := pattern("grouped_number").fullmatch(answer):
        before, whole, decimals, after = number.groups()
        if decimals or whole.count(".") > 1 or ("." in whole and pattern("has_decimal_comma").search(text)):
            return before + re.sub(r"\D", "", whole) + (f".{decimals}" if decimals else "") + after
    elif (number := pattern("decimal_comma_number").fullmatch(answer)) and pattern("has_decimal_comma").search(text):
        return f"{number[1]}.{number[2]}{number[3]}"
    return answer
