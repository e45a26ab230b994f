"""Command line of the studies: `python -m research --help`."""

import asyncio
import json
import os
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from training import resumable, stage
from training.cli.sampling import ModelOption, PresetOption, SamplerOptions, run_stage
from training.stage import directory, print_failures
from training.stage_settings import EXTRACTION, PRESETS
from unprm.commands import group, run, with_options
from unprm.types import Extraction

from .pool_settings import PoolSettings

app = group("Samples and measurements for the studies.")
console = Console(stderr=True)

Runs = Annotated[list[Path], typer.Argument(help="Directories that `evaluate best-of-n` wrote.", file_okay=False)]
TableFile = Annotated[Path, typer.Option("--output", help="File for the table, in Markdown.")]
SECONDS = 3600.0
"""Timeout of a solution: a server at the lowest priority may stand still while others work."""


@app.command()
def base(name: Literal["qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"]) -> None:
    """Print the directory of a base of the studies, which is fetched and converted once."""
    from .bases import BASES

    typer.echo(BASES[name].directory())


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
    raise typer.Exit(print_failures(console, failures))


@app.command()
def pack(
    candidates: Annotated[Path, typer.Argument(help="File that `pool` wrote, finished or not.", exists=True)],
    output: Annotated[Path, typer.Option(help="File, gzipped.")],
) -> None:
    """Write a pool for publication: one line per question, compressed. Answers are checked again."""
    from . import packing

    size, counts = packing.pack(candidates, output)
    console.print(f"wrote {counts['candidates']} candidates of {counts['questions']} questions, {size:,} bytes")


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

    from . import steps
    from .surprisal import LikelihoodScorer

    sets, published = steps.load_sets(data, recorded or [])
    scores = steps.baselines(sets)
    for name in likelihood or []:
        scorer = LikelihoodScorer(fetch(name, None), name)
        scores[f"likelihood, {name}"] = steps.score(sets, scorer, output / f"likelihood-{Path(name).name}", console)
    for name in model or []:
        with closing(load_engine(name)) as engine:
            prm = EngineScorer(engine)
            scores[prm.identity.model] = steps.score(sets, prm, output / Path(name).name, console)
    for url in server or []:
        with closing(ServerScorer(url, os.environ.get("UNPRM_API_KEY"))) as served:
            name = served.identity.model
            scores[name] = steps.score(sets, served, output / Path(name).name, console)
    console.print(steps.write(sets, scores | published, output), markup=False, soft_wrap=True)


@app.command()
@with_options
def study(
    selected: Annotated[Path, typer.Argument(help="File of `unprm select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for a file per search and the table.", callback=directory)],
    sampler: SamplerOptions,
    model: ModelOption = "unprm-mini",
    preset: PresetOption = "paper",
    extraction: Annotated[Extraction | None, EXTRACTION] = None,
    rollouts: Annotated[
        int | None, typer.Option("--n", min=1, help="Maximum rollouts of each prefix, except with the search bayes.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens per rollout.")] = None,
) -> None:
    """Annotate the same solutions by every search, and compare costs and accuracy: the table `study.md`."""
    from unprm.answers.equivalence import Equivalence

    from .searches import findings
    from .searches import study as searches

    settings = PRESETS[preset].annotate
    settings = replace(
        settings,
        extraction=extraction or settings.extraction,
        adaptive=settings.limited(rollouts).adaptive,
        max_tokens=max_tokens or settings.max_tokens,
    )
    loaded, equivalence, variants = sampler.load(model, settings.drawing), Equivalence(), searches.variants(settings)
    at_once = sampler.concurrency
    run_stage(partial(searches.study, selected, loaded, equivalence, output, variants, at_once, console), loaded)
    _write_table(output / "study.md", findings.markdown(output))


@app.command()
def votes(
    runs: Runs,
    output: TableFile,
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidates of each vote, drawn as by best-of-n. Default: all.")
    ] = None,
) -> None:
    """Compare all votes on several pools: settings are chosen on one half of the questions and judged on the other."""
    from training.evaluate import judging

    from . import crossfit

    measured = {run.name: crossfit.measure(judging.read_judged(run), candidates) for run in runs}
    _write_table(output, crossfit.markdown(measured))


@app.command()
def budget(runs: Runs, output: TableFile) -> None:
    """Compare N candidates for each question with as many in all, spent where votes are least decided."""
    from training.evaluate import judging

    from .budget import markdown, measure

    _write_table(output, markdown({run.name: measure(judging.read_judged(run)) for run in runs}))


@app.command()
def recorded(
    scores: Annotated[
        list[Path],
        typer.Argument(help="Recorded step scores of PRMs on ProcessBench.", exists=True),
    ],
) -> None:
    """Report how well published PRMs find first errors, from their recorded scores."""
    from . import recorded_scores

    typer.echo(recorded_scores.table(recorded_scores.measure(recorded_scores.read(scores))), nl=False)


