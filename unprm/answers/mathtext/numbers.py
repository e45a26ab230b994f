"""Rewrites the numbers of an answer in one spelling: twenty-five and 25, 1,234.50 and 2469/2, 1 1/2 and \\frac{3}{2},
3 million and 3*10^{6}."""

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from unprm.answers.mathtext.tokens import (
    CLOSING,
    LONG_DECIMAL,
    MAX_DIGITS,
    OPENING,
    is_number,
    is_text,
    is_unit_token,
    number,
    significant_digits,
)
from unprm.answers.mathtext.words import MULTIPLIERS, changes_meaning, words_of

_UNIT_SIGNS = frozenset(["%", "°"])
_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_FIRST, _ANY = "|".join(_VALUES), "|".join([*_VALUES, "hundred"])
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:(?<![A-Za-z]\s)|(?<=\band\s)|(?<=\bor\s))"  # not in a sentence: 5 apples in three days
    rf"(?:{_FIRST})(?:(?:[\s-]|\s(?<=hundred\s)and\s)(?:{_ANY}))*(?![A-Za-z])",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[\s-]+(?:and\s+)?")
_BRACKETS = OPENING | CLOSING


def with_figures(text: str) -> str:
    """The text with every number in words in figures; a scale like "million" stays."""
    return _WORDS.sub(lambda found: _figures(found[0]), text)


def _figures(words: str) -> str:
    """The figures of words that are a single number below 10,000; other words unchanged."""
    total, free = 0, 10**3  # what may follow is less than `free`
    for word in _SEPARATOR.split(words.lower()):
        if word == "hundred":
            if not 0 < total < 100:
                return words
            total, free = 100 * total, 100
        elif (value := _VALUES[word]) < free:
            total += value
            free = 10 if value >= 20 and value % 10 == 0 else 0
        else:
            return words
    return str(total)


def join_thousands(tokens: list[str]) -> list[str]:
    """1,234 outside of brackets is a number, and so is 1 234; (1,234) is a pair, and so is 1, 234."""
    joined: list[str] = []
    depth = at = 0
    while at < len(tokens):
        token = tokens[at]
        if is_number(token):
            at, numbers = _run(tokens, at, inside=depth > 0)
            joined += numbers
            continue
        if token in _BRACKETS:
            depth += 1 if token in OPENING else -1
        joined.append(token)
        at += 1
    return joined


def _run(tokens: Sequence[str], at: int, *, inside: bool) -> tuple[int, list[str]]:
    """The end of the run of numbers that starts at `at`, and its tokens: one number, or all that it has."""
    end, separator = _run_end(tokens, at)
    groups = tokens[at:end:2]
    if len(groups) > 1 and _is_thousands(groups):
        padded = any(group[0] == "0" for group in groups[1:])  # (1,050) is not a pair
        if separator == " " or padded or not inside:
            return end, [_trimmed("".join(groups))]
    return end, [_trimmed(token) for token in tokens[at:end]]


def _run_end(tokens: Sequence[str], at: int) -> tuple[int, str]:
    """The end of the numbers from `at` on that are joined only by commas, or only by blanks; and the
    separator."""
    end = at + 1
    separator = tokens[end] if end < len(tokens) else ""
    if separator in (",", " "):
        while end + 1 < len(tokens) and tokens[end] == separator and is_number(tokens[end + 1]):
            end += 2
    return end, separator


def _is_thousands(run: Sequence[str]) -> bool:
    first, *groups = [*run[:-1], run[-1].split(".")[0]]
    return first.isdigit() and len(first) <= 3 and first[0] != "0" and all(len(g) == 3 and g.isdigit() for g in groups)


def _trimmed(token: str) -> str:
    """A literal without superfluous zeros: 007.50 is 7.5."""
    if not is_number(token) or not token.replace(".", "", 1).isdigit():
        return token
    whole, _, decimals = token.partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + ("." + decimals if decimals else "")


def plain_values(segment: list[str], before: str, after: str) -> list[str]:
    """The tokens of numbers, each with its unit if it has one, in one spelling. What follows a closing bracket
    or precedes an opening one is part of something larger, and stays."""
    if before in CLOSING or after in OPENING:
        return segment
    done: list[str] = []
    value: list[str] = []
    for token in segment:
        if is_unit_token(token) or token in _UNIT_SIGNS:
            done += [*_before_sign(plain_number(value), token), token]
            value = []
        else:
            value.append(token)
    return done + plain_number(value)


