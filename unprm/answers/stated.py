"""The value in what follows "the answer is": without fences, quotes, and the prose after it."""

import re

from unprm.answers.mathtext.units import is_unit_after, unit_name
from unprm.answers.mathtext.words import CONTRASTS
from unprm.answers.tables import any_in, words

MAX_CUT = 2000  # characters; a longer text is not a value followed by prose
_OPENING = re.compile(
    r"(?:\n[^\S\n]*[-•*][^\S\n]+|`{3}[a-z]{0,12}\n|[\s:：=>`}…]|\.{3}|->|\*{2,3}|\*(?=\S)|__|\\?[\"“]|['‘](?=[\w$\\]))+"
)
_FORMULA = re.compile(
    r"\$\$([^$]+)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$(?!\s)([^$]+)(?<!\s)\$(?![0-9])|\$(\s[^$]+\s)\$", re.DOTALL
)
_UNFINISHED = re.compile(r"(?:\$\$|\\\[|\\\(|\$(?=[A-Za-z\\])|[\s*_`])+")
# Not the period of p.m., and none of an ellipsis.
_END = re.compile(
    r"(?<!\.)(?<![ap]\.m)\.(?=[\s*_\"'”’`)\]}]|\\?$)|[。！？।؟]|\s(?:[-=]>|<-)\s?(?=[A-Za-z]{2})|!(?=\s+(?:\*\*)?[A-Z])|\n|(?<=\S)\*\*(?=[\s.,;:!?)\]\"']|$)|`|(?<=[^\d\\])\""
)
_BOLD = re.compile(r"(?<=\s)\*\*(?=\S)")
_SAYS_SOMETHING = re.compile(r"[^\W_]|[∅∞]|\{\s*\\?\}")
FILLER = any_in("fillers")
"""A regular expression: words before a value that say nothing about it."""
_APPROXIMATION = re.compile(
    rf"(?:(?:{FILLER})\s+|[≈~]\s?)+"
    r"(?=[-+−]?(?:\\?\$|[€£¥₹])?[0-9.])",
    re.IGNORECASE,
)
_VERBS = any_in("verbs")
_VERB = re.compile(
    rf"(?:[^0-9]*?|(?![-+−$0-9])[^=<>\\^+*|{{}}]*?)\b(?:{_VERBS})\s+(?:[-+*/×÷().,0-9$€£%\s=]*=\s*)?"
    r"(?=[-+−]?(?:\\?\$|[€£¥₹])?[0-9])",
    re.IGNORECASE,
)
# What precedes the sentence that states the value: "In 5 years, …", "not 5 but …".
_PREAMBLE = re.compile(
    r"(?:(?:in(?!\sbase)|on|at|after|out\sof|of|by|with|during|for(?=\s[0-9]))\s[^,<>=\\$]{1,60},\s+"
    r"|not\s[^.,;]{1,40},?\sbut\s(?:rather\s)?)(?=.*[0-9])",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|never|no|nor)\b|n['’]t\b", re.IGNORECASE)
_AMOUNT = r"""
    (?: [0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?
      | [0-9]{1,3}(?:[. \u00a0\u202f][0-9]{3})+(?:,[0-9]+)?(?![0-9/]|[.,][0-9])
      | (?<![(\[{])(?<![0-9],)[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})(?![0-9]|,[0-9])
      | [0-9]{1,18}(?::[0-9]+)+
      | [0-9]+(?:\.[0-9]+)?
      | \.[0-9]+ )
    (?: [eE][-+]?[0-9]+(?![A-Za-z]) )?
    (?: [ ][0-9]+/[0-9]+ | /[0-9]+ )?
"""
NUMBER = re.compile(
    rf"""
    (?: (?<![\w)\]}}.])[-+−] )? (?P<currency> (?:\\?\$|[€£¥₹])\s?-? )?
    (?: -?\\[dt]?frac(?:\{{[0-9]+\}}\{{[0-9]+\}}|\s?[0-9]{{2}}(?![0-9])) | {_AMOUNT} )
    (?: \s?(?:\\?%|°(?:\s?[CF]\b)?) | [€£¢] | \\?\$(?![0-9\w(\\]) )?
    """,
    re.VERBOSE,
)
"""A number as people write it: sign, currency, thousands, decimals, fraction or clock time, percent or degrees."""

_ENCLOSED = re.compile(rf"[<\[«「【]\s?({NUMBER.pattern})\s?[>\]»」】]", re.VERBOSE)
_POWER = r"(?:\s?\^\s?\{?[23]\}?|[²³]|\s(?:squared|cubed)\b)?"
_UNIT = re.compile(
    rf"""
    [\s-]?(?P<square>(?:square|cubic)\sunits?\b) | (?P<blank>[\s-]?)
    (?: (?:square|cubic|sq\.?|cu\.?|nautical|light|troy|fluid|metric|long|us)\s )?
    (?P<unit> in(?=\.?$|\^) | (?!in\b)[^\W\d_]+ ) (?![\w'’&]) (?P<power>{_POWER})
    (?: (?:\s?/\s?|\sper\s) (?P<per>[^\W\d_]+) (?!\w) {_POWER} )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SCALE = re.compile(
    rf"\s?(?:(?:{any_in('scales')})\b|[ap]\.?m\b\.?|(?-i:AD|BCE?|CE)\b)",
    re.IGNORECASE,
)
_TURNING, _ENDING = words("turning"), words("ending")
_OPERATOR = re.compile(
    r"""
    \s*(?: \.?\\(?!["'\s]|$) | [+*^=<>≤≥±×÷·|!_{≈≠∈&√∪∩] | [-−](?!\s?[A-Za-z]{2}) | /(?![A-Za-z]{2})
        | \(?(?:mod|modulo)\b )
    | [A-Za-z(\[] | \s+[B-HJ-Zb-z](?![\w'’&]) | \s+a(?!\w|\s[A-Za-z]{2}) | \s+[(\[](?!\s?[A-Za-z]{2}|[0-9])
    | \s+(?:times|multiplied\sby|divided\sby)\s+[0-9]
    """,
    re.VERBOSE,
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b", re.IGNORECASE)
_DATE = re.compile(rf"\s+(?:of\s+)?(?:{any_in('months')})\b")
_NEXT_NUMBER = r"[-+]?(?:[$€£]|\\[$(])?[0-9](?![0-9]*-[a-z])"
_BESIDE = re.compile(
    rf"(?:\s*['\"′″,;&–—-]|\s+(?:to|through|or|and|by|plus|minus)\b|)\s*(?:about\s)?{_NEXT_NUMBER}", re.IGNORECASE
)
_SHARE = re.compile(rf"\s*(?:of|out\sof|over|per|remainder|r|with|versus|vs\.?|:|in(?=\s[0-9,]+$))\s*{_NEXT_NUMBER}")
_NEXT = re.compile(r"[0-9]|\$(?=[\\A-Za-z])|\\\(")
_PREPOSITIONS = r"(?:over|in|for|of|at|on|per|after|to|by|from|with)\b"
_JOINED = re.compile(
    rf"""
    (?: (?:\band|\bor|\bplus|&|\bas\swell\sas)\s+(?:\w+\s+(?!{_PREPOSITIONS}))?(?:\w+\s+)?
      | [,;]\s*(?:and\s+|or\s+|then\s+)? | [=+*/×÷]\s*
      | (?:\b(?:and|but|while|whereas)|[,;]) \s+ (?!so\b|since\b|because\b|which\b|that\b|as\b|where\b|when\b|if\b)
        (?:[\w'’]+\s+){{0,5}} (?:{_VERBS})\s+
      | \bwith\s+(?:an?\s+|the\s+)?\w+\s+(?:of\s+)? )
    [-+]?[$€£\\(]{{0,3}}$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_JOINED_WORD = re.compile(
    rf"\b(?:and|or)\s+(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?!-)|(?:{any_in('joined')})\b)"
    r"|\bto\sthe\s(?:left|right|north|south|east|west)\b",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"\b(?:and|or)\s+(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?!-)|more|less|fewer|greater"
    r"|higher|lower|above|below|over|under|older|younger|longer|shorter|later|earlier|up|a\shalf)\b"
    r"|\bto\sthe\s(?:left|right|north|south|east|west)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\s+(?!each\s+[a-z])([A-Za-z]+)(?![\w-])")
_REACH = 4  # how many words after a number are searched for one of `_TURNING`


def stated_value(text: str) -> str | None:
    """The value that a statement begins with, as it is written there; None if it says nothing.

    Delimiters of display mathematics, code, bold and quotes are removed, also if the value is on the next line. A
    formula ends at its delimiter, a number where prose continues, either with its unit if one follows; a number gets a
    blank before its unit. A second quantity beside the first keeps the sentence whole. Linear in the length.
    """
    opening = _OPENING.match(text)
    rest = text[opening.end() :] if opening else text
    formula = _FORMULA.match(rest)
    if formula is None and (unfinished := _UNFINISHED.match(rest)):
        rest = rest[unfinished.end() :]
    if enclosed := _ENCLOSED.match(rest):
        rest = enclosed[1]
    end = _END.search(rest, formula.end() if formula else 0)
    sentence = rest[: end.start() if end else len(rest)].rstrip(' \t\r\n*_`",;:”\\')
    if sentence.endswith(")") and sentence.count("(") < sentence.count(")"):
        sentence = sentence[:-1]
    value = sentence if len(sentence) > MAX_CUT else _value(_BOLD.sub("", sentence), formula)
    return value if _SAYS_SOMETHING.search(value) else None


def _value(sentence: str, formula: re.Match[str] | None) -> str:
    if formula:
        inside = next(group for group in formula.groups() if group is not None).strip().removesuffix(".")
        end = value_end(sentence, formula.end(), is_money=False)
        return inside if end == formula.end() else sentence[:end]
    start = preamble.end() if (preamble := _PREAMBLE.match(sentence)) else 0
    start = approximation.end() if (approximation := _APPROXIMATION.match(sentence, start)) else start
    verb = _VERB.match(sentence, start)
    if verb and not _NEGATION.search(verb[0]):
        start = verb.end()
    number = NUMBER.match(sentence, start)
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
    while scale := _SCALE.match(sentence, end):
        end = scale.end()
    if not is_money:
        end = _unit_end(sentence, end)
    after = ordinal.end() if end == number_end and (ordinal := _ORDINAL.match(sentence, end)) else end
    if _goes_on(sentence, after, is_bare=end == number_end):
        return None
    return _qualified_end(sentence, after) or end


def _unit_end(sentence: str, start: int) -> int:
    """Where the unit that begins here ends, with its power and what it is counted by; `start` if there is none."""
    found = _UNIT.match(sentence, start)
    if found is None or found["square"]:
        return found.end() if found else start
    word, raised = found["unit"], found["power"] != ""
    touches = not found["blank"] and len(word) == 1
    if not (word in "mglhs" if touches else is_unit_after(word, spaced=True, literal=True, raised=raised)):
        return start
    return found.end() if found["per"] is None or unit_name(found["per"]) else found.end("power")


def _goes_on(sentence: str, end: int, *, is_bare: bool) -> bool:
    if any(further.match(sentence, end) for further in (_OPERATOR, _DATE, _BESIDE)):
        return True
    if is_bare and _SHARE.match(sentence, end):
        return True
    following = _NEXT.search(sentence, end)
    before = sentence[end : following.start()] if following else sentence[end:]
    return bool(following and _JOINED.search(before)) or bool(_JOINED_WORD.search(before))


def _qualified_end(sentence: str, start: int) -> int | None:
    """The end of the last of the next `_REACH` words that is in `_TURNING` or `CONTRASTS`."""
    found, end = None, start
    for _ in range(_REACH):
        word = _WORD.match(sentence, end)
        if word is None or word[1].lower() in _ENDING:
            break
        end = word.end()
        if word[1].lower() in _TURNING or unit_name(word[1]) in CONTRASTS:
            found = end
    return found
