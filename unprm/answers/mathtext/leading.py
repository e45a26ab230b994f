"""The value at the start of a sentence, and where the prose after it begins."""

import re

from unprm.answers.mathtext.words import words_in

_AMOUNT = r"""
    (?: [0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?
      | [0-9]{1,3}(?:[ \u00a0\u202f][0-9]{3})+(?![0-9.,/])
      | [0-9]{1,18}(?::[0-9]+)+
      | [0-9]+(?:\.[0-9]+)?
      | \.[0-9]+ )
    (?: [eE][-+]?[0-9]+(?![A-Za-z]) )?
    (?: [ ][0-9]+/[0-9]+ | /[0-9]+ )?
"""
NUMBER = re.compile(
    rf"""
    (?: (?<![\w)\]}}.])[-+−] )? (?P<currency> (?:\\?\$|[€£¥₹])\s?-? )?
    (?: -?\\[dt]?frac\{{[0-9]+\}}\{{[0-9]+\}} | {_AMOUNT} )
    (?: \s?(?:\\?%|°(?:\s?[CF]\b)?) | [€£¢] | \\?\$(?![0-9\w(\\]) )?
    """,
    re.VERBOSE,
)
"""A number as people write it: sign, currency, thousands, decimals, fraction or clock time, percent or degrees."""

