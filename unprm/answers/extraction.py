r"""Finds the answer that a solution states, by these rules, in this order:

1. Thoughts count only where nothing else states an answer: ``<think>…</think>``, ``[THINK]``, ``<reasoning>`` …
2. The text ends where a special token (``</s>``, ``<|im_end|>``) or another question follows a stated answer.
3. Boxes: the last one, or the last ones if only signs, units and labels stand between them
   (``x = \boxed{3}, y = \boxed{-1}`` is 3, -1). An empty box or ``\boxed{answer}`` is a placeholder; what stands before
   a ``\boxed{`` without its end does not count, since the text was cut.
4. Tags: the last ``<answer>…``, or ``<solution>…`` with nothing but a value in it.
5. Statements: "the answer is", "Answer:", ``"final_answer":`` and their like in some sixty languages, and ``####``. The
   last one with a value (number, formula, letter, yes or no); else the last. "The answer is correct" states nothing.
6. A last line that is nothing but a number or formula.

What a statement says is cut to its value (`stated`); numbers are written with the digits 0 to 9 and a decimal point
(`languages`).
"""

import re
from collections import deque
from collections.abc import Callable, Iterator

from unprm.answers.languages import QUESTIONS, announcements, with_decimal_point, with_digits
from unprm.answers.mathtext.prose import boxes
from unprm.answers.options import named_letter, stated_letters
from unprm.answers.stated import FILLER, NUMBER, stated_value
from unprm.answers.tables import any_in
from unprm.types import Extraction

