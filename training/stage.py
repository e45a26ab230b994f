"""Runs a stage: items are processed concurrently; failures are collected and printed at the end."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from unprm.errors import OutputMismatch, UnprmError

Item = TypeVar("Item")
Shown = tuple[float, str]
"""The steps done and the counts of a task."""
LINE_EVERY = 30.0
"""Seconds between two progress lines without a terminal."""


def progress(console: Console, *columns: ProgressColumn, shown: bool = True) -> Progress:
    """A progress display for tasks with a known number of steps: bars, with further `columns`, on a terminal; lines of
    text elsewhere."""
    if not console.is_terminal:
        return Lines(console, shown=shown)
    bar = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*bar, TextColumn("left"), TimeRemainingColumn(), *columns, console=console, disable=not shown)


class Lines(Progress):
    """Progress for a log file: a line when a task begins, at most one every `LINE_EVERY` seconds in which something was
    done, and one at its end.

    A line shows the steps done, the time taken, steps per second, the estimated time left, and the task's field
    `counts`. `get_time` is a clock, in seconds.
    """

    def __init__(self, console: Console, *, shown: bool = True, get_time: Callable[[], float] | None = None) -> None:
        super().__init__(console=console, disable=True, get_time=get_time)
        self._shown = shown
        self._first: dict[TaskID, float] = {}  # steps already done when each task began
        self._lines: dict[TaskID, tuple[float, Shown]] = {}  # time of each task's last line, and what it showed

    def add_task(self, *arguments: Any, **options: Any) -> TaskID:
        """As in rich, but writes a line."""
        task = super().add_task(*arguments, **options)
        self._first[task] = self._tasks[task].completed
        self._write(task, at_once=True)
        return task

    def update(self, task_id: TaskID, *arguments: Any, **options: Any) -> None:
        """As in rich, but may write a line."""
        super().update(task_id, *arguments, **options)
        self._write(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As in rich, but may write a line."""
        super().advance(task_id, advance)
        self._write(task_id)

    def stop(self) -> None:
        """Ends the display; writes a last line for each task with steps not yet shown."""
        super().stop()
        for task in list(self._lines):
            self._write(task, at_once=True)

    def _write(self, task_id: TaskID, at_once: bool = False) -> None:
        """Writes a line if it shows something new and is due, or `at_once`."""
        task, now = self._tasks[task_id], self.get_time()
        state = task.completed, str(task.fields.get("counts", ""))
        when, shown = self._lines.get(task_id, (now, None))
        if state == shown or not (at_once or task.finished or now - when >= LINE_EVERY):
            return
        self._lines[task_id] = now, state
        parts = [f"{task.description}: {task.completed:g} of {task.total:g}"]
        steps = task.completed - self._first[task_id]
        if steps and task.elapsed:
            parts += [f"in {_time(task.elapsed)}", f"{steps / task.elapsed:.3g} a second"]
            if task.remaining:
                parts.append(f"{_time(task.remaining * task.elapsed / steps)} left")
        if self._shown:
            self.console.print(", ".join(parts) + state[1], highlight=False, markup=False, soft_wrap=True)


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class Board:
    """Progress of many items, live on a terminal, with occasional lines elsewhere. `counts` are shown as totals,
    tokens also per second."""

    def __init__(self, console: Console, title: str, total: int, done: int = 0) -> None:
        self.done = done
        self.counts: Counter[str] = Counter()
        self._start = time.monotonic()
        self._progress = progress(console, TextColumn("{task.fields[counts]}"))
        self._task = self._progress.add_task(title, total=total, completed=done, counts="")

    def advance(self, **counts: int) -> None:
        """Marks one more item as done and adds its counts."""
        self.done += 1
        self.count(**counts)

    def count(self, **counts: int) -> None:
        """Adds to the counts without marking an item as done."""
        self.counts.update(counts)
        self._progress.update(self._task, completed=self.done, counts=self._summary())

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

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


def print_failures(console: Console, failures: dict[str, str]) -> int:
    """Prints the failures, grouped by reason; returns the exit status, 0 if there are none."""
    for reason, count in Counter(failures.values()).most_common():
        console.print(f"[red]failed {count} times:[/red] {escape(reason)}", highlight=False, soft_wrap=True)
    if failures:
        console.print(f"{len(failures)} failed; the same command tries them again and leaves the rest as it is")
    return int(bool(failures))
