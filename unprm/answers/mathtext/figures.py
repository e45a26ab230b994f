"""Rewrites numbers in words as figures: two, twenty-five, one hundred and five."""

import re

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_FIRST, _ANY = "|".join(_VALUES), "|".join([*_VALUES, *_SCALES])
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:(?<![A-Za-z]\s)|(?<=\band\s)|(?<=\bor\s))"  # not in a sentence: 5 apples in three days
    rf"(?:{_FIRST})(?:(?:[\s-]|\s(?<=hundred\s)and\s)(?:{_ANY}))*(?![A-Za-z])",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[\s-]+(?:and\s+)?")


def with_figures(text: str) -> str:
    """The text with every spelled-out number in figures; words that are not a single number stay."""
    return _WORDS.sub(lambda found: _figures(found[0]), text)


def _figures(words: str) -> str:
    total = group = 0  # the finished part, and what the next thousand or million multiplies
    room = 10**9  # every scale beyond a hundred is smaller than the one before
    free = 10**3  # what may follow: less than this
    for word in _SEPARATOR.split(words.lower()):
        value = _VALUES.get(word)
        if value is not None:
            if value >= free:
                return words
            group += value
            free = 10 if value >= 20 and value % 10 == 0 else 0
        elif word == "hundred":
            if not 0 < group < 100:
                return words
            group, free = group * 100, 100
        else:
            if _SCALES[word] >= room * 10 or not group:
                return words
            total, group, room, free = total + group * _SCALES[word], 0, _SCALES[word] // 10, 10**3
    return str(total + group)
