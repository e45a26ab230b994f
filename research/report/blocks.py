"""The parts of a report page, and helpers that word its findings."""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training.evaluate.metrics import Share, percent

_NUMBER = re.compile(r"[−+-]?\d[\d.,–]*( %)?( \(.*\)| \[.*\](, p [=<] [\d.]+)?)?|–|")
"""A number or percentage, also with its interval in brackets or, for a difference, interval and p-value; a dash; or an
empty cell."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure as PNG. `title`: its finding; `alt`: description of the drawing; `caption`: how to read it, with n."""

    name: str
    title: str
    alt: str
    caption: str
    png: bytes

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True, slots=True)
class Table:
    """A table; each row has as many cells as `columns`. `quoted`: further rows with published figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    quoted: tuple[tuple[str, ...], ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column, whether it holds only numbers."""
        rows = (*self.rows, *self.quoted)
        return tuple(all(_NUMBER.fullmatch(row[k]) for row in rows) for k in range(len(self.columns)))


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page. `notes`: one line per missing part."""

    name: str
    title: str
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()


def listed(names: Iterable[str]) -> str:
    """Joins names for a sentence: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def lead(shares: Mapping[str, Share]) -> str:
    """A sentence that names the method with the highest share of right answers, and how many others have intervals that
    overlap its own. At least one share."""
    first, *others = sorted(shares, key=lambda name: -shares[name].mean)
    best = shares[first]
    equal = [name for name in others if shares[name].mean == best.mean]
    near = [name for name in others[len(equal) :] if shares[name].high >= best.low]
    verb, overlap = ("elect", "their intervals overlap") if equal else ("elects", "its interval overlaps")
    sentence = f"{listed([first, *equal])} {verb} a right answer most often: {percent(best.mean)}"
    if not near:
        return sentence
    return f"{sentence}; {overlap} that of {near[0]}" + (f" and {len(near) - 1} more" if len(near) > 1 else "")


def counted(counts: Mapping[str, int], noun: str) -> str:
    """The counts by name, or just one number if all are equal: `n = 500 questions`."""
    if len(set(counts.values())) == 1:
        return f"n = {next(iter(counts.values())):,} {noun}"
    return f"n = {', '.join(f'{count:,} ({name})' for name, count in counts.items())} {noun}"


def seeds(counts: Mapping[str, int]) -> str:
    """Explains intervals and whiskers, given the number of training seeds by PRM."""
    if max(counts.values()) == 1:
        return "intervals are 95 % bootstrap intervals, of one training seed each"
    same = len(set(counts.values())) == 1
    number = f"{max(counts.values())} each" if same else ", ".join(f"{n} of {name}" for name, n in counts.items())
    return (
        f"means over training seeds ({number}); intervals are the seeds' 95 % bootstrap intervals averaged end by end, "
        "and thin whiskers go from the lowest seed to the highest"
    )
