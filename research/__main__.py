"""Command line of the studies: `python -m research --help`."""

import asyncio
import json
import os
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from training import stage
from training.cli.options import with_options
from training.stage import directory, tell
from unprm.errors import UnprmError

from .settings import PoolSettings

app = typer.Typer(
    help="Samples and measurements for the studies.", no_args_is_help=True, pretty_exceptions_show_locals=False
)
console = Console(stderr=True)

SECONDS = 3600.0
"""Timeout of a solution: a server at the lowest priority may stand still while others work."""


@app.command()
@with_options
def pool(
    questions: Annotated[Path, typer.Argument(help="JSON lines with `problem` and `answer`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the candidates; repeat the command to resume.")],
    url: Annotated[list[str], typer.Option(help="URL of a server that runs the model; repeat for more.")],
    model: Annotated[str, typer.Option(help="The model's name at the server.")],
    settings: PoolSettings,
    concurrency: Annotated[int, typer.Option(min=1, help="Candidates sampled at the same time.")] = 8,
) -> None:
    """Sample candidates of each question and check their answers; resumable after every candidate."""
    from unprm.openai.client import OpenAIClient

    from . import sampling

    client = OpenAIClient(url, os.environ.get("OPENAI_API_KEY"), timeout=SECONDS, attempts=6)
    failures = asyncio.run(sampling.sample(questions, client, model, output, settings, concurrency, console))
    raise typer.Exit(tell(console, failures))


@app.command()
def pack(
    candidates: Annotated[Path, typer.Argument(help="File that `pool` wrote, finished or not.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for candidates.jsonl.gz and its card.", callback=directory)],
) -> None:
    """Write a pool for publication: one line per question, compressed, with a card. Answers are checked again."""
    from . import packing

    size, counts = packing.pack(candidates, output)
    console.print(f"wrote {counts['candidates']} candidates of {counts['questions']} questions, {size:,} bytes")


@app.command()
def mix(
    output: Annotated[Path, typer.Option(help="File for the data.")],
    errors: Annotated[Path, typer.Option(help="Wrong solutions of GSM8K's questions, by verify-then-generate.")],
    gold: Annotated[Path, typer.Option(help="GSM8K: `question`, `solution`, `answer`.")],
    model_written: Annotated[Path, typer.Option(help="Long-winded solutions by language models: PARC.")],
    competition: Annotated[Path, typer.Option(help="Solutions of PRM800K, cut at their first errors.")],
    solutions: Annotated[Path, typer.Option(help="Right solutions of PRM800K's first phase.")],
    branches: Annotated[Path, typer.Option(help="Their steps with wrong alternatives, the last step of each row.")],
    characters: Annotated[
        tuple[int, int, int], typer.Option(help="Characters of the steps of PARC, PRM800K and its first phase.")
    ] = (100_000, 70_000, 70_000),
) -> None:
    """Mix public step labels for a small PRM: `problem`, `steps` and `labels`, a line each."""
    from .mix import written

    rows = list(written(errors, gold, model_written, competition, solutions, branches, characters))
    output.write_text("\n".join(rows) + "\n", "utf-8")
    console.print(f"wrote {len(rows)} solutions")


@app.command()
def steps(
    output: Annotated[Path, typer.Option(help="Directory for scores and the table.", callback=directory)],
    data: Annotated[str, typer.Option(help="ProcessBench: a file, a directory or its name on the hub.")],
    model: Annotated[list[str] | None, typer.Option(help="A PRM; repeat for more.")] = None,
    likelihood: Annotated[
        list[str] | None, typer.Option(help="Language model whose likelihood of each step is measured; repeat.")
    ] = None,
    server: Annotated[list[str] | None, typer.Option(help="URL of a server with a PRM or judge; repeat.")] = None,
    recorded: Annotated[
        list[Path] | None,
        typer.Option(help="Recorded scores of published PRMs; only solutions with scores are used.", exists=True),
    ] = None,
) -> None:
    """Evaluate step scores on first errors: F1 and AUROC beside length, position, likelihood and published PRMs."""
    from training.evaluate.scorers import EngineScorer, ServerScorer
    from unprm.checkpoints.files import fetch
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


@app.command()
def searches(
    study: Annotated[Path, typer.Argument(help="Directory that `training study` wrote.", file_okay=False, exists=True)],
    labels: Annotated[Path, typer.Option(help="JSON lines: `problem`, `steps`, `first_error` (from 0).", exists=True)],
) -> None:
    """Tell what each search costs and finds, where people labelled the first errors."""
    from .searches import markdown

    Console().print(markdown(study, labels), markup=False, soft_wrap=True)


@app.command()
def coverage(
    runs: Annotated[list[Path], typer.Argument(help="Directories that `evaluate best-of-n` wrote.", file_okay=False)],
    output: Annotated[Path, typer.Option(help="Directory for the table and the figure.", callback=directory)],
) -> None:
    """Judge which elected answers are accepted at a risk, on halves of pools that had no part in the calibration."""
    from training.evaluate import judging

    from .coverage import write

    pools = {run.name: [each for each in judging.load(run) if any(k is not None for k in each.classes)] for run in runs}
    console.print(write(pools, output), markup=False, soft_wrap=True)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="Directory with the results to report.", exists=True)],
) -> None:
    """Write a report of the results: one HTML file with tables and figures.

    Below the directory it looks for processbench/NAME and best-of-n/NAME, written by `evaluate --output` (several runs
    below one name are training seeds of one PRM), and annotated/NAME.jsonl, written by `annotate`.
    """
    from .report.page import write

    console.print(f"wrote {write(directory)}")


@app.command()
def lab(
    output: Annotated[Path, typer.Option("--out", help="Output directory.", callback=directory)],
    preset: Annotated[
        Literal["quick", "full"], typer.Option(help="quick: minutes on two cores; full: hours.")
    ] = "quick",
) -> None:
    """Run the paper's study in miniature: data sets, PRMs, benchmarks, votes, and a report of the results.

    Run the same command again to resume an interrupted run.
    """
    from .lab.run import run
    from .lab.settings import PRESETS

    console.print(f"wrote {run(PRESETS[preset], output, console)}")


@app.command()
def mini(
    output: Annotated[Path, typer.Option(help="Output directory.", callback=directory)] = Path("runs/mini"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make the embedded model from scratch: reasoner, labelled solutions, PRM. Takes about two hours on two cores."""
    from .mini.pipeline import MiniSettings, make

    with stage.progress(console) as progress:
        adapter = make(output, MiniSettings(seed=seed), progress)
    console.print(f"serve it with: unprm serve --model {adapter}")


@app.command("measure-mini")
def measure_mini(
    model: Annotated[str, typer.Option(help="The embedded model, or an adapter made by `mini`.")] = "unprm-mini",
    problems: Annotated[int, typer.Option(min=2, help="New problems, 16 solutions each.")] = 300,
    seed: Annotated[str, typer.Option(help="Seed of the problems.")] = "held out",
    figures: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Evaluate the embedded model, reasoner and PRM, on problems that it has never seen."""
    from unprm.checkpoints.files import locate

    from .mini.measure import measure

    with stage.progress(console) as progress:
        measured = measure(locate(model, None, None, None).base, model, problems, seed, progress)
    Console().print(measured.table())
    if figures:
        figures.write_text(json.dumps(asdict(measured), indent=2) + "\n", "utf-8")


def main() -> None:
    """Runs the command line; an `UnprmError` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (UnprmError, OSError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
