"""The commands of the documentation: the blocks of its pages, and what stands within sentences."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support import ROOT

PAGES = sorted([*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *ROOT.glob("docs/**/*.md")])
LANGUAGES = ("sh", "bash", "python")

_FENCE = re.compile(r"^(<!-- not run: [^>\n]+ -->\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""The comment, which no reader sees, says what a test would need to run the block."""
_SPAN = re.compile(r"`([^`]+)`")
_PROGRAM = re.compile(r"(\w+=\S+ )*((\.venv/bin/)?python|torchrun|make|pip|docker|training|unprm) ")


@dataclass(frozen=True, slots=True)
class Block:
    """What a page says in one place; `line` is where it begins, from 1. `marked`: a comment says that it isn't run."""

    page: str
    line: int
    language: str
    text: str
    marked: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def lines(self) -> list[str]:
        """Its lines, those that go on in the next one joined with it."""
        return self.text.replace("\\\n", " ").splitlines()

    def commands(self) -> Iterator[list[str]]:
        """The words of each command; a quoted text may go on over several lines."""
        begun = ""
        for line in self.lines:
            begun += line
            try:
                words = shlex.split(begun, comments=True)
            except ValueError:  # a quotation that is not closed yet
                begun += "\n"
                continue
            begun = ""
            if words:
                yield words


def fenced() -> list[Block]:
    """Every block of a shell's or Python's, in the order of the pages."""
    return [
        Block(name, text.count("\n", 0, found.start(3)) + 1, found[2], found[3], found[1] is not None)
        for name, text in _pages()
        for found in _FENCE.finditer(text)
        if found[2] in LANGUAGES
    ]


def spoken() -> list[Block]:
    """Every command within a sentence or a table."""
    return [
        Block(name, text.count("\n", 0, found.start()) + 1, "sh", words)
        for name, whole in _pages()
        for text in [_FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), whole)]
        for found in _SPAN.finditer(text)
        if _PROGRAM.match(words := " ".join(found[1].split()))
    ]


def block(page: str, within: str) -> Block:
    """The one block of a page that has this text."""
    found = [fence for fence in fenced() if fence.page == page and within in fence.text]
    assert len(found) == 1, f"{page} has {len(found)} blocks with {within!r}"
    return found[0]


RUN: set[Block] = set()
"""The blocks that a test of this folder runs."""


def runs(page: str, *within: str) -> pytest.MarkDecorator:
    """For a test that is given the blocks of a page that have these texts, as `blocks`."""
    found = [block(page, text) for text in within]
    RUN.update(found)
    return pytest.mark.parametrize("blocks", [found], ids=[str(found[0])])


def changed(text: str, other: dict[str, str]) -> str:
    """A text with other words in the place of some that it has."""
    for old, new in other.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def _pages() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield str(page.relative_to(ROOT)), page.read_text("utf-8")
