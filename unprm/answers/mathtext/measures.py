"""The words after a number: units in one spelling (15 cm^2, 3 hours, 5 dollars), nouns in the singular (5 apples)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from unprm.answers.mathtext.tokens import CLOSING, OPENING, is_letters, is_number, is_text, is_unit_token
from unprm.answers.mathtext.units import is_unit_after, spelled_unit, unit, unit_name
from unprm.answers.mathtext.words import (
    CONTRASTS,
    MULTIPLIERS,
    changes_meaning,
    is_noun,
    is_word,
    qualifies,
)
from unprm.answers.tables import pattern, words

_SMALL_WORDS = words("small")
_IN_PHRASE = frozenset([" ", "^", "{", "}", "/", ".", "-", "'", "*"])
_LITERAL = frozenset(["\\frac", "\\sqrt"])
_BOUNDARY = OPENING | CLOSING | frozenset(
    [",", ";", "=", "<", ">", "\\leq", "\\geq", "\\neq", "\\in", "\\cup", "\\lor", "\\approx", "&", "\\\\"]
)  # fmt: skip
_LONGEST = 24  # tokens of a phrase


class Phrase(NamedTuple):
    """`powers`: the power of each unit by name. `noun`: the other words, in the singular, empty if there are none;
    `written`: all words; `kept`: whether they change what is meant."""

    powers: Mapping[str, int]
    noun: str = ""
    written: str = ""
    kept: bool = False


_NOTHING = Phrase({})


class Measured(NamedTuple):
    """The tokens of a value, and what follows it. `sign`: the currency sign before the value, if any."""

    value: list[str]
    phrase: Phrase
    sign: str = ""

    def tokens(self) -> list[str]:
        """The value with its unit, or with its words unchanged. ``$5 per hour`` has that of sign and words."""
        if self.phrase.kept:
            return [*self.value, "\\text{" + self.phrase.written + "}"]
        powers = Counter(self.phrase.powers)
        if self.phrase.noun:
            powers[f"of({self.phrase.noun.replace(' ', '.')})"] = 1
        if self.sign and all(power < 0 or name in CONTRASTS for name, power in powers.items()):
            powers[self.sign] += 1
        spelled = spelled_unit(powers)
        return [*self.value, f"\\unit{{{spelled}}}"] if unit(spelled) else self.value


def read_measures(tokens: Sequence[str], *, named: bool = False) -> list[str]:
    """The tokens with their units and nouns in one spelling. What follows a value is read between brackets, commas and
    relations. `named`: whether the answer was a name's value, as in ``x = 5``."""
    bounds = [-1, *(at for at, token in enumerate(tokens) if token in _BOUNDARY), len(tokens)]
    around = ["=" if named else "", *(tokens[at] for at in bounds[1:-1]), ""]
    read = [
        _measured(tokens[start + 1 : end], before, after)
        for (start, end), (before, after) in zip(pairwise(bounds), pairwise(around), strict=True)
    ]
    done: list[str] = []
    for measured, after in zip(read, around[1:], strict=True):
        done += measured.tokens()
        done.append(after)
    return done[:-1]


def _measured(segment: Sequence[str], before: str, after: str) -> Measured:
    """What is measured in the tokens between two others. Units before a value, such as currency signs, are its sign."""
    kept, signs, last = list[str](), list[str](), before
    for token in segment:
        if is_unit_token(token) and not (last in CLOSING or _ends_a_value(last, token)):
            signs.append(token[6:-1])
        else:
            kept.append(token)
        last = last if token == " " else token
    if after in OPENING:
        return Measured(kept, _NOTHING)
    value, phrase = _suffixed(kept, before)
    return Measured(value, phrase, signs[0] if signs else "")


def _suffixed(segment: list[str], before: str) -> tuple[list[str], Phrase]:
    """The value in a segment, and the phrase after it: the longest that is one."""
    if segment and before in CLOSING and (phrase := _phrase(segment, 0)):
        return [], phrase
    for at in range(max(1, len(segment) - _LONGEST), len(segment)):
        end = at - (segment[at - 1] == " ")
        if before == "=" and len(segment[at]) == 1 and {"+", "-"} & {*segment[1:end]}:
            continue  # the m of x = 5 - 2 m is an unknown
        if end and _ends_a_value(segment[end - 1], segment[at]) and (phrase := _phrase(segment, at)):
            if segment[end - 1] == "°" and phrase.powers.keys() & {"degC", "degF"}:
                end -= 1
            return _compound(segment[:end], before) if phrase.powers else segment[:end], phrase
    return segment, _NOTHING


def _compound(value: list[str], before: str) -> list[str]:
    """``1 hour 30`` before a unit, with the inner unit in one spelling."""
    if len(value) < 3 or not is_number(value[-1]):
        return value
    first, phrase = _suffixed(value[: -2 if value[-2] == " " else -1], before)
    if not phrase.powers or phrase.noun or phrase.kept or not first:
        return value
    return [*Measured(first, phrase).tokens(), value[-1]]


