"""Calibrations and thresholds of published PRMs, of step scores that others have recorded of them.

The numbers, what they were fitted and tested on, and where the scores come from stand in `recorded_calibrations.json`,
which `python -m training calibrate --scores` writes. The prompts behind those scores differ a little from the ones
here, and a calibration of one kind of problems need not hold for another: it is used only where the settings say so.
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
    """A figure in [0, 1] of the subset that was not fitted on, which is worse with the numbers than without them."""

    figure: str
    subset: str
    without: float
    with_it: float


def find(model: str, name: str = "", adapter: str | None = None) -> RecordedCalibration:
    """That of a model by its hub name; of another one, a directory, say, by the hub name that it is served by.

    Raises `ModelInvalid` with the recorded models if there is none, or an adapter makes it another model.
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
    """What the calibration or the threshold of a recorded model makes worse where it was tested."""
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
    """What the file says."""
    record: dict[str, Any] = json.loads((files("unprm.formats") / NAME).read_text("utf-8"))
    return record
