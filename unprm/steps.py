"""From the text of a solution to its steps and back."""

import math
import re
from collections.abc import Sequence

from unprm.types import Aggregate, Split

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_LINE_END = re.compile(r"\n")
_STEP_LINE = re.compile(r"^(?=[^\S\n]*(?:[#*]{1,4}[^\S\n]*)?Step[^\S\n]*\d)", re.MULTILINE | re.IGNORECASE)


def split(text: str, mode: Split = "auto") -> list[str]:
    """The steps of a solution's text, stripped, none empty; `[]` for blank text.

    Split at blank lines; if there are none, before each line that begins with `Step k` (what precedes the
    first is a step of its own); if there is none either, at every line.
    """
    return [text[start:end].replace("\r\n", "\n") for start, end in spans(text, mode)]


def spans(text: str, mode: Split = "auto") -> list[tuple[int, int]]:
    """Where the steps of `split` stand in the text: `(start, end)` in characters, without the space around."""
    for cut in (_BLANK_LINE, _STEP_LINE):
        found = _between(cut, text)
        if len(found) > 1:
            return found
    return _between(_STEP_LINE if _STEP_LINE.match(text.lstrip()) else _LINE_END, text)


def _between(cut: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """The stretches between the matches of `cut` that are not blank, without the space around."""
    edges = [0, *(edge for match in cut.finditer(text) for edge in match.span()), len(text)]
    found = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        piece = text[start:end]
        if piece.strip():
            found.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
    return found


def join(steps: Sequence[str]) -> str:
    """One text of the steps, such that `split(join(steps)) == steps` for stripped steps without blank lines."""
    return "\n\n".join(steps)


def reward(step_scores: Sequence[float], aggregate: Aggregate = "min") -> float:
    """A solution's reward from its step scores (at least one), all in [0, 1]. Paper, section 5: the minimum."""
    match aggregate:
        case "min":
            return min(step_scores)
        case "last":
            return step_scores[-1]
        case "product":
            return math.prod(step_scores)
        case "mean":
            return math.fsum(step_scores) / len(step_scores)


def first_error(step_scores: Sequence[float], threshold: float = 0.5) -> int | None:
    """Index of the first step that scores below the threshold, None if there is none."""
    return next((index for index, score in enumerate(step_scores) if score < threshold), None)
