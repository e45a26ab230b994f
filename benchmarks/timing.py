"""Medians of repeated runs, ours and the baseline's by turns, so that both see the same machine."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians over `rounds` runs of each, in seconds or in bytes; `ratio` > 1: ours takes less."""

    what: str
    ours: float
    baseline_name: str
    baseline: float
    rounds: int
    unit: Literal["s", "B"] = "s"

    @property
    def ratio(self) -> float:
        """How many times as much the baseline takes."""
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
    shown = Table(title="medians; a ratio above 1 means that unprm takes less")
    for name in ("what", "unprm", "baseline", "took", "ratio"):
        shown.add_column(name, justify="left" if name in ("what", "baseline") else "right")
    for c in comparisons:
        shown.add_row(c.what, _shown(c.ours, c.unit), c.baseline_name, _shown(c.baseline, c.unit), f"{c.ratio:.2f}×")
    return shown


def peak(work: Callable[[], object]) -> float:
    """Bytes that this process held at most while it worked, above what it held before. Linux alone tells."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forgets the peak so far
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = [line for line in file if line.startswith(f"{name}:")]
    return 1024 * float(line.split()[1])


def _shown(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**20:,.0f} MiB"
    return f"{1000 * value:.2f} ms" if value < 1 else f"{value:.2f} s"
