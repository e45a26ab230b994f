"""Runs a stage: many items at once, each result kept as it comes, failures counted and told at the end."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unprm.errors import UnprmError

Item = TypeVar("Item")
PLAIN_LINE_EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def progress(console: Console, shown: bool = True) -> Progress:
    """Bars for work that knows how many steps it takes."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, disable=not shown)


class Board:
    """Live progress on a terminal, a line now and then elsewhere. `counts` are shown as totals and per second."""

    def __init__(self, console: Console, title: str, total: int, done: int = 0) -> None:
        self.console, self.title, self.total, self.done = console, title, total, done
        self.counts: Counter[str] = Counter()
        self._start = self._told = time.monotonic()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        left = TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[counts]}")
        self._live = Progress(*columns, *left, console=console, disable=not console.is_terminal)
        self._task = self._live.add_task(title, total=total, completed=done, counts="")

    def advance(self, **counts: int) -> None:
        """One more item is done, and brought these counts."""
        self.done += 1
        self.count(**counts)

    def count(self, **counts: int) -> None:
        """Adds to the counts."""
        self.counts.update(counts)
        self._live.update(self._task, completed=self.done, counts=self._summary())
        if not self.console.is_terminal and time.monotonic() - self._told > PLAIN_LINE_EVERY:
            self._line()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        if not self.console.is_terminal:
            self._line()

    def _line(self) -> None:
        self._told = time.monotonic()
        self.console.print(f"{self.title}: {self.done} of {self.total}{self._summary()}", highlight=False)

    def _summary(self) -> str:
        seconds = max(1e-9, time.monotonic() - self._start)
        shown = [f"{number:,} {name}" for name, number in self.counts.items()]
        if tokens := self.counts["tokens"]:
            shown.append(f"{tokens / seconds:,.0f} tokens/s")
        return "".join(f" · {part}" for part in shown)


async def run(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[None]],
    name: Callable[[Item], str],
    concurrency: int,
) -> dict[str, str]:
    """Works on all items, at most `concurrency` at a time, and returns what failed: name to reason.

    An `UnprmError` fails its item alone; anything else, such as a full disk, ends the stage.
    """
    failures: dict[str, str] = {}
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            try:
                await work(item)
            except UnprmError as error:
                failures[name(item)] = str(error)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    return failures


def tell(console: Console, failures: dict[str, str]) -> int:
    """Tells what failed, grouped by reason; the exit status: 0 if nothing did."""
    for reason, count in Counter(failures.values()).most_common():
        console.print(f"[red]failed {count} times:[/red] {reason}", highlight=False, markup=True)
    if failures:
        console.print(f"{len(failures)} failed; the same command tries them again and leaves the rest as it is")
    return int(bool(failures))
