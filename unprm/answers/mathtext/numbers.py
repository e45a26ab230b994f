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
    Segment,
    is_number,
    is_unit_token,
    number,
    significant_digits,
)
from unprm.answers.mathtext.words import MULTIPLIERS, changes_meaning, words_of
from unprm.answers.tables import any_of, table

_UNIT_SIGNS = frozenset(["%", "°"])
_VALUES: dict[str, int] = table("words")["numbers"]
_FIRST, _ANY = any_of(_VALUES), any_of([*_VALUES, "hundred"])
_WORDS = re.compile(
    r"(?<![A-Za-z\\])(?:(?<![A-Za-z]\s)|(?<=\band\s)|(?<=\bor\s))"  # not in a sentence: 5 apples in three days
    rf"(?:{_FIRST})(?:(?:[\s-]|\s(?<=hundred\s)and\s)(?:{_ANY}))*(?![A-Za-z])",
    re.IGNORECASE,
)
_LITERAL = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_SLASHED = re.compile(rf"({_LITERAL})/({_LITERAL})$")
_FRACTION = re.compile(rf"(?:({_LITERAL}) ?)?\\frac\{{([-+ ]*{_LITERAL})\}}\{{([-+ ]*{_LITERAL})\}}")
_POWER_OF_TEN = re.compile(r"(?:\*10\^\{([-+]?[0-9]{1,3})\})?")
_SCALED = re.compile(rf"({_LITERAL})(?:{_POWER_OF_TEN.pattern}|((?: |[^\W\d_]|\\text\{{[^{{}}]*\}})+))")
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


def read_numbers(segments: Sequence[Segment]) -> list[list[str]]:
    """The segments with their numbers, each with its unit if it has one, in one spelling."""
    return [_plain_values(*segment) for segment in segments]


def _plain_values(segment: list[str], before: str, after: str) -> list[str]:
    if before in CLOSING or after in OPENING:  # part of something larger
        return segment
    done: list[str] = []
    value: list[str] = []
    for token in segment:
        if is_unit_token(token) or token in _UNIT_SIGNS:
            done += [*_before_sign(_plain_number(value), token), token]
            value = []
        else:
            value.append(token)
    return done + _plain_number(value)


def _before_sign(value: list[str], sign: str) -> list[str]:
    """A rational, written so that a sign after it doesn't apply to its denominator alone."""
    match value:
        case [*minus, over, "/", under] if sign in _UNIT_SIGNS and len(minus) < 2:
            return [*minus, "\\frac", "{", over, "}", "{", under, "}"]
    return value


def _plain_number(segment: list[str]) -> list[str]:
    """The tokens of a number as a rational in lowest terms; a decimal of many digits may be the rounding of another
    number (see `scalars`), so it stays a decimal."""
    digits = [token for token in segment if token not in ("-", "+", " ")]
    if not digits or not (is_number(digits[0]) or digits[0] == "\\frac"):
        return segment
    start = segment.index(digits[0])
    negative = segment[:start].count("-") % 2 == 1
    body = segment[start:]
    if significant_digits(body[0]) >= LONG_DECIMAL:
        exponent = _POWER_OF_TEN.fullmatch("".join(body[1:]))
        if exponent is None or len(body[0]) > MAX_DIGITS:
            return segment
        shifted = Decimal(body[0]).scaleb(int(exponent[1] or 0))
        return ["-"] * negative + [_trimmed(f"{shifted:f}")]
    value = number(body[0]) if len(body) == 1 else _value("".join(body))
    if value is None:
        return segment
    parts = ["-"] * (negative != (value < 0) and value != 0) + [str(abs(value.numerator))]
    return parts if value.denominator == 1 else [*parts, "/", str(value.denominator)]


def _value(text: str) -> Fraction | None:
    """The value of ``1/2``, ``1\\frac{1}{2}``, ``3*10^{6}``, ``1.5 million dollars``; None for anything else. Only an
    integer and a proper fraction make a mixed number."""
    if found := _FRACTION.fullmatch(_SLASHED.sub(r"\\frac{\1}{\2}", text)):
        whole, over, under = (_signed_number(part or "0") for part in found.groups())
        if whole is None or over is None or not under:
            return None
        is_proper = whole.denominator == 1 and 0 < over / under < 1
        return whole + over / under if is_proper or not found[1] else None
    found = _SCALED.fullmatch(text)
    value = number(found[1]) if found else None
    if found is None or value is None or not (found[2] or found[3]):  # `0..0` is two numbers
        return None
    if found[2]:
        return value * Fraction(10) ** int(found[2])
    scale, *others = words_of(found[3].replace("\\text", "")) or [""]
    times = MULTIPLIERS.get(scale.removesuffix("s"))
    return None if times is None or changes_meaning(others) else value * times


def _signed_number(text: str) -> Fraction | None:
    value = number(text.lstrip("-+ "))
    return -value if value is not None and text.count("-") % 2 else value
