"""The commands that make process reward data: sample, select, annotate, merge, convert, stats, build."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unprm.commands import Given, program, with_options

from ..stage import directory
from ..stage_settings import (
    LAYOUT,
    PRESETS,
    PROBE,
    AnnotateSettings,
    LayoutName,
    ReadingSettings,
    SampleSettings,
    SelectSettings,
    WrittenLayout,
)
from .sampling import MODEL, ModelOption, PresetOption, QuestionSource, RolloutsOption, SamplerOptions, run_stage

app = program("")
console = Console(stderr=True)


@app.command()
@with_options
def sample(
    output: Annotated[Path, typer.Option(help="File for the samples.")],
    sampler: SamplerOptions,
    given: Annotated[Given, SampleSettings],
    source: QuestionSource,
    model: ModelOption = "unprm-mini",
    preset: PresetOption = "paper",
) -> None:
    """Sample candidate solutions for questions, with the log-probabilities of their tokens."""
    from ..data import sample

    settings = replace(PRESETS[preset].sample, **given)
    questions = source.draw(PRESETS[preset].questions, settings)
    loaded = sampler.load(model, settings.drawing)
    run_stage(lambda: sample.sample(questions, loaded, output, settings, sampler.concurrency, console), loaded)


@app.command()
@with_options
def select(
    samples: Annotated[Path, typer.Argument(help="File of `sample`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the selected solutions.")],
    given: Annotated[Given, SelectSettings],
    tokenizer: Annotated[str, typer.Option(help="Tokenizer of the samples: hub name or directory.")] = "unprm-mini",
    preset: PresetOption = "paper",
) -> None:
    """Select the right and the wrong solutions of each question that are worth annotating."""
    from unprm.answers.equivalence import Equivalence
    from unprm.checkpoints.files import fetch
    from unprm.samplers.prompts import Prompter

    from ..data import select

    settings = replace(PRESETS[preset].select, **given)
    decode = Prompter.load(fetch(tokenizer, None, weights=False)).decode
    selector = select.Selector(Equivalence(), decode, settings)
    select.select(samples, output, selector, console)


@app.command()
@with_options
def annotate(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the labelled solutions.")],
    sampler: SamplerOptions,
    given: Annotated[Given, AnnotateSettings],
    model: ModelOption = "unprm-mini",
    preset: PresetOption = "paper",
    rollouts: RolloutsOption = None,
) -> None:
    """Label the steps of selected solutions by rollouts from their prefixes."""
    from unprm.answers.equivalence import Equivalence

    from ..data import annotate

    settings = replace(PRESETS[preset].annotate, **given).limited(rollouts)
    loaded, equivalence = sampler.load(model, settings.drawing), Equivalence()
    at_once = sampler.concurrency
    run_stage(partial(annotate.annotate, selected, loaded, equivalence, output, settings, at_once, console), loaded)


@app.command()
def merge(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the data set.", callback=directory)],
) -> None:
    """Join annotated solutions into a data set in the published layout, with its card."""
    from ..data import merge

    console.print(f"{output}: {merge.merge(annotated, output)}")


@app.command()
def convert(
    data: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Step labels: a file, a directory, or a data set of the hub.")
    ],
    output: Annotated[Path, typer.Argument(help="Output file in the other layout, as JSON lines.")],
    to: Annotated[WrittenLayout, typer.Option(help="Layout to write.")],
    layout: Annotated[LayoutName | None, LAYOUT] = None,
) -> None:
    """Write step labels in another layout; refused if that layout can't hold them all."""
    from ..layouts import files

    if output.suffix != ".jsonl":
        raise typer.BadParameter("expected a name that ends with .jsonl", param_hint="OUTPUT")
    console.print(f"{files.convert(data, output, to, layout)} solutions in {output}")


@app.command()
def stats(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`, one row each.", exists=True)],
) -> None:
    """Print what annotation cost and what it found."""
    from ..data.stats import table

    typer.echo(table(annotated), nl=False)


@app.command()
@with_options
def build(
    output: Annotated[Path, typer.Option("--out", help="Output directory.", callback=directory)],
    source: QuestionSource,
    sampler: SamplerOptions,
    given: Annotated[Given, ReadingSettings],
    model: Annotated[list[str] | None, typer.Option(help=f"{MODEL} Instead of the preset's; repeat for more.")] = None,
    preset: PresetOption = "mini",
    k: Annotated[int | None, typer.Option("--k", min=1, help="Solutions per question.")] = None,
    rollouts: RolloutsOption = None,
    probe: Annotated[str | None, PROBE] = None,
) -> None:
    """Make a data set from questions with answers: sample, select, annotate, merge, stats."""
    from ..data import build
    from ..data.stats import table

    chosen = PRESETS[preset]
    chosen = replace(chosen, models=tuple(model or chosen.models))
    sampler.check_annotates(chosen.models)
    if probe is not None and len(chosen.models) > 1:
        raise typer.BadParameter(f"it goes with one --model, there are {len(chosen.models)}", param_hint="--probe")
    extraction = {name: value for name, value in given.items() if name == "extraction"}
    chosen = replace(
        chosen,
        sample=replace(chosen.sample, k=k or chosen.sample.k, probe=probe, **extraction),
        select=replace(chosen.select, **given),
        annotate=replace(chosen.annotate, **extraction).limited(rollouts),
    )
    questions = source.draw(chosen.questions, chosen.sample)
    run_stage(lambda: build.build(questions, sampler.load, chosen, output, sampler.concurrency, console))
    made = [output / model.replace("/", "--") / "annotated.jsonl" for model in chosen.models]
    typer.echo(table(made), nl=False)
