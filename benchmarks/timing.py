"""Medians of repeated runs, ours and the baseline's by turns, so that both see the same machine."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians in seconds over `rounds` runs of each; `ratio` > 1: ours is faster."""

    what: str
    ours: float
    baseline_name: str
    baseline: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times as long the baseline takes."""
        return self.baseline / self.ours


def compare(
    what: str, ours: Callable[[], object], baseline_name: str, baseline: Callable[[], object], rounds: int = 5
) -> Comparison:
    """Times both by turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, seconds in zip((ours, baseline), taken, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return Comparison(what, statistics.median(taken[0]), baseline_name, statistics.median(taken[1]), rounds)


def table(comparisons: list[Comparison]) -> Table:
    """For a terminal."""
    shown = Table(title="medians; a ratio above 1 means that unprm is faster")
    for name in ("what", "unprm", "baseline", "took", "ratio"):
        shown.add_column(name, justify="left" if name in ("what", "baseline") else "right")
    for c in comparisons:
        shown.add_row(c.what, _seconds(c.ours), c.baseline_name, _seconds(c.baseline), f"{c.ratio:.2f}×")
    return shown


def _seconds(value: float) -> str:
    return f"{1000 * value:.2f} ms" if value < 1 else f"{value:.2f} s"
