"""Runs a stage: items are processed concurrently; failures are collected and printed at the end."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from unprm.errors import OutputMismatch, UnprmError

Item = TypeVar("Item")
LINE_EVERY = 30.0
"""Seconds between two progress lines without a terminal."""


def progress(
    console: Console, *columns: ProgressColumn, shown: bool = True, get_time: Callable[[], float] | None = None
) -> Progress:
    """A progress display for tasks with a known number of steps: bars, with further `columns`, on a terminal; lines of
    text elsewhere. `get_time` is a clock, in seconds."""
    times = MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), *columns
    title = TextColumn("{task.description}", markup=False)
    # the time left is estimated from all steps so far: a single one may take minutes
    options: dict[str, Any] = {"get_time": get_time, "speed_estimate_period": math.inf}
    if console.is_terminal:
        return Progress(title, BarColumn(), *times, console=console, disable=not shown, **options)
    return Lines(title, *times, console=Console(quiet=True) if not shown else console, disable=True, **options)


class Lines(Progress):
    """Progress for a log file: a line for each task that goes on, at most every `LINE_EVERY` seconds, and one at its
    end."""

    _due = -math.inf

    def update(self, *arguments: Any, **options: Any) -> None:
        super().update(*arguments, **options)
        self._write()

    def advance(self, *arguments: Any, **options: Any) -> None:
        super().advance(*arguments, **options)
        self._write()

    def stop(self) -> None:
        super().stop()
        self._write(at_end=True)

    def _write(self, at_end: bool = False) -> None:
        if (now := self.get_time()) < self._due and not at_end:
            return
        self._due = now + LINE_EVERY
        for task in self.tasks:
            if at_end or not task.finished:
                cells = [column(task) for column in self.columns if isinstance(column, ProgressColumn)]
                self.console.print(*cells, highlight=False, soft_wrap=True)


class Board(ExitStack):
    """Progress of many items, live on a terminal, with occasional lines elsewhere. `counts` are shown as totals,
    tokens also per second."""

    def __init__(self, console: Console, title: str, total: int, done: int = 0) -> None:
        super().__init__()
        self.done = done
        self.counts: Counter[str] = Counter()
        self._start = time.monotonic()
        self._progress = self.enter_context(progress(console, TextColumn("{task.fields[counts]}")))
        self._task = self._progress.add_task(title, total=total, completed=done, counts="")

    def advance(self, done: int = 1, **counts: int) -> None:
        self.done += done
        self.counts.update(counts)
        self._progress.update(self._task, completed=self.done, counts=self._summary())

    def _summary(self) -> str:
        seconds = max(1e-9, time.monotonic() - self._start)
        shown = [f"{number:,} {name}" for name, number in self.counts.items()]
        if tokens := self.counts["tokens"]:
            shown.append(f"{tokens / seconds:,.0f} tokens/s")
        return "".join(f" · {part}" for part in shown)


def directory(path: Path) -> Path:
    """Checks and returns the path of an output directory. Raises `OutputMismatch` if it is a file or lies below one."""
    for place in (path, *path.parents):
        if place.is_dir():
            break
        if place.exists():
            raise OutputMismatch(f"the output {path} can't be a directory: {place} is a file")
    return path


async def process(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[None]],
    name: Callable[[Item], str],
    concurrency: int,
) -> dict[str, str]:
    """Works on all items, at most `concurrency` at a time; returns the failures, name to reason.

    An `UnprmError` fails only its item; any other error, such as a full disk, ends the stage.
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
