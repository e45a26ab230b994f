"""Calibrations and thresholds of published PRMs, fitted on step scores that others have recorded.

The numbers, the data they were fitted and tested on, and the source of the scores are in `recorded_calibrations.json`,
which `python -m research calibrate-recorded` writes. The prompts behind those scores differ slightly from the ones
here, and a calibration for one kind of problems need not hold for another: it is used only where the settings say so.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from unprm.calibration import Calibration, RecordedCalibration
from unprm.errors import ModelInvalid

NAME = "recorded_calibrations.json"


@dataclass(frozen=True, slots=True)
class Drawback:
    """A figure in [0, 1] that is worse with the calibration than without, on the subset that was not fitted on."""

    figure: str
    subset: str
    without: float
    with_it: float


def find(model: str, name: str = "", adapter: str | None = None) -> RecordedCalibration:
    """A model's calibration, by its hub name; for any other model, such as a directory, by the name it is served by.

    Raises `ModelInvalid`, which lists the recorded models, if there is none, or an adapter makes it another model.
    """
    models = read()["models"]
    known = next((key for key in (model, name) if key in models), None)
    if known is None or adapter:
        what = f"{model!r} with an adapter" if adapter else f"{model!r}"
        raise ModelInvalid(
            f"--calibration recorded: none is recorded of {what}; there are {', '.join(models)}. A copy of one of them "
            "is served by --model HUB_NAME=DIRECTORY"
        )
    entry = models[known]
    return RecordedCalibration(known, Calibration(entry["scale"], entry["shift"]), entry["calibrated_threshold"])


def drawbacks(model: str) -> list[Drawback]:
    """The figures that the calibration or the threshold of a recorded model makes worse on its test subset."""
    record = read()
    subset = record["tested_on"]["subset"]
    figures = record["models"][model]["subsets"][subset]
    error, f1 = figures["calibration_error"], figures["f1"]
    found = []
    if error["after"] > error["before"]:
        found.append(Drawback("calibration error", subset, error["before"], error["after"]))
    if f1["at_threshold"] < f1["at_half"]:
        found.append(Drawback("F1 of the first error", subset, f1["at_half"], f1["at_threshold"]))
    return found


def read() -> dict[str, Any]:
    """The contents of the file."""
    record: dict[str, Any] = json.loads((files("unprm.formats") / NAME).read_text("utf-8"))
    return record
