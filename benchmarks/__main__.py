"""Command line: `python -m benchmarks --help`."""

import importlib
import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.timing import table

Name = Literal["vote", "tree", "engines", "overhead", "precision", "size", "training", "answers", "gpu"]


def main(
    name: Annotated[Name, typer.Argument(help="Benchmark to run; the module of this name describes it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Runs a benchmark and prints its ratios against named baselines of the same run."""
    rows = importlib.import_module(f"benchmarks.{name}").comparisons()
    if as_json:
        typer.echo(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
    else:
        Console().print(table(rows))


if __name__ == "__main__":
    typer.run(main)
