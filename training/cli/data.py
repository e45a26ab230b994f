"""The commands that make process reward data: sample, select, annotate, merge, convert, stats, build,
study."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from unprm.types import Extraction, SamplerName

from ..settings import (
    EXTRACTION,
    LAYOUT,
    PRESETS,
    AnnotateSettings,
    LayoutName,
    PresetName,
    Reading,
    SampleSettings,
    SelectSettings,
    WrittenLayout,
)
from ..stage import directory, tell
from .options import Given, with_options

if TYPE_CHECKING:
    from unprm.samplers.load import SamplerSource
    from unprm.types import Sampler, SamplingSettings

    from ..data.cluster import Cluster
    from ..data.questions import Question

app = typer.Typer()
console = Console(stderr=True)

PresetOption = Annotated[PresetName, typer.Option("--preset", help="Where the defaults come from.")]
_MODEL = "The sampling model: its name at the servers; else a hub name, a directory, a base by name, or unprm-mini."
Model = Annotated[str, typer.Option("--model", help=_MODEL)]
Rollouts = Annotated[
    int | None,
    typer.Option("--n", min=1, help="Maximum rollouts per solution (search bayes) or per prefix (others)."),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Questions processed at the same time.")]


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Where questions come from, and how many are drawn."""

    questions: Annotated[
        str, typer.Option(help="JSON lines with `problem` and `answer`, a data set of the hub, or `mini` (generated).")
    ] = "mini"
    limit: Annotated[int | None, typer.Option(min=1, help="Number of questions drawn from the source.")] = None
    per: Annotated[
        str | None, typer.Option(help="Draw the limit for each value of this field, such as perturbation_type.")
    ] = None
    hub_split: Annotated[str, typer.Option("--split", help="Split of a data set of the hub.")] = "train"
    unanswerable: Annotated[
        bool, typer.Option("--unanswerable", help="Also draw questions whose answer is `None`.")
    ] = False

    def draw(self, count: int, settings: SampleSettings) -> "list[Question]":
        """As many questions as the limit, or `count` without one; prints how many have no answer."""
        from ..data import questions

        if self.per and (self.limit is None or self.questions == "mini"):
            raise typer.BadParameter("it takes a --limit, and --questions that are not made up", param_hint="--per")
        if self.questions == "mini":
            return questions.make_mini(self.limit or count, settings.seed)
        drawn, left_out = questions.load(
            self.questions,
            self.hub_split,
            self.limit or count,
            settings.seed,
            settings.extraction,
            per=self.per,
            unanswerable=self.unanswerable,
        )
        if left_out:
            console.print(f"{left_out} questions whose answer is None were left out before drawing")
        return drawn


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How the model that samples solutions and rollouts is run."""

    sampler: Annotated[
        SamplerName,
        typer.Option(help="Run the model here (transformers, vllm) or call servers (openai, chat)."),
    ] = "transformers"
    url: Annotated[list[str] | None, typer.Option(help="URL of a server that runs the model; repeat for more.")] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The model's tokenizer for --sampler openai: hub name, directory, base by name or GGUF file. Default: "
            "that of --model."
        ),
    ] = None

    def check_annotates(self, models: Sequence[str]) -> None:
        """Raises `BadParameter` unless a sampler of these can write solutions and continue them."""
        if self.sampler == "chat":
            reason = "it can't continue the prefixes of solutions: openai does, before vLLM or llama.cpp"
            raise typer.BadParameter(reason, param_hint="--sampler")
        if self.sampler == "openai" and "unprm-mini" in models and self.tokenizer is None:
            reason = "unprm-mini runs here: name the model of the servers, and its --tokenizer"
            raise typer.BadParameter(reason, param_hint="--model")
        if self.tokenizer is not None and len(models) > 1:
            raise typer.BadParameter(f"it goes with one --model, there are {len(models)}", param_hint="--tokenizer")

    def source(self, model: str) -> "SamplerSource":
        """The source that loads the sampler of a model."""
        from unprm.samplers.load import SamplerSource

        return SamplerSource(self.sampler, model, tuple(self.url or ()), self.tokenizer)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage runs, and how many questions it processes at a time."""

    concurrency: Concurrency = 32
    ray: Annotated[int, typer.Option("--ray", min=0, help="Run on a Ray cluster with this many actors.")] = 0
    ray_gpus: Annotated[float, typer.Option(min=0.0, help="GPUs of each actor.")] = 0.0

    def cluster(self) -> "Cluster | None":
        """The Ray cluster to run on, if any."""
        if not self.ray:
            return None
        from ..data.cluster import Cluster

        return Cluster(self.ray, self.concurrency, self.ray_gpus)


@app.command()
@with_options
def sample(
    output: Annotated[Path, typer.Option(help="File for the samples.")],
    sampler: SamplerOptions,
    place: Place,
    given: Annotated[Given, SampleSettings],
    source: QuestionSource,
    model: Model = "unprm-mini",
    preset: PresetOption = "paper",
) -> None:
    """Sample candidate solutions for questions, with the log-probabilities of their tokens."""
    from ..data import sample

    settings = replace(PRESETS[preset].sample, **given)
    questions = source.draw(PRESETS[preset].questions, settings)
    if cluster := place.cluster():
        from ..data.cluster import sample as sample_on

        _finish(lambda: sample_on(questions, sampler.source(model), output, settings, cluster, console))
        return
    loaded = sampler.source(model).load(settings.drawing)
    _run(lambda: sample.sample(questions, loaded, output, settings, place.concurrency, console), loaded.close)


