"""Command line of the studies: `python -m research --help`."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from training.cli.options import with_options
from training.stage import directory, tell
from unprm.errors import UnprmError

from .settings import PoolSettings

app = typer.Typer(
    help="Samples what the studies need, and measures.", no_args_is_help=True, pretty_exceptions_show_locals=False
)
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


@app.command()
def steps(
    output: Annotated[Path, typer.Option(help="Directory for scores and the table.", callback=directory)],
    data: Annotated[str, typer.Option(help="ProcessBench: a file, a directory or its name on the hub.")],
    model: Annotated[list[str] | None, typer.Option(help="A PRM; repeat for more.")] = None,
    likelihood: Annotated[
        list[str] | None, typer.Option(help="A language model: how likely it finds each step; repeat for more.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="URL of a server of a PRM or judge; repeat.")] = None,
    recorded: Annotated[
        list[Path] | None,
        typer.Option(help="Recorded scores of published PRMs; only solutions that have them are taken.", exists=True),
    ] = None,
) -> None:
    """Tell what step scores know of first errors: F1 and AUROC beside length, place, likelihood and published PRMs."""
    from training.evaluate.scorers import EngineScorer, ServerScorer
    from unprm.models.checkpoint import fetch
    from unprm.models.load import load_engine

    from . import steps as found
    from .surprisal import LikelihoodScorer

    sets, published = found.load(data, recorded or [])
    scores = found.baselines(sets)
    for name in likelihood or []:
        scorer = LikelihoodScorer(fetch(name, None), name)
        scores[f"likelihood, {name}"] = found.score(sets, scorer, output / f"likelihood-{Path(name).name}", console)
    for name in model or []:
        with closing(load_engine(name)) as engine:
            prm = EngineScorer(engine)
            scores[prm.identity.model] = found.score(sets, prm, output / Path(name).name, console)
    for url in server or []:
        with closing(ServerScorer(url, os.environ.get("UNPRM_API_KEY"))) as served:
            name = served.identity.model
            scores[name] = found.score(sets, served, output / Path(name).name, console)
    console.print(found.write(sets, scores | published, output), markup=False, soft_wrap=True)


def main() -> None:
    """Runs the command line; an `UnprmError` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (UnprmError, OSError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