def _ends_a_value(last: str, following: str) -> bool:
    if is_number(last) or last in ("}", "\\pi", "%", "°", "!") or last.removesuffix("s") in MULTIPLIERS:
        return True
    return (is_text(following) or is_unit_token(following)) and is_letters(last)


def _phrase(segment: Sequence[str], at: int) -> Phrase | None:
    """What the tokens from `at` on say about the value before them. None if they may be a product of variables, or are
    not a phrase."""
    spaced = " " in segment[max(0, at - 1) : at + 1]
    value = [token for token in segment[:at] if token != " "]
    tokens = [token for token in segment[at:] if token != " "]
    if not tokens or not (is_text(tokens[0]) or is_letters(tokens[0]) or tokens[0] == "/"):
        return None
    for last, token in pairwise(["", *tokens]):
        power = token in ("1", "2", "3") and last in ("^", "{", "-")
        if not (power or is_text(token) or is_letters(token) or token in _IN_PHRASE):
            return None
    plain = [pattern("clock").sub(r"\1m", token.removeprefix("\\text")) for token in tokens]
    items = [item for each in plain for item in pattern("phrase_item").findall(each)]
    literal = not any(is_letters(token) or (token[0] == "\\" and token not in _LITERAL) for token in value)
    upright = is_text(tokens[0])
    powers, nouns, rest = _parts(
        " ".join(items), degrees=value[-1:] == ["°"], spaced=spaced or upright, literal=literal, upright=upright
    )
    others = [word.lower() for word in (*nouns, *rest) if word.isalpha()]
    kept = changes_meaning(others) or qualifies(others) or others[:1] in (["is"], ["are"])
    if kept:
        short = [word for word in items if word.lower() not in _SMALL_WORDS]
        understood = all(word.isalpha() and (is_word(word) or unit_name(word)) for word in short)
    elif nouns:
        first = nouns[0].lower()
        understood = upright or is_noun(first, spaced=spaced) or (first == "in" and len(nouns) > 1)
    else:
        understood = bool(powers) and (upright or all(len(word) > 2 or word in _SMALL_WORDS for word in others))
    if not understood:
        return None
    contrasts = {unit_name(word): 1 for word in others if unit_name(word) in CONTRASTS}
    named = nouns or rest[rest[:1] == ["of"] :]  # 5 apples over three days, 5 mol NaOH, 5 cups of flour
    counted = [word for word in map(str.lower, named) if word.isalpha() and word not in _SMALL_WORDS]
    aside = not named or named[0].lower() in _SMALL_WORDS  # in total
    noun = "" if aside else " ".join(word.removesuffix("s") for word in counted if unit_name(word) not in contrasts)
    return Phrase({**powers, **contrasts}, noun, " ".join(items).lower(), kept)


def _parts(
    text: str, *, degrees: bool, spaced: bool, literal: bool, upright: bool
) -> tuple[dict[str, int], list[str], list[str]]:
    """The powers of the units in a phrase, its nouns, and the words and signs after both: a unit or nouns, then what
    they are counted by (``miles per hour``, ``pages a day``). `degrees`: a degree sign is before it; `spaced`: a blank;
    `literal`: a value without letters; `upright`: it begins upright, so not with a variable."""
    text = pattern("unit_words").sub(lambda pair: pair.lastgroup or "", "degree " * degrees + text)
    text = text.removeprefix("degree ") if degrees else text
    first, second, *_ = [*text.split(" "), ""]
    powers, nouns, at = Counter[str](), list[str](), 0
    product = len(first) == 1 and second.isalpha()  # 10 m s
    if (
        upright
        or first == "/"
        or first.lower() in ("square", "sq", "cubic", "cu")
        or (not product and is_unit_after(first, spaced=spaced, literal=literal, raised=second == "^"))
    ):
        at = _take_factor(text, 0, 1, powers)
    if not powers and (found := pattern("counted_nouns").match(text)):
        nouns = found[0].split()
        at = len(found[0].rstrip())
    while join := pattern("unit_join").match(text, at):
        end = _take_factor(text, join.end(), 1 if join[1] in "*-" else -1, powers)
        if end == join.end():
            break
        at = end
    return powers, nouns, text[at:].split()


def _take_factor(text: str, start: int, sign: int, powers: Counter[str]) -> int:
    """Adds the unit that begins here, with its power, and returns where it ends: ``m ^ 2``, ``s ^ - 1``, ``m 2``,
    ``feet squared``, ``square feet``; `start` if there is none."""
    found = pattern("unit_factor").match(text, start)
    name = unit_name(found[2]) if found else ""
    if found is None or not name:
        return start
    prefix, _, raised, minus, exponent, index = found.groups()
    power = int(exponent or index or 1)
    if in_words := raised or prefix:
        power = 2 if in_words[0] in "sS" else 3
    powers[name] += (-sign if minus else sign) * power
    return found.end()