# Rule 1: tags around thoughts; the channels of gpt-oss.
_THOUGHT = re.compile(
    r"""
    [<\[◁] (?:
      \|? (?P<closes> /|end_ )? \|? [\w:]{0,12}?
        (?:think|thought|reason|reflect|scratchpad|monologue|rationale|analysis|cot) [\w ]{0,12} \|? [>\]▷]
      | \|channel\|> (?: analysis | commentary | (?P<answers>final) )
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Rule 2. Begins with a set of characters, for which a search looks fast.
_TEXT_END = re.compile(
    rf"""
    [<\[\n] (?:
      (?<=<) (?: \|[^<>|\s]{{1,40}}\|> | ｜[^<>｜\s]{{1,40}}｜> | /?s> | (?:eo[st]|bos|pad|unk|(?:start|end)_of_turn)> )
      | (?<=\[) (?:/?INST|[EB]OS|PAD|SEP|DONE)\]
      | (?<=\n) [^\S\n]{{0,8}} (?:
        [\#*>]{{0,4}} [^\S\n]? (?:next\s|new\s)? (?:{QUESTIONS}) (?:\s?\#?[2-9])? [*_]{{0,4}} \s? [:：]
        | \#{{1,4}} \s (?:{QUESTIONS}) [^\S\n]{{0,8}} \n )
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Rule 3: boxes without their end, with a placeholder, with decoration; and what may stand between two of one answer.
_CUT_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_PLACEHOLDER = re.compile(
    r"(?:\\(?:text\w*|math\w+)\s*\{|(?<!\{)\}|\\(?:[lc]?dots|cdot|q?quad|square|[_,;! ])|\.{2,}|[\s<>\[\]…?$*:]"
    r"|(?:your|the|my|final|correct|answer|result|solution|value|number|letter|option|choice|content|here)_?)*",
    re.IGNORECASE,
)
_DECORATION = re.compile(
    r"^\s*%\s*\n|\\(?:textcolor|colorbox)\s*\{[^{}]*\}|\\(?:tiny|small|large|Large|LARGE|huge|Huge|displaystyle|underline"
    r"|therefore|implies|R?ightarrow|Longrightarrow)(?![A-Za-z])|\\(?:begin|end)\{(?:aligned|gathered|equation)\}"
    r"|^\\#[\w ]+="
)
_QUOTED = re.compile(r"([`'\"])(.*)\1|\[(-?[0-9.]+)\]", re.DOTALL)
_NOUN_IN_BRACKETS = re.compile(r"(?<=[0-9])\s*\(([A-Za-z]{3,})\)$")
_TEXT = re.compile(r"\\text\w*\s*\{([^{}]*)\}")
_SENTENCE = re.compile(r"[A-Za-z'’]+,?\s[A-Za-z'’][^\\=^_{}]*")
_WORD_ENDS = " \n\t{}$"
_BETWEEN = 100  # characters between two boxes of one answer
_SIGN = re.compile(r"\\(?:q?quad|text\w*|mathrm|[()\[\],;:! \\])|\n\s*[-•]\s|[$*{}~]")
_WORDS = rf"(?:\b(?!(?:{any_in('no_label')})\b)[A-Za-z][\w²³/]*\s?)"
_NEXT_PART = re.compile(
    rf"""
    \s*
    (?: (?: {_WORDS}{{0,2}}? \s* (?:[,;&]\s*(?:and|or)?|and|or) \s+ )?  # a unit, and a comma or "and"
        (?: {_WORDS}{{1,4}} (?:\(\w\)\s?)? (?:=|:|is\s|are\s) )?  # "the width is"
      | {_WORDS}{{0,2}}? \s* [.,;]? \s* (?:and\s|or\s)?
        (?: (?:(?!step)[A-Za-z]{{2,9}}\s)? \(?(?:[a-h]|[ivx]{{1,4}}|[0-9]{{1,2}}) [).:]+ (?:[A-Za-z]\s=)?  # "part (b):"
          | [A-Za-z]\w?\s?= ) )  # "y ="
    \s*
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Rule 4.
_TAG = re.compile(r"[<\[](/?)((?:final_)?answer|solution)[>\]]", re.IGNORECASE)
# Rule 5.
_QUOTES = r"[\\\"'`*_]{0,8}"
_AT_VALUE = r"(?=[\s:]{0,8}[\"'*_(\[]{0,8}[-+−]?(?:[0-9$\\]|(?-i:[A-J])\b))"
_IS = r"""
    (?:is|are|was|were|equals?|becomes
    | (?:would|should|must|will|could|may|might|has\sto|ought\sto|can\sonly)\s(?:\w+\s)?be
    | (?:comes|works|turns|adds|boils|amounts)\s(?:out\s|up\s|down\s)?(?:to|as|at)(?:\sbe)?)
"""
# "The answer (in dollars) is", "the answer, then, is", "the answer we are looking for is"
_QUALIFIER = r"""
    \s?\([^()\n]{0,40}\) | ,\s[^\n.,:]{1,40},\s?
    | \s(?:here|to|for|of|in|on|at|(?:that\s)?(?:we|you|I)\b(?:\s(?:are|were|am))?+)\b[^.,:：!?=\n]{0,60}?
"""
# What is said of an answer, without stating it.
_ABOUT = rf"""
    (?:\w+\s+){{0,2}}? (?:in|un)?(?:{any_in("about_answers")}) \b
    (?: (?!\s*[A-Za-z0-9]) | \s+(?:with|and|as|by|on|in|if|because|since|for|when|to(?!\sbe)) \b )
"""
_MARKER = re.compile(
    rf"""
    [\#Aa] (?:
      (?P<hashes> (?<!\#\#)(?<=\#)\#{{3}}(?!\#) )
      | (?<![A-Za-z-]a)(?<![A-Z-]A)(?<!\sto\s[Aa])(?<=[Aa]) (?i: nswers? {_QUOTES} (?:
          [^\S\n]{{0,8}} (?: (?<=final\sanswer)[=–—-] | (?<=final\sanswer\s)[=–—-] | [=→–—-]{_AT_VALUE} )
          | (?: {_QUALIFIER} )? {_QUOTES} \s{{0,8}}
            (?: [:：] | (?: \b{_IS} | ['’]s ) \b (?!\s+(?:{_ABOUT})) (?: (?:[\s,]+(?:{FILLER})){{1,3}}{_AT_VALUE} )? )
          | \((?=["']?[0-9$\\])
          | (?P<alone> [*_]{{0,4}} [^\S\n]{{0,8}} (?: $ | (?=[$\\0-9]) ) )
      ) )
    )
    """,
    re.MULTILINE | re.VERBOSE,
)
# What precedes "answer" alone in its line, or before a value without "is" or a colon.
_BEFORE_ALONE = re.compile(r"[^\S\n]{0,8}[#*_>]{0,8}[^\S\n]{0,8}(?:the[^\S\n])?(?:final[^\S\n])?", re.IGNORECASE)
# A line of words, or one numbered as a section, with more text below it.
_HEADING = re.compile(r"[^\S\n]{0,8}(?:[0-9]{1,3}[.):][^\S\n]+\S|[^-+$\\€£.0-9*\s])[^\n]{0,120}\n\s{0,20}\S")
_NUMBER_WORDS = r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w{3,5}teen|\w{3,5}ty"
_HAS_VALUE = re.compile(rf"[0-9\\$=^∅∞]|^[A-Za-z]$|^(?:{any_in('values')}|{_NUMBER_WORDS})\b", re.IGNORECASE)
# Rule 6, and the last number of a text.
_LAST_LINE = 200  # characters; a longer line is no bare value
_FORMULA = r"(?=[-+]?[0-9\\])(?:[-+0-9(){}.^*/ ]|\\(?:[dt]?frac|sqrt|pi|times|cdot|[,;! ])){0,80}(?:[0-9)}]|\\pi)"
_BARE = re.compile(
    rf"""
    \n [\s*_`]{{0,12}} (?P<open> \$\$?|\\[\[(] )? \s*
    (?P<value> (?:[A-Za-z]\s?=\s?)? (?: {NUMBER.pattern} | {_FORMULA} ) )
    \.? \s* (?(open) (?:\$\$?|\\[\])]) | \$? ) [\s*_`.]{{0,12}} \Z
    """,
    re.VERBOSE,
)
_FACTOR = r"(?:\\sqrt\s?(?:[0-9]|\{[0-9]+\})|\\pi\b)"
_POWER = r"(?:\s?(?:\\times|\\cdot|[×*x])\s?10)?\s?(?:\^|\*\*)\s?(?:[0-9]+|\{-?[0-9]+\})"
_ANY_NUMBER = re.compile(rf"(?:{NUMBER.pattern}|-?(?={_FACTOR}))(?P<more>{_FACTOR}|{_POWER})?", re.VERBOSE)
_NUMBER_WORD = re.compile(rf"\b(?:{_NUMBER_WORDS})(?:-\w+)?\b", re.IGNORECASE)
_LABEL = re.compile(
    r"\s*(?:\\(?:text|textbf|mathrm|mathbf)\s*\{\s*\([A-J]\)\s*\}|\([A-J]\))(?:\\[ ,;:]|[\s~])*"
    r"(?=-?(?:[0-9.$]|\\(?:[dt]?frac|sqrt|pi|\$)))"
)

Read = Callable[[str], str | None]


def extract(text: str, mode: Extraction = "auto", *, cut: bool = False) -> str | None:
    """The answer that a solution states, or None, by the rules above.

    - ``auto``: all rules.
    - ``boxed``: only boxes.
    - ``last_number``: as ``auto``; if no answer is stated, the last number of the text.
    - ``choice``: the letters, A to J, of the options that are stated last (several as ABD).

    `cut`: the text breaks off, as at a limit of tokens. Then only boxes, tags and statements outside of thoughts count,
    and not the word at the end: 4 may have become 42.

    Linear in the length.
    """
    if cut:
        text = text[: 1 + max(map(text.rfind, _WORD_ENDS))] + "…"
    thoughts = _without_thoughts(with_digits(text).replace("assistantfinal", "<|channel|>final"))
    parts = [part for text in (thoughts[:1] if cut else thoughts) for part in _TEXT_END.split(text)]
    for read in (_STATED if cut else _READS)[mode]:
        for part in parts:
            answer = read(part)
            if answer is not None:
                return with_decimal_point(answer, text)
    return None


def _without_thoughts(text: str) -> tuple[str, str]:
    """The text outside of thoughts, and the text inside. Everything before an unmatched closing tag, or after an
    unmatched opening tag, is inside."""
    outside: list[str] = []
    inside: list[str] = []
    thinking, start = False, 0
    for tag in _THOUGHT.finditer(text):
        (inside if thinking else outside).append(text[start : tag.start()])
        closes, start = bool(tag["closes"] or tag["answers"]), tag.end()
        if closes and not thinking:
            inside += outside
            outside = []
        thinking = not closes
    (inside if thinking else outside).append(text[start:])
    return "\n".join(outside), "\n".join(inside)


def _auto(text: str) -> str | None:
    """The answer from the first kind of statement that the text has: box, answer tag or marker."""
    box, rest = _last_boxes(text)
    if box:
        return box
    tagged = _last_tagged(rest)
    if tagged:
        return _after_marker(tagged) or _bare(tagged) or stated_value(tagged)
    return _after_marker(rest)


def _boxed(text: str) -> str | None:
    return _last_boxes(text)[0]


def _last_boxes(text: str) -> tuple[str | None, str]:
    """The contents of the last boxes that belong together, and the text where other statements count: all of it,
    or that after a box without its end."""
    if "box" not in text:
        return None, text
    found = boxes(text)
    if cut := _CUT_BOX.search(text, found[-1].end if found else 0):
        return None, text[cut.start() + 1 :]
    parts: list[str] = []
    start, inside = None, len(text)
    for box in reversed(found):
        is_outer, inside = box.end > inside, box.start
        if is_outer or _PLACEHOLDER.fullmatch(text[box.inner]):
            continue
        if start is not None:
            between = text[box.end : start]
            if len(between) > _BETWEEN or not _NEXT_PART.fullmatch(_SIGN.sub(" ", between)):
                break
        parts.append(_plain(text[box.inner].strip()))
        start = box.start
    return ", ".join(dict.fromkeys(map(_without_label, reversed(parts)))) or None, text


def _plain(boxed: str) -> str:
    """The contents of a box without colour, size, arrows and quotes; of a sentence, the value that it states."""
    if "&" not in boxed and "\\\\" not in boxed:
        boxed = _DECORATION.sub("", boxed).strip()
    if quoted := _QUOTED.fullmatch(boxed):
        boxed = quoted[2] or quoted[3]
    boxed = _NOUN_IN_BRACKETS.sub(r" \1", boxed)
    sentence = _SENTENCE.fullmatch(_TEXT.sub(r"\1", boxed))
    return stated_value(sentence[0]) or boxed if sentence else boxed


def _without_label(value: str) -> str:
    r"""Drops the letter of an option before its value: ``\text{(B) }14`` becomes 14."""
    label = _LABEL.match(value)
    return value[label.end() :] if label else value


def _last_tagged(text: str) -> str | None:
    """The content of the last answer tag; its end is often a stop sequence and so not in the text."""
    start, last = None, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag
        elif start:
            content = text[start.end() : tag.start()].strip()
            last = content if content and (tag[2].lower() != "solution" or _bare(content)) else last
            start = None
    rest = text[start.end() :].strip() if start and start[2].lower() != "solution" else ""
    return rest if _HAS_VALUE.search(rest) else last


def _after_marker(text: str) -> str | None:
    """The value of the last statement that has one; else what the last statement says."""
    said = None
    for value in map(stated_value, _statements(text)):
        if value and not _PLACEHOLDER.fullmatch(value):
            said = said or value
            if _HAS_VALUE.search(value):
                return _without_label(value) or value
    return said


def _statements(text: str) -> Iterator[str]:
    """The text from each marker to the next one, last marker first."""
    end = len(text)
    markers = [marker for marker in _MARKER.finditer(text) if _announces(text, marker)]
    for marker in sorted([*markers, *announcements(text)], key=re.Match.start, reverse=True):
        if marker.end() <= end:
            yield text[marker.end() : end]
            end = marker.start()


def _announces(text: str, marker: re.Match[str]) -> bool:
    if marker["hashes"]:
        return not _HEADING.match(text, marker.end())
    if marker["alone"] is None:
        return True
    before = text[text.rfind("\n", 0, marker.start()) + 1 : marker.start()]
    return bool(_BEFORE_ALONE.fullmatch(before)) or (
        before.endswith(("final ", "Final ")) and text[marker.end()] != "\n"
    )


def _bare(text: str) -> str | None:
    """The last line, if it is only a number or formula."""
    line = _BARE.search(("\n" + text.strip())[-_LAST_LINE:])
    if line is None or line["value"].count("{") != line["value"].count("}"):
        return None
    return line["value"].strip().removesuffix("$") if line["open"] else line["value"].strip()


def _last_number(text: str) -> str | None:
    """The last number; in a text without digits, the last that is a word."""
    for line in reversed(text.splitlines()):
        if last := deque(_ANY_NUMBER.finditer(line), maxlen=1):
            number = last[0][0].strip()
            return number.lstrip("$") if last[0]["more"] else number
    words = _NUMBER_WORD.findall(text)
    return words[-1] if words else None


def _choice(text: str) -> str | None:
    """The letters at the start of the stated answer; else the option that the text names."""
    return _stated_choice(text) or named_letter(_last_boxes(text)[1])


def _stated_choice(text: str) -> str | None:
    box, rest = _last_boxes(text)
    for statement in (box, _last_tagged(rest), *_statements(rest)):
        if statement and (letters := stated_letters(statement)):
            return letters
    return None


_READS: dict[Extraction, tuple[Read, ...]] = {
    "auto": (_auto, _bare),
    "boxed": (_boxed,),
    "last_number": (_auto, _last_number),
    "choice": (_choice,),
}
_STATED: dict[Extraction, tuple[Read, ...]] = {
    "auto": (_auto,),
    "boxed": (_boxed,),
    "last_number": (_auto,),
    "choice": (_stated_choice,),
}