@app.command()
@with_options
def select(
    samples: Annotated[Path, typer.Argument(help="File of `sample`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the selected solutions.")],
    given: Annotated[Given, SelectSettings],
    tokenizer: Annotated[
        str, typer.Option(help="Tokenizer of the samples: hub name, directory, base by name or GGUF file.")
    ] = "unprm-mini",
    preset: PresetOption = "paper",
) -> None:
    """Select the right and the wrong solutions of each question that are worth annotating."""
    from unprm.answers.equivalence import Equivalence
    from unprm.checkpoints.files import fetch_tokenizer
    from unprm.samplers.prompts import Prompter

    from ..data import select

    settings = replace(PRESETS[preset].select, **given)
    decode = Prompter.load(fetch_tokenizer(tokenizer)).decode
    equivalence = Equivalence()
    selector = select.Selector(equivalence, decode, settings)
    right, wrong = select.select(samples, output, selector, console)
    console.print(f"{right} right and {wrong} wrong solutions")
    for reason, count in selector.dropped.most_common():
        console.print(f"left out, {reason}: {count}")


@app.command()
@with_options
def annotate(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the labelled solutions.")],
    sampler: SamplerOptions,
    place: Place,
    given: Annotated[Given, AnnotateSettings],
    model: Model = "unprm-mini",
    preset: PresetOption = "paper",
    rollouts: Rollouts = None,
) -> None:
    """Label the steps of selected solutions by rollouts from their prefixes."""
    from unprm.answers.equivalence import Equivalence

    from ..data import annotate

    settings = replace(PRESETS[preset].annotate, **given).limited(rollouts)
    if cluster := place.cluster():
        from ..data.cluster import annotate as annotate_on

        _finish(lambda: annotate_on(selected, sampler.source(model), output, settings, cluster, console))
        return
    loaded = sampler.source(model).load(settings.drawing)
    equivalence = Equivalence()
    work = partial(annotate.annotate, selected, loaded, equivalence, output, settings, place.concurrency, console)
    _run(work, loaded.close)


@app.command()
def merge(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the data set.", callback=directory)],
    push: Annotated[str | None, typer.Option(help="Also upload it to the hub, under this name.")] = None,
) -> None:
    """Join annotated solutions into a data set in the published layout, with its card."""
    from ..data import merge

    merged = merge.merge(annotated, output)
    console.print(f"{merged.solutions} solutions in {output}, {merged.duplicates} duplicates left out")
    if push:
        merge.push(output, push)


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
    """Print the cost of annotation, what it found, and, where it can be checked, how often its labels are right."""
    from ..data.stats import tables

    for table in tables(annotated):
        Console().print(table)


@app.command()
@with_options
def build(
    output: Annotated[Path, typer.Option("--out", help="Output directory.", callback=directory)],
    source: QuestionSource,
    sampler: SamplerOptions,
    given: Annotated[Given, Reading],
    model: Annotated[list[str] | None, typer.Option(help=f"{_MODEL} Instead of the preset's; repeat for more.")] = None,
    preset: PresetOption = "mini",
    k: Annotated[int | None, typer.Option("--k", min=1, help="Solutions per question.")] = None,
    rollouts: Rollouts = None,
    concurrency: Concurrency = 32,
) -> None:
    """Make a data set from questions with answers: sample, select, annotate, merge, stats."""
    from ..data import build
    from ..data.stats import tables

    chosen = PRESETS[preset]
    chosen = replace(chosen, models=tuple(model or chosen.models))
    sampler.check_annotates(chosen.models)
    extraction = {name: value for name, value in given.items() if name == "extraction"}
    chosen = replace(
        chosen,
        sample=replace(chosen.sample, k=k or chosen.sample.k, **extraction),
        select=replace(chosen.select, **given),
        annotate=replace(chosen.annotate, **extraction).limited(rollouts),
    )
    questions = source.draw(chosen.questions, chosen.sample)

    def load(model: str, settings: "SamplingSettings") -> "Sampler":
        return sampler.source(model).load(settings)

    _run(lambda: build.build(questions, load, chosen, output, concurrency, console))
    for table in tables([output / model.replace("/", "--") / "annotated.jsonl" for model in chosen.models]):
        Console().print(table)


@app.command()
@with_options
def study(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for a file per search and the table.", callback=directory)],
    sampler: SamplerOptions,
    model: Model = "unprm-mini",
    preset: PresetOption = "paper",
    extraction: Annotated[Extraction | None, EXTRACTION] = None,
    concurrency: Concurrency = 32,
) -> None:
    """Annotate the same solutions by every search, and compare costs and accuracy."""
    from unprm.answers.equivalence import Equivalence

    from ..data import search_findings, study

    settings = PRESETS[preset].annotate
    settings = replace(settings, extraction=extraction or settings.extraction)
    searches = study.variants(settings)
    loaded = sampler.source(model).load(settings.drawing)
    equivalence = Equivalence()
    work = partial(study.study, selected, loaded, equivalence, output, searches, concurrency, console)
    _run(work, loaded.close)
    table = search_findings.markdown(output)
    (output / "study.md").write_text(table, "utf-8")
    Console().print(table, markup=False)


def _run(
    work: Callable[[], Coroutine[Any, Any, dict[str, str]]], close: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Runs an asynchronous stage, then closes its resources."""

    async def whole() -> dict[str, str]:
        try:
            return await work()
        finally:
            if close:
                await close()

    _finish(lambda: asyncio.run(whole()))


def _finish(work: Callable[[], dict[str, str]]) -> None:
    """Runs a stage and prints its failures; exits with status 1 if there are any."""
    try:
        failures = work()
    except OSError as error:
        message = f"{escape(str(error))}; what was written stays, the same command goes on"
        console.print(f"[red]stopped:[/red] {message}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    if tell(console, failures):
        raise typer.Exit(1)
