"""Command line: `python -m benchmarks --help`."""

import typer
from rich.console import Console

from benchmarks.timing import table

app = typer.Typer(help="Measures what is claimed about speed, as ratios against named baselines.", no_args_is_help=True)


@app.command()
def answers() -> None:
    """Grouping the answers of a vote, against Math-Verify."""
    from benchmarks.answers import run

    Console().print(table(run()))


@app.command()
def scoring() -> None:
    """Scoring candidates with the embedded model, against one at a time."""
    from benchmarks.scoring import run

    Console().print(table(run()))


@app.command()
def engines() -> None:
    """The embedded model by vLLM, here and over HTTP, against the torch engine; needs vLLM."""
    from benchmarks.engines import run

    Console().print(table(run()))


@app.command()
def sampling() -> None:
    """Rollouts for many searches at once, against a flat list of the same prompts."""
    from benchmarks.sampling import run

    Console().print(table(run()))


@app.command()
def training() -> None:
    """An optimiser step of the PRM trainer, against padding and all logits."""
    from benchmarks.training import run

    Console().print(table(run()))


if __name__ == "__main__":
    app()