@app.command()
def probe(
    base: Annotated[str, typer.Option(help="Its base.")],
    data: Annotated[list[Path], typer.Option(help="What it was trained on; repeat.", exists=True)],
    validation: Annotated[
        list[Path], typer.Option(help="ProcessBench's files, its held-out solutions; repeat.", exists=True)
    ],
    probe: Annotated[
        Path, typer.Option(help="Directory of the probe, with the states that training kept.", exists=True)
    ],
    output: Annotated[Path, typer.Option(help="Directory for tables and the figure.", callback=directory)],
) -> None:
    """Report how well a frozen base's states show first errors: by layer, by how many labels a probe is fitted to, and
    beside what needs no training."""
    from training.prm.probe import ProbeTrainer
    from training.prm.train_settings import TrainSettings

    from . import probes

    settings = TrainSettings(
        base=base, data=tuple(data), validation=tuple(validation), output=probe, tune="none", head="probe"
    )
    console.print(probes.write(ProbeTrainer(settings), output, console), markup=False, soft_wrap=True)


@app.command()
def searches(
    study: Annotated[Path, typer.Argument(help="Directory that `research study` wrote.", file_okay=False, exists=True)],
    labels: Annotated[Path, typer.Option(help="JSON lines: `problem`, `steps`, `first_error` (from 0).", exists=True)],
) -> None:
    """Report what each search costs and finds, where people labelled the first errors."""
    from .searches import findings, truth

    Console().print(findings.markdown(study, truth.by_people(labels)), markup=False, soft_wrap=True)


@app.command()
def ideal(
    labels: Annotated[
        Path, typer.Argument(help="JSON lines: `problem`, `steps`, `first_error`, `logprobs`, `ends`.", exists=True)
    ],
) -> None:
    """Report what each search would find with perfect rollouts, and whether uncertainty rises at first errors."""
    from .searches.ideal import markdown

    Console().print(markdown(labels), markup=False, soft_wrap=True)


@app.command()
def coverage(
    pools: Annotated[
        list[Path], typer.Argument(help="Directories of `evaluate best-of-n`, or files of candidates without rewards.")
    ],
    output: Annotated[Path, typer.Option(help="Directory for the table and the figure.", callback=directory)],
    candidates: Annotated[int | None, typer.Option(min=1, help="Candidates of each question. Default: all.")] = None,
) -> None:
    """Judge which elected answers are accepted at a risk, on halves of pools that had no part in the calibration."""
    from . import coverage

    loaded = {coverage.name_of(path): coverage.judged_pool(path, output, console, candidates) for path in pools}
    console.print(coverage.write(loaded, output), markup=False, soft_wrap=True)


@app.command()
def escalation(
    candidates: Annotated[Path, typer.Argument(help="Questions with one answer of each of many models.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the table and the figure.", callback=directory)],
    small: Annotated[list[str], typer.Option(help="A small model, MODEL=COST of a character; repeat.")],
    large: Annotated[str, typer.Option(help="The large model, MODEL=COST of a character.")],
) -> None:
    """Ask small models first and a large one where the risk is too high: accuracy and cost, against always asking one
    of them, and against thresholds of the majority."""
    from . import escalation

    console.print(escalation.write(candidates, small, large, output, console), markup=False, soft_wrap=True)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="Directory with the results to report.", exists=True)],
) -> None:
    """Write a report of the results: `report.md` with tables, and a picture in `figures/`.

    Below the directory it looks for processbench/NAME and best-of-n/NAME, written by `evaluate --output`; several runs
    below one name are training seeds of one PRM.
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
    from .lab.lab_settings import PRESETS
    from .lab.run import run_lab

    console.print(f"wrote {run_lab(PRESETS[preset], output, console)}")


@app.command()
def mini(
    output: Annotated[Path, typer.Option(help="Output directory.", callback=directory)] = Path("runs/mini"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make the embedded model from scratch: generator, labelled solutions, PRM. Takes about two hours on two cores."""
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
    """Evaluate the embedded model, generator and PRM, on problems that it has never seen."""
    from unprm.checkpoints.files import locate

    from .mini.measure import measure

    with stage.progress(console) as progress:
        measured = measure(locate(model, None, None, None).base, model, problems, seed, progress)
    Console().print(measured.table())
    if figures:
        figures.write_text(json.dumps(asdict(measured), indent=2) + "\n", "utf-8")


def _write_table(output: Path, table: str) -> None:
    resumable.replace(output, table)
    typer.echo(table, nl=False)


if __name__ == "__main__":
    run(app)
