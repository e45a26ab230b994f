"""LaTeX to tokens and back. A token is a string; its first character determines its kind."""

import re
from collections.abc import Iterable
from fractions import Fraction

LONG_DECIMAL = 9  # least significant digits of a decimal that may be the rounding of a simple number
MAX_DIGITS = 1000  # of one number; beyond it a number is compared as text
RELATIONS = frozenset(["=", "<", ">", "\\leq", "\\geq", "\\neq", "\\in", "\\approx", "\\equiv"])
OPENING, CLOSING = frozenset(["(", "[", "\\{"]), frozenset([")", "]", "\\}"])

_DECIMAL = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_TOKEN = re.compile(
    rf"""
    \\(?:text|mathbf|unit)\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}
  | \\(?:begin|end)\s*\{{\s*[A-Za-z]+\*?\s*\}}
  | \\mathbb\{{[A-Z]\}}
  | \\[A-Za-z]+ | \\.                                    # a command
  | [0-9]*\.[0-9]*\\(?:overline|bar|dot)\s*(?:\{{[0-9]+\}}|[0-9])   # a repeating decimal
  | (?:[0-9]+\.[0-9]+[eE][+-]?[0-9]{{1,3}} | [0-9]+[eE](?:[+-]0?[0-9]{{2}}|[0-9]{{1,3}}) | 1[eE]-[0-9]{{1,3}})
    (?![0-9A-Za-z.])                                     # a float; 2e-3 is 2 times e minus 3
  | {_DECIMAL}
  | [^\W\d_]+                                            # a run of letters
  | <=|>=|!=|==|\*\*|\.\.\.
  | \s+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_DIGITS = frozenset("0123456789")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)\\[a-z]+\s*\{?([0-9]+)\}?")
_NUMBER = re.compile(rf"{_DECIMAL}(?:[eE][+-]?[0-9]{{1,3}})?")


def tokenise(text: str) -> list[str]:
    """The tokens of a text; a blank is the token ``" "``. Nothing is dropped. Linear in the length."""
    return [" " if token.isspace() else token for token in _TOKEN.findall(text)]


def is_number(token: str) -> bool:
    """Whether a token is a literal number."""
    return token[:1] in _DIGITS or (token[:1] == "." and token[1:2] in _DIGITS)


def is_letters(token: str) -> bool:
    """Whether a token is a run of letters."""
    return token[:1].isalpha()


def is_text(token: str) -> bool:
    """Whether a token is a text in the canonical spelling, ``\\text{…}``."""
    return token.startswith("\\text{")


def is_unit_token(token: str) -> bool:
    """Whether a token is a unit of measure, ``\\unit{…}``."""
    return token.startswith("\\unit{")


def unit_token(spelled: str) -> str:
    """The token of a unit that is spelled as `units.unit` reads it."""
    return f"\\unit{{{spelled}}}"


def number(token: str) -> Fraction | None:
    """The exact value of a literal number; None if it has more than `MAX_DIGITS` digits."""
    if len(token) > MAX_DIGITS or not token.isascii():
        return None
    if repeating := _REPEATING.fullmatch(token):
        return _repeating(*repeating.groups())
    return Fraction(token) if _NUMBER.fullmatch(token) else None


def _repeating(whole: str, fixed: str, period: str) -> Fraction:
    head = Fraction(int((whole + fixed) or "0"), 10 ** len(fixed))
    return head + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))


def significant_digits(token: str) -> int:
    """How many significant digits a decimal was written with; 0 for an integer or a repeating decimal."""
    if "." not in token or "\\" in token:
        return 0
    return len(re.split("[eE]", token)[0].replace(".", "").lstrip("0"))


def render(tokens: Iterable[str]) -> str:
    """The tokens as a text that yields the same tokens again, with blanks only where they are needed."""
    pieces: list[str] = []
    last = ""
    for token in tokens:
        if last and _would_join(last, token):
            pieces.append(" ")
        pieces.append(token)
        last = token
    return "".join(pieces)


def _would_join(last: str, token: str) -> bool:
    if is_letters(token):
        return is_letters(last) or (last[0] == "\\" and last[-1].isalpha())
    return is_number(token) and (is_number(last) or last == ",")  # 32, 349 is not 32,349
