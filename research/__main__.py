"""Command line of the studies: `python -m research --help`."""

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
from training.cli.data import ModelOption, PresetOption, SamplerOptions, run_stage
from training.stage import directory
from training.stage_settings import EXTRACTION, PRESETS
from unprm.commands import group, run, with_options
from unprm.types import Extraction

app = group("Measurements for the studies of docs/lab, and the making of the embedded model.")
console = Console(stderr=True)

Output = Annotated[Path, typer.Option(help="Directory for what is measured.", callback=directory)]


@app.command()
def base(name: Literal["qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"]) -> None:
    """Print the directory of a base of the studies, which is fetched and converted once."""
    from .bases import BASES

    typer.echo(BASES[name].directory())


@app.command()
def votes(
    runs: Annotated[list[Path], typer.Argument(help="Directories that `evaluate best-of-n` wrote.", file_okay=False)],
    output: Annotated[Path, typer.Option(help="File for the table, in Markdown.")],
    candidates: Annotated[
        int | None, typer.Option(min=1, help="Candidates of each vote, drawn as by best-of-n. Default: all.")
    ] = None,
) -> None:
    """Compare all votes on several pools: settings are chosen on one half of the questions and judged on the other."""
    from training.evaluate import judging

    from . import crossfit

    table = crossfit.markdown({run.name: crossfit.measure(judging.read_judged(run), candidates) for run in runs})
    resumable.replace(output, table)
    typer.echo(table, nl=False)


@app.command()
def coverage(
    pools: Annotated[
        list[Path], typer.Argument(help="Directories of `evaluate best-of-n`, or files of candidates without rewards.")
    ],
    output: Output,
    candidates: Annotated[int | None, typer.Option(min=1, help="Candidates of each question. Default: all.")] = None,
) -> None:
    """Judge which elected answers are accepted at a risk, on halves of pools that had no part in the calibration."""
    from . import coverage

    loaded = {coverage.name_of(path): coverage.judged_pool(path, output, console, candidates) for path in pools}
    typer.echo(coverage.write(loaded, output), nl=False)


@app.command()
def recorded(
    scores: Annotated[list[Path], typer.Argument(help="Recorded step scores of PRMs on ProcessBench.", exists=True)],
) -> None:
    """Report how well published PRMs find first errors, from their recorded scores."""
    from . import recorded_scores

    typer.echo(recorded_scores.table(recorded_scores.measure(recorded_scores.read(scores))), nl=False)


@app.command()
def steps(
    output: Output,
    data: Annotated[str, typer.Option(help="ProcessBench: a file, a directory or its name on the hub.")],
    model: Annotated[list[str] | None, typer.Option(help="A PRM; repeat for more.")] = None,
    server: Annotated[list[str] | None, typer.Option(help="URL of a server with a PRM or judge; repeat.")] = None,
    recorded: Annotated[
        list[Path] | None,
        typer.Option(help="Recorded scores of published PRMs; only solutions with scores are used.", exists=True),
    ] = None,
) -> None:
    """Evaluate step scores on first errors: F1 and AUROC beside length, position and published PRMs."""
    from training.evaluate.scorers import EngineScorer, ServerScorer
    from unprm.models.load import load_engine

    from . import steps

    sets, published = steps.load_sets(data, recorded or [])
    scores = steps.baselines(sets)
    for name in model or []:
        with closing(load_engine(name)) as engine:
            prm = EngineScorer(engine)
            scores[prm.identity.model] = steps.score(sets, prm, output / Path(name).name, console)
    for url in server or []:
        with closing(ServerScorer(url, os.environ.get("UNPRM_API_KEY"))) as served:
            name = served.identity.model
            scores[name] = steps.score(sets, served, output / Path(name).name, console)
    typer.echo(steps.write(sets, scores | published, output), nl=False)


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
    output: Output,
) -> None:
    """Report how well a frozen base's states show first errors, by layer and beside what needs no training."""
    from training.prm.probe import ProbeTrainer
    from training.prm.train_settings import TrainSettings

    from . import probes

    settings = TrainSettings(
        base=base, data=tuple(data), validation=tuple(validation), output=probe, tune="none", head="probe"
    )
    typer.echo(probes.write(ProbeTrainer(settings), output, console), nl=False)


@app.command()
@with_options
def study(
    selected: Annotated[Path, typer.Argument(help="File of `unprm select`.", exists=True)],
    output: Output,
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
    resumable.replace(output / "study.md", findings.markdown(output))
    typer.echo((output / "study.md").read_text("utf-8"), nl=False)


@app.command()
def searches(
    study: Annotated[Path, typer.Argument(help="Directory that `research study` wrote.", file_okay=False, exists=True)],
    labels: Annotated[Path, typer.Option(help="JSON lines: `problem`, `steps`, `first_error` (from 0).", exists=True)],
) -> None:
    """Report what each search costs and finds, where people labelled the first errors."""
    from .searches import findings, truth

    typer.echo(findings.markdown(study, truth.by_people(labels)), nl=False)


@app.command()
def ideal(
    labels: Annotated[
        Path, typer.Argument(help="JSON lines: `problem`, `steps`, `first_error`, `logprobs`, `ends`.", exists=True)
    ],
) -> None:
    """Report what each search would find with perfect rollouts, and whether uncertainty rises at first errors."""
    from .searches.ideal import markdown

    typer.echo(markdown(labels), nl=False)


@app.command()
def mini(output: Output = Path("runs/mini"), seed: Annotated[int, typer.Option()] = 0) -> None:
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


if __name__ == "__main__":
    run(app)
