"""The sentences of the `unprm-mini` domain: each template of one table is filled in by the generator and compiled to a
regular expression by the parser, so that the two can't drift apart."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from string import Formatter
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """Who owns things in a story, and what they own."""

    holders: tuple[str, ...]
    items: tuple[str, ...]
    templates: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: its kind (a key of `Setting.templates`) and the values of its fields."""

    kind: str
    a: str = ""
    b: str = ""
    item: str = ""
    n: int = 0
    m: int = 0


_SHARED = {
    "more": ("{b} has {n} more {item} than {a}.",),
    "fewer": ("{b} has {n} fewer {item} than {a}.",),
    "times_as_many": ("{b} has {n} times as many {item} as {a}.",),
    "ask": ("How many {item} does {a} have now?", "How many {item} does {a} have in the end?"),
    "ask_total": ("How many {item} do {a} and {b} have together?",),
    "ask_difference": ("How many more {item} does {a} have than {b}?",),
}

_FRIENDS = Setting(
    holders=("Mia", "Tom", "Ana", "Ben", "Zoe", "Sam", "Lea", "Max", "Eva", "Leo"),
    items=("marbles", "stamps", "shells", "coins", "cards", "beads"),
    templates=_SHARED
    | {
        "start": ("{a} has {n} {item}.", "{a} starts with {n} {item}."),
        "gain": ("{a} buys {n} more {item}.", "{a} finds {n} {item}.", "{a} wins {n} {item} in a game."),
        "loss": ("{a} loses {n} {item}.", "{a} sells {n} {item}.", "{a} drops {n} {item} into a river."),
        "multiply": ("{a} trades well and now has {n} times as many {item}.",),
        "divide": ("{a} splits the {item} into {n} equal piles and keeps one pile.",),
        "gain_groups": ("{a} buys {n} bags with {m} {item} in each bag.",),
        "loss_groups": ("{a} fills {n} jars with {m} {item} each and sells the jars.",),
        "give": ("{a} gives {n} {item} to {b}.",),
        "give_all": ("{a} gives all the {item} to {b}.",),
        "aside": ("{a} is {n} years old.", "{a} walks {n} steps."),
    },
)

_FARMS = Setting(
    holders=("Oak Farm", "Hill Farm", "Lake Farm", "Pine Farm", "Moor Farm", "Mill Farm"),
    items=("apples", "eggs", "pears", "plums", "melons", "carrots"),
    templates=_SHARED
    | {
        "start": ("{a} stores {n} {item}.", "In spring {a} has {n} {item}."),
        "gain": ("{a} picks {n} more {item}.", "{a} harvests {n} {item}."),
        "loss": ("{a} sells {n} {item} at the market.", "Mice eat {n} {item} of {a}."),
        "multiply": ("After a good summer {a} has {n} times as many {item}.",),
        "divide": ("{a} packs the {item} into {n} equal loads and keeps one load.",),
        "gain_groups": ("{a} gets {n} crates with {m} {item} in each crate.",),
        "loss_groups": ("{a} sends away {n} carts with {m} {item} each.",),
        "give": ("{a} lends {n} {item} to {b}.",),
        "give_all": ("{a} closes and hands all its {item} to {b}.",),
        "aside": ("The road to {a} is {n} miles long.", "{a} has {n} old trees."),
    },
)

_DEPOTS = Setting(
    holders=("Depot North", "Depot South", "Depot East", "Depot West"),
    items=("bricks", "pipes", "tiles", "planks", "bolts", "cables"),
    templates=_SHARED
    | {
        "start": ("{a} holds {n} {item}.", "On Monday {a} has {n} {item}."),
        "gain": ("A truck brings {n} {item} to {a}.", "{a} receives {n} more {item}."),
        "loss": ("{a} ships {n} {item}.", "A storm ruins {n} {item} at {a}."),
        "multiply": ("{a} orders until it has {n} times as many {item}.",),
        "divide": ("{a} divides its {item} among {n} sites and keeps one equal part.",),
        "gain_groups": ("{a} receives {n} pallets with {m} {item} on each pallet.",),
        "loss_groups": ("{a} ships {n} cases with {m} {item} in each case.",),
        "give": ("{a} moves {n} {item} to {b}.",),
        "give_all": ("{a} moves all its {item} to {b}.",),
        "aside": ("{a} has {n} lamps.", "{a} opened {n} years ago."),
    },
)

SETTINGS = (_FRIENDS, _FARMS, _DEPOTS)


def render(sentence: Sentence, template: str) -> str:
    return template.format_map(asdict(sentence))


def _pattern(template: str, setting: Setting) -> re.Pattern[str]:
    holder, item, number = "|".join(setting.holders), "|".join(setting.items), r"\d{1,9}"
    values = {"a": holder, "b": holder, "item": item, "n": number, "m": number}
    parts = ((re.escape(text), name) for text, name, _, _ in Formatter().parse(template))
    return re.compile("".join(text + (f"(?P<{name}>{values[name]})" if name else "") for text, name in parts))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (kind, _pattern(template, setting))
        for setting in SETTINGS
        for kind, templates in setting.templates.items()
        for template in templates
    )


def read(text: str) -> Iterator[Sentence]:
    """The sentences of a problem's text. Raises `ValueError` with the sentence that the domain does not know."""
    for words in map(str.strip, re.split(r"(?<=[.?])", text)):
        if words:
            yield _read_sentence(words)


def _read_sentence(words: str) -> Sentence:
    for kind, pattern in _patterns():
        if found := pattern.fullmatch(words):
            fields: dict[str, Any] = {k: int(v) if k in ("n", "m") else v for k, v in found.groupdict().items()}
            return Sentence(kind, **fields)
    raise ValueError(f"not a sentence of the unprm-mini domain: {words[:80]!r}")