_LENGTH = r"(?:(?:kilo|centi|milli|micro|nano)?met(?:er|re)s?|inch(?:es)?|feet|foot|yards?|miles?|[mcdk]?m|ft|yd|mi)"
_MEASURE = rf"""
    (?:{_LENGTH}|(?:kilo|milli)?grams?|ounces?|pounds?|tons?|tonnes?|m?g|kgs?|lbs?|oz|acres?|hectares?
    |(?:milli)?lit(?:er|re)s?|gallons?|quarts?|pints?|gal|m?l|degrees?|radians?|mph|kph|hz|kwh?
    |(?:milli)?seconds?|minutes?|hours?|days?|weeks?|months?|years?|m?s|secs?|mins?|h|hrs?|yrs?)
"""
_POWER = r"(?:\s?\^\s?\{?[23]\}?|[²³]|\s(?:squared|cubed)\b)?"
_MONEY = r"(?:dollars?|cents?|euros?|yen|yuan|rupees?|pesos?|pence|usd|eur|gbp)"
_UNIT = re.compile(
    rf"""[\s-]?(?: (?:square|cubic|sq\.?|cu\.?)\s(?:{_LENGTH}|units?)\b | {_MEASURE}(?![A-Za-z0-9'’&]){_POWER}
    (?: (?:\s?/\s?|\sper\s){_MEASURE}(?![A-Za-z0-9]){_POWER} )? | {_MONEY}\b | in(?=\.?$|\^) | percent\b )""",
    re.VERBOSE | re.IGNORECASE,
)
_SCALE = re.compile(
    r"\s?(?:and\s(?:a|one)\s(?:half|third|quarter)\b|k\b|mil\b|bn\b|basis\spoints?\b|percentage\spoints?\b"
    r"|(?:half|halves|thirds|quarters?|dozens?|pairs?|gross|hundreds?|thousands?|millions?|billions?|trillions?"
    r"|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|hundredths|thousandths|millionths|billionths|lakhs?|crores?"
    r"|factorial|squared|cubed|o['’]clock)\b|[ap]\.?m\b\.?|(?-i:AD|BCE?|CE)\b)",
    re.IGNORECASE,
)
# Words that reverse a number's direction or qualify it; without any, it means more, forward or a gain.
_TURNING = words_in(
    """
    fewer less younger shorter lower slower smaller lighter colder cooler weaker earlier early ago below under down
    backward backwards behind decrease decreased loss losses lost deficit debt short negative
    north south east west clockwise counterclockwise anticlockwise each apiece
    """
)
_ENDING = words_in(
    """
    of in on for to from by at per after before than that who which whose while when where if because since so as with
    without during until left remaining over and or is are was were be been has have had will would can could
    """
)
_OPERATOR = re.compile(
    r"""
    \s*(?: \.?\\(?!["'\s]|$) | [+*^=<>≤≥±×÷·|!_{\[≈≠∈&√∪∩] | [-−](?!\s?[A-Za-z]{2}) | /(?![A-Za-z]{2})
        | \(?(?:mod|modulo)\b )
    | [A-Za-z(] | \s+[B-HJ-Zb-z](?![\w'’&]) | \s+a(?!\w|\s[A-Za-z]{2}) | \s+\((?!\s?[A-Za-z]{2}|[0-9])
    | \s+(?:times|multiplied\sby|divided\sby)\s+[0-9]
    """,
    re.VERBOSE,
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b", re.IGNORECASE)
_DATE = re.compile(
    r"\s+(?:of\s+)?(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_NEXT_NUMBER = r"[-+]?(?:[$€£]|\\[$(])?[0-9](?![0-9]*-[a-z])"
_BESIDE = re.compile(
    rf"(?:\s*['\"′″,;&–—-]|\s+(?:to|through|or|and|by|plus|minus)\b|)\s*(?:about\s)?{_NEXT_NUMBER}", re.IGNORECASE
)
_SHARE = re.compile(rf"\s*(?:of|out\sof|over|per|remainder|r|versus|vs\.?|:|in(?=\s[0-9,]+$))\s*{_NEXT_NUMBER}")
_NEXT = re.compile(r"[0-9]|\$(?=[\\A-Za-z])|\\\(")
_JOINED = re.compile(
    r"(?:(?:\band|\bor|\bplus|&)\s+(?:\w+\s+)?|[,;]\s*(?:and\s+|or\s+)?|[=+*/×÷]\s*)[-+]?[$€£\\(]{0,3}$"
)
_JOINED_WORD = re.compile(
    r"\b(?:and|or)\s+(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?!-)|more|less|fewer|greater"
    r"|higher|lower|above|below|over|under|older|younger|longer|shorter|later|earlier|up|a\shalf)\b"
    r"|\bto\sthe\s(?:left|right|north|south|east|west)\b",
    re.IGNORECASE,
)
_WORD = re.compile(
    r"\b(?:and|or)\s+(?:a\shalf|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)(?!-)|more|less|fewer|greater"
    r"|higher|lower|above|below|over|under|older|younger|longer|shorter|later|earlier|up)\b"
    r"|\bto\sthe\s(?:left|right|north|south|east|west)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\s+([A-Za-z]+)(?![\w-])")
_REACH = 4  # how many words after a number are searched for one of `_TURNING`


def value_end(sentence: str, number_end: int, *, is_money: bool) -> int | None:
    """Where the value at the start of a sentence ends, given where its number or formula does.

    It ends after its unit and the words that make it another number, before the prose. None if the whole sentence is
    the value: it continues as mathematics, or has another quantity beside the first. `is_money`: a currency precedes
    the number, so that no unit follows.
    """
    end = number_end
    while scale := _SCALE.match(sentence, end):
        end = scale.end()
    if not is_money and (unit := _UNIT.match(sentence, end)):
        end = unit.end()
    after = ordinal.end() if end == number_end and (ordinal := _ORDINAL.match(sentence, end)) else end
    if _goes_on(sentence, after, is_bare=end == number_end):
        return None
    return _behind_turning(sentence, after) or end


def _goes_on(sentence: str, end: int, *, is_bare: bool) -> bool:
    if any(further.match(sentence, end) for further in (_OPERATOR, _DATE, _BESIDE)):
        return True
    if is_bare and _SHARE.match(sentence, end):
        return True
    following = _NEXT.search(sentence, end)
    before = sentence[end : following.start()] if following else sentence[end:]
    return bool(following and _JOINED.search(before)) or bool(_JOINED_WORD.search(before))


def _behind_turning(sentence: str, start: int) -> int | None:
    """The end of the last of the next `_REACH` words that is in `_TURNING`."""
    found, end = None, start
    for _ in range(_REACH):
        word = _WORD.match(sentence, end)
        if word is None or word[1].lower() in _ENDING:
            break
        end = word.end()
        if word[1].lower() in _TURNING:
            found = end
    return found
