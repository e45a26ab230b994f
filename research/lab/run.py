"""Runs the lab, stage by stage; each stage resumes where an earlier run stopped."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from training import stage
from training.resumable import ResumableFile
from unprm import mini
from unprm.errors import SamplerFailed
from unprm.samplers.load import load_sampler
from unprm.types import Sampler

from ..report.page import write
from . import benchmark, construct, findings, models
from .lab_settings import LabSettings

Sampling = Callable[[LabSettings, Sampler, Path, Console], Awaitable[dict[str, str]]]
"""A stage that samples; returns the failed questions with reasons."""


@dataclass(frozen=True, slots=True)
class FinishedStage:
    """A stage of the lab (its name) that is done, and how long it took."""

    id: str
    seconds: int


def run_lab(settings: LabSettings, output: Path, console: Console) -> Path:
    """Runs the stages not yet done in `output` and returns the report's path.

    Raises `OutputMismatch` if `output` holds a lab with other settings.
    """
    stages: dict[str, Callable[[], object]] = {
        "data sets": lambda: _sampled(construct.construct, settings, output, console),
        "candidates": lambda: _sampled(benchmark.candidates, settings, output, console),
        "training": lambda: models.train(settings, output, console),
        "evaluation": lambda: models.evaluate(settings, output, console),
        "findings": lambda: findings.write(settings, output),
    }
    in_order(stages, {"stage": "lab", **asdict(settings)}, output, console)
    return write(output)


def in_order(
    stages: Mapping[str, Callable[[], object]], config: Mapping[str, object], output: Path, console: Console
) -> None:
    """Runs the stages not yet done in `output`, and remembers in `stages.jsonl` which are.

    Raises `OutputMismatch` if they were done with another configuration.
    """
    with ResumableFile(output / "stages.jsonl", FinishedStage, config) as log:
        for name, work in stages.items():
            if name in log.records:
                continue
            start = time.monotonic()
            console.rule(name)
            work()
            log.append(FinishedStage(name, round(time.monotonic() - start)))


def _sampled(work: Sampling, settings: LabSettings, output: Path, console: Console) -> None:
    """Runs a sampling stage; raises `SamplerFailed` if a question failed, as later stages need all of them."""

    async def whole() -> dict[str, str]:
        sampler = load_sampler("transformers", mini.NAME, settings.sample.drawing)
        try:
            return await work(settings, sampler, output, console)
        finally:
            await sampler.close()

    failures = asyncio.run(whole())
    if stage.print_failures(console, failures):
        raise SamplerFailed(f"{len(failures)} questions could not be sampled; the same command tries them again")
