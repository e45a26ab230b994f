"""Blocks of a solution's text that are never split: code fences, display mathematics, environments."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

TextSpan = tuple[int, int]
"""A position in a text: `(start, end)` in characters."""

_FENCE = re.compile(r"^[ \t]{0,12}(?P<fence>`{3,}|~{3,})[^\S\n]*(?P<info>[^\n`]*)$", re.MULTILINE)
_BRACKET = re.compile(r"(?<!\\)\\[\[\]]")
_DOLLARS = re.compile(r"(?P<alone>^[ \t]{0,12}\$\$[ \t\r]{0,12}$)|\$\$", re.MULTILINE)
_ENVIRONMENT = re.compile(r"\\(?P<edge>begin|end)\s?\{(?P<name>[A-Za-z]{1,32}\*?)\}")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_TEXTUAL = frozenset(["document", "proof", "solution", "enumerate", "itemize"])
"""Environments that contain prose, whose paragraphs are steps."""


def blocks(text: str) -> list[TextSpan]:
    """The outermost blocks of a text, with their delimiters, in order. Unclosed ones don't count. Linear time."""
    fences = list(_fences(text))
    # what looks like mathematics inside a fence is code
    prose = _blanked(text, fences)
    found = sorted([*fences, *_brackets(prose), *_dollars(prose), *_environments(prose)])
    outermost: list[TextSpan] = []
    for start, end in found:
        if outermost and start < outermost[-1][1]:
            outermost[-1] = (outermost[-1][0], max(end, outermost[-1][1]))
        else:
            outermost.append((start, end))
    return outermost


def _blanked(text: str, fences: list[TextSpan]) -> str:
    edges = [0, *(edge for fence in fences for edge in fence), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    return "".join(" " * len(piece) if number % 2 else piece for number, piece in enumerate(pieces))


def _fences(text: str) -> Iterator[TextSpan]:
    opening: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opening and not line["info"] and line["fence"].startswith(opening["fence"]):
            yield opening.start(), line.end()
            opening = None
        elif opening is None or line["info"]:
            opening = line


def _brackets(text: str) -> Iterator[TextSpan]:
    start = None
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "\\[":
            start = bracket.start()
        elif start is not None:
            yield start, bracket.end()
            start = None


def _dollars(text: str) -> Iterator[TextSpan]:
    """Pairs of ``$$``; only two that stand alone on their lines may enclose a blank line, else one of them is stray."""
    opening: re.Match[str] | None = None
    for dollars in _DOLLARS.finditer(text):
        if opening is None:
            opening = dollars
        elif (opening["alone"] and dollars["alone"]) or not _BLANK_LINE.search(text, opening.end(), dollars.start()):
            yield opening.start(), dollars.end()
            opening = None
        else:
            opening = dollars


def _environments(text: str) -> Iterator[TextSpan]:
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for edge in _ENVIRONMENT.finditer(text):
        if edge["name"] in _TEXTUAL:
            continue
        if edge["edge"] == "begin":
            starts[edge["name"]].append(edge.start())
        elif starts[edge["name"]]:
            yield starts[edge["name"]].pop(), edge.end()
