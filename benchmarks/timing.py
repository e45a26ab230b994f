"""Medians of repeated runs, ours alternating with the baseline's, so that other load on the machine affects both."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeVar

from rich.table import Table

P = ParamSpec("P")
T = TypeVar("T")
Unit = Literal["s", "B", "/s", "AUROC", ""]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Medians over `rounds` runs of each; `ratio` > 1: ours is better. `allowed`: the ratio if ours did only the
    necessary multiplications. `baseline`: None where nothing is compared."""

    what: str
    ours: float
    baseline_name: str = ""
    baseline: float | None = None
    rounds: int = 1
    unit: Unit = "s"
    allowed: float | None = None

    @property
    def ratio(self) -> float | None:
        """The baseline's figure divided by ours, or the inverse if more is better."""
        if self.baseline is None or not self.ours:
            return None
        return self.ours / self.baseline if self.unit in ("/s", "AUROC") else self.baseline / self.ours


def compare(
    what: str,
    ours: Callable[[], object],
    baseline_name: str,
    baseline: Callable[[], object],
    rounds: int = 5,
    allowed: float | None = None,
) -> Comparison:
    """Times both alternately."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, seconds in zip((ours, baseline), taken, strict=True):
            seconds.append(timed(run))
    return Comparison(
        what, statistics.median(taken[0]), baseline_name, statistics.median(taken[1]), rounds, allowed=allowed
    )


def timed(run: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> float:
    start = time.perf_counter()
    run(*arguments, **options)
    return time.perf_counter() - start


def median(run: Callable[[T], object], arguments: Iterable[T]) -> float:
    """The median of the seconds that calls with each of these arguments take."""
    return statistics.median(timed(run, argument) for argument in arguments)


def table(comparisons: list[Comparison]) -> Table:
    shown = Table(title="medians; a ratio above 1 means that unprm is better")
    for name in ("what", "unprm", "baseline", "took", "ratio", "allowed"):
        shown.add_column(name, justify="left" if name in ("what", "baseline") else "right")
    for c in comparisons:
        shown.add_row(*cells(c))
    return shown


def cells(c: Comparison) -> tuple[str, ...]:
    ratio, allowed = ("" if value is None else f"{value:.2f}×" for value in (c.ratio, c.allowed))
    baseline = "" if c.baseline is None else _shown(c.baseline, c.unit)
    return c.what, _shown(c.ours, c.unit), c.baseline_name, baseline, ratio, allowed


def peak(work: Callable[[], object]) -> float:
    """Peak memory of this process during `work`, in bytes above its memory before. Linux only."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets the peak
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = [line for line in file if line.startswith(f"{name}:")]
    return 1024 * float(line.split()[1])


def _shown(value: float, unit: Unit) -> str:
    if unit == "B":
        return f"{value / 2**20:,.0f} MiB"
    if unit == "":
        return f"{value:,.4g}"
    if unit == "AUROC":
        return f"{value:.4f}"
    if unit == "/s":
        return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"
    return f"{1000 * value:.2f} ms" if value < 1 else f"{value:.2f} s"
