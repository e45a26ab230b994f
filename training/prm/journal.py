"""What a run shows of itself while it trains: its rows, and the trackers that people watch runs with."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from unprm.errors import ModelInvalid

STEPS, VALIDATIONS = "train.jsonl", "validation.jsonl"
"""A row for each optimiser step, and for each epoch."""


class TrainingJournal:
    """A run's rows of optimiser steps and of epochs in its directory `output`, and the trackers in `report_to`, by
    accelerate's names, which read the environment that their users set."""

    def __init__(self, output: Path, name: str, report_to: Sequence[str]) -> None:
        self.output = output
        self._trackers = [_tracker(each, name, output) for each in report_to]

    def begin(self, steps: Sequence[Mapping[str, Any]], settings: Mapping[str, str]) -> Self:
        """Begins the journal with the rows of the steps that earlier runs took; trackers get the `settings`."""
        _write(self.output / STEPS, steps)
        for tracker in self._trackers:
            try:
                tracker.start()
            except ImportError as error:
                raise ModelInvalid(f"--report-to {tracker.name} needs its package: {error}") from error
            tracker.store_init_configuration(dict(settings))
        return self

    def step(self, row: Mapping[str, Any]) -> None:
        """Adds an optimiser step: its number `step`, from 1, and figures."""
        with (self.output / STEPS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._report("train", row, row["step"])

    def validated(self, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        """Writes the validations so far, before the training and after each epoch, of which the last was after this
        step."""
        _write(self.output / VALIDATIONS, rows)
        self._report("validation", rows[-1], step)

    def end(self) -> None:
        """Ends the trackers."""
        for tracker in self._trackers:
            tracker.finish()

    def _report(self, kind: str, row: Mapping[str, Any], step: int) -> None:
        figures = {f"{kind}/{name}": value for name, value in row.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.log(figures, step=step)


def _tracker(kind: str, name: str, output: Path) -> GeneralTracker:
    make = LOGGER_TYPE_TO_CLASS.get(kind)
    if make is None:
        raise ModelInvalid(f"--report-to takes {', '.join(sorted(LOGGER_TYPE_TO_CLASS))}, not {kind}")
    project = os.environ.get(f"{kind.upper()}_PROJECT", name)
    if make.requires_logging_directory:
        return make(project, os.environ.get("TENSORBOARD_LOGGING_DIR", str(output / "runs")))
    return make(project)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
