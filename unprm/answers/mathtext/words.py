"""English words beside a number: which only name what is counted, and which change what is meant."""

import re
from collections.abc import Iterable


def words_in(text: str) -> frozenset[str]:
    """The words of a text, separated by blanks."""
    return frozenset(text.split())


# Each of these words beside a number makes it another answer: "10 or more" is not 10, "3 p.m." is not 3 a.m.
_MEANING = words_in(
    """
    am pm ad bc bce ce not no none non never without except excluding only if iff unless when where
    while for and or nor either neither both xor but than then more less fewer greater smaller larger
    bigger least most minimum maximum under above below between beyond within from to till until upto
    about mod modulo modulus remainder base radix rem times plus minus squared cubed root power divided
    multiplied by negative positive nonnegative nonpositive opposite inverse reciprocal half halves
    third quarter fourth fifth sixth seventh eighth ninth tenth hundredth thousandth dozen score hundred thousand
    lakh million crore billion trillion k mil bn
    north south east west up down left right clockwise counterclockwise anticlockwise forward backward
    ahead behind increase increased decrease decreased gain loss lost profit deficit surplus debt rise
    fall drop late early earlier later before after ago previous next undefined infinite infinity
    infinitely false true even odd prime composite hold holds real imaginary complex
    """
)
# These too, but only after the number: a sentence before it may speak of "the total".
_QUALIFIERS = words_in(
    """
    older younger taller shorter heavier lighter longer wider deeper thicker thinner faster slower higher lower
    closer farther further nearer cheaper warmer hotter colder cooler richer poorer
    win wins won losses lose loses losing pair pairs couple couples twin twins triplet triplets
    millionth millionths billionth billionths trillionth trillionths eleventh elevenths twelfth twelfths
    twentieth twentieths factorial basis each apiece st nd rd th ream reams
    """
)
# A word with an opposite says what a number counts: 5 heads is not 5 tails, but either may be just 5.
CONTRASTS = words_in(
    """
    correct incorrect wrong head tail full empty discount surcharge markup markdown short extra fast slow upward
    downward inward outward leftward rightward upstream downstream uphill downhill inside outside inner outer top bottom
    front back growth decline ascent descent ascending descending repeated owed owned income expense deposit withdrawal
    debit credit import export bought sold borrowed lent paid unpaid used unused added removed hired fired sent received
    absorbed released passed failed success failure present absent open closed alive dead weekday weekend inclusive
    exclusive horizontal vertical nickel dime
    """
)
# Words that announce an answer without changing it.
INTRODUCTIONS = words_in(
    """
    so thus hence therefore the final answer answers result is are approximately about roughly exactly
    equal equals
    """
)
MULTIPLIERS = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7,
    "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
# Names of functions, which are never the noun that an answer counts.
FUNCTION_NAMES = words_in(
    """
    sin cos tan sec csc cot arcsin arccos arctan asin acos atan ln log lg exp
    """
)
# Nouns that may touch the number (10ways); others need a blank, since 10abc reads as 10·a·b·c.
_COUNTED = words_in(
    """
    unit square cubic person people child children men women student teacher box boxes way piece point number
    integer digit value solution triangle side edge vertex vertices face coin ball card
    """
)
_VARIABLES = frozenset("abcdkmnpqrxyz")
_CLOCK = re.compile(r"\b([ap])\.\s?m\b")
_RUN = re.compile(r"[A-Za-z]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case; p.m. counts as one word."""
    return _RUN.findall(_CLOCK.sub(r"\1m", text.lower()))


def changes_meaning(words: Iterable[str]) -> bool:
    """Whether a word beside a number, in the singular or plural, changes its meaning, as no unit does."""
    return any(word.lower() in _MEANING or word.lower().removesuffix("s") in _MEANING for word in words)


def qualifies(words: Iterable[str]) -> bool:
    """Whether a word after a number qualifies it, rather than naming what it counts."""
    return any(word.lower() in _QUALIFIERS for word in words)


def is_word(run: str) -> bool:
    """Whether a run of letters is a word, not a product of variables (``odd`` and not ``xyz`` or ``mgh``)."""
    if len(run) < 3:
        return run.lower() == "no"
    if run.istitle():
        return True
    distinct = set(run.lower())
    if len(run) < 5 and run.islower() and distinct.isdisjoint("aeiouy"):
        return not run.isascii()
    return not (distinct <= _VARIABLES and len(distinct) == len(run))


def is_noun(run: str, *, spaced: bool) -> bool:
    """Whether a run of letters after a number names what it counts; `spaced`: a blank is between them."""
    run = run.lower()
    if not run.isascii() or run in _COUNTED or run.removesuffix("s") in _COUNTED:
        return True
    return spaced and run not in FUNCTION_NAMES and (run in ("pts", "amu") or (len(run) >= 4 and is_word(run)))
