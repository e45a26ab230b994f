"""Runs the study on SmolLM2, stage by stage; each stage resumes where an earlier run stopped."""

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ..lab.run import in_order
from .data import StudyData
from .measure import measure
from .origins import SmolSources
from .pipeline import Study
from .searches import write
from .settings import SmolSettings


def run(given: SmolSources, settings: SmolSettings, output: Path, console: Console) -> None:
    """Makes the reasoner and the PRM in `output`, measures them, and compares the searches.

    Raises `OutputMismatch` if `output` holds a study with other settings or sources.
    """
    study = Study(StudyData.read(given), settings, output, console)
    stages = {
        "reasoner": study.fine_tune,
        "solutions": study.sample,
        "labels": study.label,
        "PRM": study.train,
        "candidates": study.test,
        "figures": lambda: measure(study),
        "searches": study.search,
        "findings": lambda: write(study),
    }
    sources = {name: str(place) for name, place in asdict(given).items()}
    in_order(stages, {"stage": "smol", **asdict(settings), **sources}, output, console)
