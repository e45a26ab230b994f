"""Command line: `python -m benchmarks --help`."""

import importlib
import json
import signal
import sys
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.timing import cells, table

Name = Literal["vote", "tree", "engines", "overhead", "precision", "size", "training", "answers", "gpu", "http"]
Device = Literal["cuda", "cpu"]


def main(
    name: Annotated[Name, typer.Argument(help="Benchmark to run; the module of this name describes it.")],
    urls: Annotated[list[str] | None, typer.Argument(help="Servers that `http` measures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each figure as a line of JSON, as it comes.")] = False,
    device: Annotated[Device | None, typer.Option(help="Where `gpu` runs: a small model on a CPU as well.")] = None,
) -> None:
    """Runs a benchmark and prints its ratios against named baselines of the same run."""
    if device is not None and name != "gpu":
        raise typer.BadParameter(f"{name} has no choice of a device", param_hint="--device")
    if bool(urls) != (name == "http"):
        raise typer.BadParameter("`http` takes the URLs of servers, and no other benchmark does", param_hint="urls")
    chosen: dict[str, object] = {"device": device} if device else {"urls": urls} if urls else {}
    rows = []
    try:
        for row in importlib.import_module(f"benchmarks.{name}").comparisons(**chosen):
            rows.append(row)
            if as_json:
                print(json.dumps(asdict(row) | {"ratio": row.ratio}), flush=True)
            else:
                print(*filter(None, cells(row)), sep="; ", file=sys.stderr, flush=True)
    finally:
        if rows and not as_json:
            Console().print(table(rows))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers end, and what was measured is shown
    typer.run(main)
