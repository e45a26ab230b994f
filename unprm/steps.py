"""From the text of a solution to its steps and back."""

import math
import re
from collections.abc import Sequence

from unprm.types import Aggregate

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
_STEP_LINE = re.compile(r"^(?=[^\S\n]*(?:[#*]{1,4}[^\S\n]*)?Step[^\S\n]*\d)", re.MULTILINE | re.IGNORECASE)


def split(text: str) -> list[str]:
    """The steps of a solution's text, stripped, none empty; `[]` for blank text.

    Split at blank lines; if there are none, before each line that begins with `Step k` (what precedes the
    first is a step of its own); if there is none either, at every line.
    """
    text = text.replace("\r\n", "\n").strip()
    for pieces in (_BLANK_LINE.split(text), _STEP_LINE.split(text)):
        steps = _without_blanks(pieces)
        if len(steps) > 1:
            return steps
    return _without_blanks([text] if _STEP_LINE.match(text) else text.split("\n"))


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


def _without_blanks(pieces: Sequence[str]) -> list[str]:
    return [piece.strip() for piece in pieces if piece.strip()]
