"""Calibrations and thresholds of published PRMs from recorded step scores: fitted on one subset of ProcessBench, tested
on another."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.table import Table

from training import resumable
from training.evaluate.metrics import Validation
from training.evaluate.processbench import THRESHOLD, best_threshold, figures
from training.prm.calibrate import fit
from unprm.calibration import Calibration
from unprm.errors import RecordInvalid
from unprm.formats.registry import known_models

from .recorded_scores import RecordedSolution, scores_of

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
        before, labels = _labelled(model, samples)
        after = [tuple(map(calibration, step_scores)) for step_scores in before]
        return cls(
            error_before=Validation.of(before, labels).calibration_error,
            error_after=Validation.of(after, labels).calibration_error,
            f1_before=figures(samples, scores, THRESHOLD).f1,
            f1_after=figures(samples, scores, threshold).f1,
        )

    def rounded(self) -> dict[str, dict[str, float]]:
        """The figures for the file."""
        error = {"before": round(self.error_before, _DIGITS), "after": round(self.error_after, _DIGITS)}
        f1 = {"at_half": round(self.f1_before, _DIGITS), "at_threshold": round(self.f1_after, _DIGITS)}
        return {"calibration_error": error, "f1": f1}


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
    exact = fit(*_labelled(model, fitted), EDGE)
    if exact.scale <= 0:
        raise RecordInvalid(source, 0, f"{model} scores right steps no higher than wrong ones")
    calibration = Calibration(round(exact.scale, _DIGITS), round(exact.shift, _DIGITS))
    threshold = best_threshold(fitted, scores_of(model, fitted))
    effects = {name: Effect.of(model, samples, calibration, threshold) for name, samples in subsets.items()}
    return Fitted(calibration, threshold, round(calibration(threshold), _DIGITS), effects)


def _labelled(
    model: str, samples: Sequence[RecordedSolution]
) -> tuple[list[tuple[float, ...]], list[tuple[bool, ...]]]:
    """Scores and labels of the steps up to each first wrong one."""
    labels = [sample.step_labels for sample in samples]
    return [s.scores[model][: len(known)] for s, known in zip(samples, labels, strict=True)], labels


def _hub_name(model: str) -> str:
    """The hub name of a known PRM, which may be recorded by the last part of that name; else the name unchanged."""
    return next((known.name for _, known in known_models() if known.name.rpartition("/")[2] == model), model)


def write(
    found: Mapping[str, Fitted], subsets: Mapping[str, Sequence[RecordedSolution]], source: str, path: Path
) -> None:
    """Writes the file that `unprm.formats.recorded` reads, for exactly two subsets: fitted on, then tested on.
    `source`: where the scores are from, and their licence."""
    fitted, tested = (_described(name, samples) for name, samples in subsets.items())
    models = {
        model: {
            **asdict(result.calibration),
            "threshold": result.threshold,
            "calibrated_threshold": result.calibrated_threshold,
            "subsets": {name: effect.rounded() for name, effect in result.subsets.items()},
        }
        for model, result in found.items()
    }
    record = {"source": source, "fitted_on": fitted, "tested_on": tested, "models": models}
    resumable.replace(path, json.dumps(record, indent=2) + "\n")


def _described(name: str, samples: Sequence[RecordedSolution]) -> dict[str, str | int]:
    labels = [label for sample in samples for label in sample.step_labels]
    return {"subset": name, "solutions": len(samples), "steps": len(labels), "wrong_steps": labels.count(False)}


def table(found: Mapping[str, Fitted]) -> Table:
    """One row per PRM and subset; the last column names what got worse."""
    shown = Table(title="Calibration and threshold, fitted on the first subset")
    numbers = "scale", "shift", "calibration error", "threshold", f"F1 at {THRESHOLD:g}, at threshold"
    for name in ("PRM", "subset", *numbers, "worse"):
        shown.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
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
