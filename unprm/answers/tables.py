"""The tables that answers are read by: words, units, notations and languages, each a TOML file in `data`."""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table(name: str) -> dict[str, Any]:
    """A table, by the name of its file."""
    return tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text("utf-8"))


def words(name: str, of: str = "words") -> frozenset[str]:
    """A list of words in a table."""
    return frozenset(table(of)[name].split())


def any_of(words: Iterable[str]) -> str:
    """A regular expression for any of these words, in which _ is a blank."""
    return "|".join(sorted(words)).replace("_", r"\s")


def any_in(name: str) -> str:
    """A regular expression for any word of a list."""
    return any_of(words(name))
