"""The commands for whole workflows: report, lab, mini, measure-mini."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from .. import stage

console = Console(stderr=True)


def report(
    directory: Annotated[Path, typer.Argument(help="Directory with the results to report.", exists=True)],
) -> None:
    """Write a report of the results: one HTML file with tables and figures.

    Below the directory it looks for processbench/NAME and best-of-n/NAME, written by `evaluate --output` (several runs
    below one name are training seeds of one PRM), and annotated/NAME.jsonl, written by `annotate`.
    """
    from ..report.page import write

    console.print(f"wrote {write(directory)}")


def lab(
    output: Annotated[
        Path, typer.Option("--out", help="Directory for everything that is made.", callback=stage.directory)
    ],
    preset: Annotated[
        Literal["quick", "full"], typer.Option(help="quick: minutes on two cores; full: hours.")
    ] = "quick",
) -> None:
    """Run the paper's study in miniature: data sets, PRMs, benchmarks, votes, and a report of the results.

    Run the same command again to resume an interrupted run.
    """
    from ..lab.run import run
    from ..lab.settings import PRESETS

    console.print(f"wrote {run(PRESETS[preset], output, console)}")


def mini(
    output: Annotated[
        Path, typer.Option(help="Directory for everything that is made.", callback=stage.directory)
    ] = Path("runs/mini"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make the embedded model from scratch: reasoner, labelled solutions, PRM. Takes about two hours on two cores."""
    from ..mini.pipeline import MiniSettings, make

    with stage.progress(console) as progress:
        adapter = make(output, MiniSettings(seed=seed), progress)
    console.print(f"serve it with: unprm serve --model {adapter}")


def measure_mini(
    model: Annotated[str, typer.Option(help="The embedded model, or an adapter that `mini` made.")] = "unprm-mini",
    problems: Annotated[int, typer.Option(min=2, help="New problems, 16 solutions each.")] = 300,
    seed: Annotated[str, typer.Option(help="Seed of the problems.")] = "held out",
    figures: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Evaluate the embedded model, reasoner and PRM, on problems that it has never seen."""
    from unprm.models.checkpoint import locate

    from ..mini.measure import measure

    with stage.progress(console) as progress:
        measured = measure(locate(model, None, None, None).base, model, problems, seed, progress)
    Console().print(measured.table())
    if figures:
        figures.write_text(json.dumps(asdict(measured), indent=2) + "\n", "utf-8")
