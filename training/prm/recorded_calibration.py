"""Calibrations and thresholds of published PRMs from recorded step scores: fitted on one subset of ProcessBench, tested
on another."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.table import Table

from training import resumable
from training.evaluate.metrics import Validation
from training.evaluate.processbench import THRESHOLD, best_threshold, figures
from training.evaluate.recorded_scores import scores_of
from training.prm.calibrate import fit
from training.schema import RecordedSolution
from unprm.calibration import Calibration
from unprm.errors import RecordInvalid
from unprm.formats.registry import known_models

EDGE = 2.0**-9
"""Recorded scores are clipped to this distance from 0 and 1: bfloat16 has no number between 1 - 2⁻⁸ and 1, so a
recorded 1 may have been 1 - 2⁻⁹. Taken as log-odds of 20, the many such scores would determine the slope."""
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect on one PRM and subset: calibration error before and after the calibration, F1 of the first wrong step at
    the threshold 0.5 and at the fitted one; all in [0, 1]."""

    error_before: float
    error_after: float
    f1_before: float
    f1_after: float

    @classmethod
    def of(cls, model: str, samples: Sequence[RecordedSolution], calibration: Calibration, threshold: float) -> Self:
        """Measures the effect on these samples; `threshold` applies to uncalibrated scores."""
        scores = scores_of(model, samples)
        labels = [sample.step_labels for sample in samples]
        before = [scores[sample.id][: len(step_labels)] for sample, step_labels in zip(samples, labels, strict=True)]
        after = [tuple(map(calibration, step_scores)) for step_scores in before]
        return cls(
            error_before=Validation.of(before, labels).calibration_error,
            error_after=Validation.of(after, labels).calibration_error,
            f1_before=figures(samples, scores, THRESHOLD).f1,
            f1_after=figures(samples, scores, threshold).f1,
        )


@dataclass(frozen=True, slots=True)
class Fitted:
    """A PRM's calibration, the best threshold for its scores, the same threshold for calibrated scores, and the effect
    of both by subset: first the subset they were fitted on, then the test subset, if there is one."""

    calibration: Calibration
    threshold: float
    calibrated_threshold: float
    subsets: Mapping[str, Effect]


def fit_all(subsets: Mapping[str, Sequence[RecordedSolution]], source: str) -> dict[str, Fitted]:
    """Calibrations by PRM (hub name of a known PRM, else its name): fitted on the first subset, tested on all.

    Raises `RecordInvalid` with `source`, where the scores are from, if a PRM's are no higher for right steps.
    """
    return {_hub_name(model): _fit_one(model, subsets, source) for model in next(iter(subsets.values()))[0].scores}


def _fit_one(model: str, subsets: Mapping[str, Sequence[RecordedSolution]], source: str) -> Fitted:
    fitted = next(iter(subsets.values()))
    labels = [sample.step_labels for sample in fitted]
    scores = [sample.scores[model][: len(step_labels)] for sample, step_labels in zip(fitted, labels, strict=True)]
    exact = fit(scores, labels, EDGE)
    if exact.scale <= 0:
        raise RecordInvalid(source, 0, f"{model} scores right steps no higher than wrong ones")
    calibration = Calibration(round(exact.scale, _DIGITS), round(exact.shift, _DIGITS))
    threshold = best_threshold(fitted, scores_of(model, fitted))
    effects = {name: Effect.of(model, samples, calibration, threshold) for name, samples in subsets.items()}
    return Fitted(calibration, threshold, round(calibration(threshold), _DIGITS), effects)


def _hub_name(model: str) -> str:
    """The hub name of a known PRM, which may be recorded by the last part of that name; else the name unchanged."""
    return next((known.name for _, known in known_models() if known.name.rpartition("/")[2] == model), model)


def write(
    found: Mapping[str, Fitted], subsets: Mapping[str, Sequence[RecordedSolution]], source: str, path: Path
) -> None:
    """Writes the file that `unprm.formats.recorded` reads, for exactly two subsets: fitted on, then tested on.
    `source`: where the scores are from, and their licence."""
    counts = {name: _counts(samples) for name, samples in subsets.items()}
    fitted, tested = subsets
    record: dict[str, Any] = {
        "source": source,
        "fitted_on": {"subset": fitted, **counts[fitted]},
        "tested_on": {"subset": tested, **counts[tested]},
        "models": {model: _record(result) for model, result in found.items()},
    }
    resumable.replace(path, json.dumps(record, indent=2) + "\n")


def _counts(samples: Sequence[RecordedSolution]) -> dict[str, int]:
    steps = [label for sample in samples for label in sample.step_labels]
    return {"solutions": len(samples), "steps": len(steps), "wrong_steps": steps.count(False)}


def _record(fitted: Fitted) -> dict[str, Any]:
    return {
        "scale": fitted.calibration.scale,
        "shift": fitted.calibration.shift,
        "threshold": fitted.threshold,
        "calibrated_threshold": fitted.calibrated_threshold,
        "subsets": {
            name: {
                "calibration_error": _rounded(before=effect.error_before, after=effect.error_after),
                "f1": _rounded(at_half=effect.f1_before, at_threshold=effect.f1_after),
            }
            for name, effect in fitted.subsets.items()
        },
    }


def _rounded(**values: float) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in values.items()}


def table(found: Mapping[str, Fitted]) -> Table:
    """One row per PRM and subset; the last column names what got worse."""
    shown = Table(title="Calibration and threshold, fitted on the first subset")
    shown.add_column("PRM", overflow="fold")
    columns = (
        "subset",
        "scale",
        "shift",
        "calibration error",
        "threshold",
        f"F1 at {THRESHOLD:g}, at threshold",
        "worse",
    )
    for name in columns:
        shown.add_column(name, justify="left" if name in ("subset", "worse") else "right", overflow="fold")
    for model, fitted in found.items():
        for name, effect in fitted.subsets.items():
            error = f"{effect.error_before:.3f} → {effect.error_after:.3f}"
            f1 = f"{100 * effect.f1_before:.1f} → {100 * effect.f1_after:.1f}"
            scale, shift = f"{fitted.calibration.scale:.3f}", f"{fitted.calibration.shift:+.3f}"
            shown.add_row(model, name, scale, shift, error, f"{fitted.threshold:.2f}", f1, ", ".join(worse(effect)))
        shown.add_section()
    return shown


def worse(effect: Effect) -> list[str]:
    """Which of the calibration error ("calibration") and "F1" get worse."""
    wrong = {"calibration": effect.error_after > effect.error_before, "F1": effect.f1_after < effect.f1_before}
    return [name for name, is_worse in wrong.items() if is_worse]
