"""LaTeX to tokens and back. A token is a string; its first character determines its kind."""

from collections.abc import Iterable

from unprm.answers.tables import pattern

RELATIONS = frozenset(["=", "<", ">", "\\leq", "\\geq", "\\neq", "\\in", "\\approx", "\\equiv"])
OPENING, CLOSING = frozenset(["(", "[", "\\{"]), frozenset([")", "]", "\\}"])
_DIGITS = frozenset("0123456789")


def tokenise(text: str) -> list[str]:
    """The tokens of a text; a blank is the token ``" "``. Nothing is dropped. Linear in the length."""
    return [" " if token.isspace() else token for token in pattern("token").findall(text)]


def is_number(token: str) -> bool:
    return token.removeprefix(".")[:1] in _DIGITS


def is_letters(token: str) -> bool:
    return token[:1].isalpha()


def is_text(token: str) -> bool:
    """Whether a token is a text in the canonical spelling, ``\\text{…}``."""
    return token.startswith("\\text{")


def is_unit_token(token: str) -> bool:
    """Whether a token is a unit of measure, ``\\unit{…}``, spelled as `units.unit` reads it."""
    return token.startswith("\\unit{")


def render(tokens: Iterable[str]) -> str:
    """The tokens as a text that yields the same tokens again, with blanks only where they are needed."""
    pieces, last = list[str](), " "
    for token in tokens:
        if is_letters(token):
            joins = is_letters(last) or (last[0] == "\\" and last[-1].isalpha())
        else:
            joins = is_number(token) and (is_number(last) or last == ",")  # 32, 349 is not 32,349
        pieces.append(f" {token}" if joins else token)
        last = token
    return "".join(pieces)
