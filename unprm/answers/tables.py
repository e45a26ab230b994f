"""The tables by which answers are read, of words, units, notations, languages and statements: TOML files in `data`."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\{([a-z_]+)(?:\.([a-z]+))?\}")


@cache
def table(name: str) -> dict[str, Any]:
    """A table, by the name of its file."""
    return tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text("utf-8"))


def words(name: str, of: str = "words") -> frozenset[str]:
    """A list of words in a table, or the words to which it gives values."""
    listed = table(of)[name]
    return frozenset(listed.split() if isinstance(listed, str) else listed)


def words_of_languages(what: str, *, joined: bool) -> frozenset[str]:
    """The words for something in the languages in which no blank need precede them, or in all others."""
    languages = [each for each in table("languages").values() if each.get("joined", False) == joined]
    return frozenset(word for language in languages for word in language.get(what, "").split())


def any_of(words: Iterable[str]) -> str:
    """A regular expression for any of these words, in which _ is a blank."""
    return "|".join(sorted(words)).replace("_", r"\s")


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A regular expression of the table of statements."""
    return compiled(table("statements")[name])


@cache
def compiled(text: str) -> re.Pattern[str]:
    """A regular expression in which {name} stands for another one of the table of statements, or for a list of words,
    {languages.name} for words of languages, and {joined.name} for those that no blank need precede."""

    def named(found: re.Match[str]) -> str:
        name, what = found.groups()
        if what:
            return any_of(words_of_languages(what, joined=name == "joined"))
        if name in table("statements"):
            return _REFERENCE.sub(named, table("statements")[name]).removeprefix("(?x)")
        return any_of(words(name))

    return re.compile(_REFERENCE.sub(named, text))
