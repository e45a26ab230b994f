"""Finds the answer that a solution states."""

import re
from collections import deque
from collections.abc import Callable, Iterator

from unprm.answers.mathtext.prose import boxes
from unprm.answers.stated import NUMBER, stated_value
from unprm.types import Extraction

_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_QUOTES = r"[\\\"'`*_]{0,8}"
_MARKER = re.compile(
    rf"""
    (?<!\#)(?P<hashes>\#{{4}})(?!\#)
    | \b(?:
        answer {_QUOTES} \s{{0,8}} (?: [:：] | is\b(?!n['’]t) )
        | answers \s{{1,8}} are\b
        | final \s{{1,8}} answer {_QUOTES} [^\S\n]{{0,8}} (?: [=–—-] | (?=[$\\0-9]) )
    )
    | ^ [^\S\n]{{0,8}} [#*_>]{{0,8}} [^\S\n]{{0,8}}
        (?:the[^\S\n])? (?:final[^\S\n])? answer [*_]{{0,4}} [^\S\n]{{0,8}} $
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
# A line of words, or one numbered as a section, with more text below it.
_HEADING = re.compile(r"[^\S\n]{0,8}(?:[0-9]{1,3}[.):][^\S\n]+\S|[^-+$\\€£.0-9*\s])[^\n]{0,120}\n\s{0,20}\S")
_LABEL = re.compile(
    r"\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*\([A-J]\)\s*\}|\([A-J]\))(?:\\[ ,;:]|[\s~])*"
    r"(?=-?(?:[0-9.$]|\\(?:[dt]?frac|sqrt|pi|\$)))"
)
_LETTER = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf)\s*\{|\\[(\[]|option\b|choice\b|[\s({\[$*_\"'`:])*"
    r"(?P<letter>[A-J]|[a-j](?=\s*\)))(?![\w'’+/^=<>-]|\*[^*])(?!\s+[+*/^=<>-])",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"\s+(?!is\b|because\b|since\b|as\b)[a-z]")  # after A or I: an English word, not an option
_NAMED_OPTION = re.compile(r"\b(?i:option|choice)\s{1,8}(?:is\s{1,8})?\(?([A-J])\b|\(([A-Ja-j])\)")

Read = Callable[[str], str | None]


def extract(text: str, mode: Extraction = "auto") -> str | None:
    """The answer that a solution states, or None.

    - ``auto``: the last balanced ``\\boxed{…}`` or ``\\fbox{…}`` (without braces, the next token); else the last
      ``<answer>…</answer>``; else what follows the last marker ("final answer", "answer" with a colon or "is", a
      heading "Answer", ``####``), cut to the value that it states. An empty box is no answer.
    - ``boxed``: only boxes.
    - ``last_number``: as ``auto``; if no answer is stated, the last number of the text.
    - ``choice``: the letter, A to J, of the option that is stated last.

    Text in ``<think>…</think>`` is used only if no answer is stated outside of it. Linear in the length.
    """
    outside, inside = _without_thoughts(text)
    for read in _READS[mode]:
        for part in (outside, inside):
            answer = read(part)
            if answer is not None:
                return answer
    return None


def _without_thoughts(text: str) -> tuple[str, str]:
    """The text outside ``<think>…</think>``, and the text inside. Everything before an unmatched closing tag, or
    after an unmatched opening tag, is inside."""
    outside: list[str] = []
    inside: list[str] = []
    thinking, start = False, 0
    for tag in _THINK.finditer(text):
        (inside if thinking else outside).append(text[start : tag.start()])
        closes, start = bool(tag[1]), tag.end()
        if closes and not thinking:
            inside += outside
            outside = []
        thinking = not closes
    (inside if thinking else outside).append(text[start:])
    return "\n".join(outside), "\n".join(inside)


def _auto(text: str) -> str | None:
    """The answer from the first kind of statement that the text has: box, answer tag or marker."""
    box = _last_box(text)
    if box is not None:
        return _without_label(box) or None
    tagged = _last_tagged(text)
    if tagged is not None:
        return _after_marker(tagged) or stated_value(tagged)
    return _after_marker(text)


def _boxed(text: str) -> str | None:
    box = _last_box(text)
    return _without_label(box) or None if box is not None else None


def _last_box(text: str) -> str | None:
    """The contents of the last box, "" if it is empty; None if there is no box."""
    found = boxes(text)
    return text[found[-1].inner].strip() if found else None


def _without_label(value: str) -> str:
    r"""Drops the letter of an option before its value: ``\text{(B) }14`` becomes 14."""
    label = _LABEL.match(value)
    return value[label.end() :] if label else value


def _last_tagged(text: str) -> str | None:
    start, last = None, None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            content = text[start : tag.start()].strip()
            last, start = content or last, None
    return last


def _after_marker(text: str) -> str | None:
    """The value after the last marker that is followed by a value."""
    value = next((value for value in map(stated_value, _statements(text)) if value), None)
    return None if value is None else _without_label(value) or value


def _statements(text: str) -> Iterator[str]:
    """The text from each marker to the next one, last marker first."""
    end = len(text)
    for marker in reversed(list(_MARKER.finditer(text))):
        is_heading = marker["hashes"] and _HEADING.match(text, marker.end())
        if not is_heading:
            yield text[marker.end() : end]
            end = marker.start()


def _last_number(text: str) -> str | None:
    last = deque(NUMBER.finditer(text), maxlen=1)
    return last[0][0].strip() if last else None


def _choice(text: str) -> str | None:
    """The letter at the start of the stated answer; else the last option that the text names."""
    box = _last_box(text)
    stated = [statement for statement in (box, _last_tagged(text)) if statement] or _statements(text)
    letter = next((letter for letter in map(_letter, stated) if letter), None)
    if letter is None:
        named = [found[1] or found[2] for found in _NAMED_OPTION.finditer(text)]
        letter = named[-1].upper() if named else None
    return letter


def _letter(statement: str) -> str | None:
    found = _LETTER.match(statement)
    if not found:
        return None
    letter = found["letter"].upper()
    is_word = letter in "AI" and statement[found.start() : found.end()].strip() == letter
    return None if is_word and _ARTICLE.match(statement, found.end()) else letter


_READS: dict[Extraction, tuple[Read, ...]] = {
    "auto": (_auto,),
    "boxed": (_boxed,),
    "last_number": (_auto, _last_number),
    "choice": (_choice,),
}