def _before_sign(value: list[str], sign: str) -> list[str]:
    """A rational, written so that a sign after it doesn't apply to its denominator alone."""
    match value:
        case [*minus, over, "/", under] if sign in _UNIT_SIGNS and len(minus) < 2:
            return [*minus, "\\frac", "{", over, "}", "{", under, "}"]
    return value


def plain_number(segment: list[str]) -> list[str]:
    """The tokens of a number as a rational in lowest terms; a long decimal stays one, in one spelling."""
    sign, body = _signed(segment)
    if not body or not (is_number(body[0]) or body[0] == "\\frac"):
        return segment
    if significant_digits(body[0]) >= LONG_DECIMAL:
        return _long_decimal(sign, body) or segment
    value = _value(body)
    return _tokens_of(sign * value) if value is not None else segment


def _signed(segment: Sequence[str]) -> tuple[int, list[str]]:
    sign, at = 1, 0
    while at < len(segment) and segment[at] in ("-", "+", " "):
        sign = -sign if segment[at] == "-" else sign
        at += 1
    return sign, list(segment[at:])


def _tokens_of(value: Fraction) -> list[str]:
    parts = ["-"] if value < 0 else []
    parts.append(str(abs(value.numerator)))
    return parts if value.denominator == 1 else [*parts, "/", str(value.denominator)]


def _long_decimal(sign: int, body: Sequence[str]) -> list[str]:
    """A long decimal may be the rounding of another number (see `decimals`), so its digits are kept."""
    exponent = _power_of_ten(body[1:])
    if exponent is None or len(body[0]) > MAX_DIGITS:
        return []
    return (["-"] if sign < 0 else []) + [_trimmed(f"{Decimal(body[0]).scaleb(exponent):f}")]


def _value(body: Sequence[str]) -> Fraction | None:
    if body[0] == "\\frac":
        return _fraction(body)
    head = number(body[0])
    if head is None or len(body) == 1:
        return head
    if body[1] == "/":
        return _ratio(body[0], body[2]) if len(body) == 3 else None
    exponent = _power_of_ten(body[1:])
    if exponent is not None:
        return head * Fraction(10) ** exponent
    return _multiplied(head, body[1:]) or _mixed(head, body[1:] if body[1] != " " else body[2:])


def _ratio(over: str, under: str) -> Fraction | None:
    if not (is_number(over) and is_number(under)):
        return None
    numerator, denominator = number(over), number(under)
    return numerator / denominator if numerator is not None and denominator else None


def _fraction(body: Sequence[str]) -> Fraction | None:
    """\\frac{a}{b} of two literals, with their signs."""
    if body[1:2] != ["{"] or "}" not in body:
        return None
    close = list(body).index("}")
    if list(body[close + 1 : close + 2]) != ["{"] or body[-1] != "}":
        return None
    (sign, over), (other, under) = _signed(body[2:close]), _signed(body[close + 2 : -1])
    value = _ratio(over[0], under[0]) if len(over) == len(under) == 1 else None
    return sign * other * value if value is not None else None


def _mixed(whole: Fraction, rest: Sequence[str]) -> Fraction | None:
    """1 1/2 and 1\\frac{1}{2}; only a proper fraction makes a mixed number."""
    part = _fraction(rest) if rest and rest[0] == "\\frac" else None
    if len(rest) == 3 and rest[1] == "/":
        part = _ratio(rest[0], rest[2])
    return whole + part if part is not None and 0 < part < 1 and whole.denominator == 1 else None


def _power_of_ten(rest: Sequence[str]) -> int | None:
    """The exponent in *10^{3} or *10^{-3}; 0 where nothing follows."""
    if not rest:
        return 0
    if list(rest[:4]) != ["*", "10", "^", "{"] or rest[-1] != "}":
        return None
    sign, exponent = _signed(rest[4:-1])
    plain = len(exponent) == 1 and exponent[0].isdigit() and len(exponent[0]) <= 3
    return sign * int(exponent[0]) if plain else None


def _multiplied(head: Fraction, rest: Sequence[str]) -> Fraction | None:
    """3 million, 1.5 billion dollars."""
    words = [word for token in rest for word in words_of(token.removeprefix("\\text"))]
    times = MULTIPLIERS.get(words[0].removesuffix("s")) if words else None
    if times is None or changes_meaning(words[1:]) or not _is_words(rest):
        return None
    return head * times


def _is_words(tokens: Sequence[str]) -> bool:
    return all(token == " " or token.isalpha() or is_text(token) for token in tokens)
