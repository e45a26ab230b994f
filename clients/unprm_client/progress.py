"""An optional progress bar for many calls."""

from typing import Self


class Progress:
    """Counts submitted and answered calls; rich, needed only for a shown bar, draws it on stderr."""

    def __init__(self, shown: bool) -> None:
        self._bar = None
        self._submitted = 0
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("answered"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("answered", total=0)

    def submitted(self) -> None:
        """Counts one more submitted call."""
        if self._bar is not None:
            self._submitted += 1
            self._bar.update(self._task, total=self._submitted)

    def answered(self) -> None:
        """Counts one more answered call."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bar is not None:
            self._bar.stop()
