"""Command line of the studies: `python -m research --help`."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from training.cli.options import with_options
from training.stage import directory, tell
from unprm.errors import UnprmError

from .settings import PoolSettings

app = typer.Typer(help="Samples what the studies need.", no_args_is_help=True, pretty_exceptions_show_locals=False)
console = Console(stderr=True)

SECONDS = 3600.0
"""Timeout of a solution: a server at the lowest priority may stand still while others work."""


@app.command()
@with_options
def pool(
    questions: Annotated[Path, typer.Argument(help="JSON lines with `problem` and `answer`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the candidates; the same command goes on there.")],
    url: Annotated[list[str], typer.Option(help="URL of a server of the model; repeat for more.")],
    model: Annotated[str, typer.Option(help="The model's name at the server.")],
    settings: PoolSettings,
    concurrency: Annotated[int, typer.Option(min=1, help="Candidates sampled at the same time.")] = 8,
) -> None:
    """Sample candidates of each question and judge them: each is kept as soon as it is finished."""
    from unprm.openai_api import OpenAIClient

    from . import sampling

    client = OpenAIClient(url, os.environ.get("OPENAI_API_KEY"), timeout=SECONDS, attempts=6)
    failures = asyncio.run(sampling.sample(questions, client, model, output, settings, concurrency, console))
    raise typer.Exit(tell(console, failures))


@app.command()
def pack(
    candidates: Annotated[Path, typer.Argument(help="File that `pool` wrote, finished or not.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for candidates.jsonl.gz and its card.", callback=directory)],
) -> None:
    """Write a pool for others: one line a question, compressed, with a card. The verdicts are made anew."""
    from . import packing

    size, counts = packing.pack(candidates, output)
    console.print(f"wrote {counts['candidates']} candidates of {counts['questions']} questions, {size:,} bytes")


def main() -> None:
    """Runs the command line; an `UnprmError` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (UnprmError, OSError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
