"""The commands that make process reward data: sample, select, annotate, merge, stats, build."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from training.cli.options import Given, with_options
from training.settings import PRESETS, AnnotateSettings, SampleSettings, SelectSettings
from training.stage import directory, tell
from unprm.types import Extraction, Split

if TYPE_CHECKING:
    from training.data.cluster import Cluster
    from training.data.questions import Question
    from unprm.samplers.load import SamplerName, SamplerSource
    from unprm.types import Sampler, SamplingSettings

Settings = TypeVar("Settings")
PresetName = Literal["paper", "authors", "mini", "recommended"]
Kind = Literal["transformers", "vllm", "openai", "chat"]

app = typer.Typer()
console = Console(stderr=True)

PresetOption = Annotated[PresetName, typer.Option("--preset", help="Where the defaults come from.")]
Questions = Annotated[
    str, typer.Option(help="JSON lines with `problem` and `answer`, a data set of the hub, or `mini`: made up.")
]
SamplerOption = Annotated[
    Kind, typer.Option("--sampler", help="Run the model here (transformers, vllm) or call servers (openai, chat).")
]
Urls = Annotated[list[str] | None, typer.Option("--url", help="URL of a server of the model; repeat for more.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Questions processed at the same time.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Number of questions drawn from the source.")]
HubSplit = Annotated[str, typer.Option(help="Split of a data set of the hub.")]
ExtractionOption = Annotated[
    Extraction | None, typer.Option("--extraction", help="Where to look for the answer in a solution.")
]
StepSplitOption = Annotated[Split | None, typer.Option("--step-split", help="How solutions are split into steps.")]


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """The model that samples solutions and rollouts, and how it is run."""

    model: Annotated[str, typer.Option(help="The sampling model: hub name, directory, or unprm-mini.")] = "unprm-mini"
    sampler: SamplerOption = "transformers"
    url: Urls = None

    def source(self) -> "SamplerSource":
        """The source that loads the sampler."""
        return _source(self.sampler, self.model, self.url)


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
        from training.data.cluster import Cluster

        return Cluster(self.ray, self.concurrency, self.ray_gpus)


@app.command()
@with_options
def sample(
    output: Annotated[Path, typer.Option(help="File for the samples.")],
    sampler: SamplerOptions,
    place: Place,
    given: Annotated[Given, SampleSettings],
    questions: Questions = "mini",
    limit: Limit = None,
    split: HubSplit = "train",
    preset: PresetOption = "paper",
) -> None:
    """Sample candidate solutions for questions, with the log-probabilities of their tokens."""
    from training.data import sample

    settings = replace(PRESETS[preset].sample, **given)
    chosen = _questions(questions, split, limit or PRESETS[preset].questions, settings)
    if cluster := place.cluster():
        from training.data.cluster import sample as sample_on

        _finish(lambda: sample_on(chosen, sampler.source(), output, settings, cluster, console))
        return
    loaded = sampler.source().load(settings.drawing)
    _run(lambda: sample.sample(chosen, loaded, output, settings, place.concurrency, console), loaded.close)


@app.command()
@with_options
def select(
    samples: Annotated[Path, typer.Argument(help="File of `sample`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the selected solutions.")],
    given: Annotated[Given, SelectSettings],
    tokenizer: Annotated[str, typer.Option(help="The samples' tokenizer: hub name or directory.")] = "unprm-mini",
    preset: PresetOption = "paper",
) -> None:
    """Select the right and the wrong solutions of each question that are worth annotating."""
    from training.data import select
    from unprm.answers.equivalence import Equivalence
    from unprm.models.checkpoint import fetch
    from unprm.samplers.prompts import Prompter

    settings = replace(PRESETS[preset].select, **given)
    _check_measure(settings.measure)
    decode = Prompter.load(fetch(tokenizer, None)).decode
    with Equivalence() as equivalence:
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
    preset: PresetOption = "paper",
) -> None:
    """Label the steps of selected solutions by rollouts from their prefixes."""
    from training.data import annotate
    from unprm.answers.equivalence import Equivalence

    settings = replace(PRESETS[preset].annotate, **given)
    _check_measure(settings.measure)
    if cluster := place.cluster():
        from training.data.cluster import annotate as annotate_on

        _finish(lambda: annotate_on(selected, sampler.source(), output, settings, cluster, console))
        return
    loaded = sampler.source().load(settings.drawing)
    with Equivalence() as equivalence:
        work = partial(annotate.annotate, selected, loaded, equivalence, output, settings, place.concurrency, console)
        _run(work, loaded.close)


@app.command()
def merge(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the data set.", callback=directory)],
    push: Annotated[str | None, typer.Option(help="Also upload it to the hub, under this name.")] = None,
) -> None:
    """Join annotated solutions into a data set in the published layout, with its card."""
    from training.data import merge

    merged = merge.merge(annotated, output)
    console.print(f"{merged.solutions} solutions in {output}, {merged.duplicates} duplicates left out")
    if push:
        merge.push(output, push)


@app.command()
def stats(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`, one row each.", exists=True)],
) -> None:
    """Print what annotation cost, what it found, and how often its labels are right where that can be checked."""
    from training.data.stats import tables

    for table in tables(annotated):
        Console().print(table)


@app.command()
def build(
    output: Annotated[Path, typer.Option("--out", help="Directory for everything that is made.", callback=directory)],
    preset: PresetOption = "mini",
    questions: Questions = "mini",
    sampler: SamplerOption = "transformers",
    url: Urls = None,
    limit: Limit = None,
    split: HubSplit = "train",
    extraction: ExtractionOption = None,
    step_split: StepSplitOption = None,
    concurrency: Concurrency = 32,
) -> None:
    """Make a data set from questions with answers: sample, select, annotate, merge, stats."""
    from training.data import build
    from training.data.stats import tables

    given = PRESETS[preset]
    chosen = replace(
        given,
        sample=_override(given.sample, extraction=extraction),
        select=_override(given.select, extraction=extraction, split=step_split),
        annotate=_override(given.annotate, extraction=extraction),
    )
    problems = _questions(questions, split, limit or chosen.questions, chosen.sample)

    def load(model: str, settings: "SamplingSettings") -> "Sampler":
        return _source(sampler, model, url).load(settings)

    _run(lambda: build.build(problems, load, chosen, output, concurrency, console))
    for table in tables([output / model.replace("/", "--") / "annotated.jsonl" for model in chosen.models]):
        Console().print(table)


@app.command()
@with_options
def study(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for a file per search and the table.", callback=directory)],
    sampler: SamplerOptions,
    preset: PresetOption = "paper",
    extraction: ExtractionOption = None,
    concurrency: Concurrency = 32,
) -> None:
    """Annotate the same solutions by every search, and compare costs and accuracy."""
    from training.data import search_findings, study
    from unprm.answers.equivalence import Equivalence

    settings = _override(PRESETS[preset].annotate, extraction=extraction)
    searches = study.variants(settings)
    loaded = sampler.source().load(settings.drawing)
    with Equivalence() as equivalence:
        work = partial(study.study, selected, loaded, equivalence, output, searches, concurrency, console)
        _run(work, loaded.close)
    table = search_findings.markdown(output)
    (output / "study.md").write_text(table, "utf-8")
    Console().print(table, markup=False)


def _override(settings: Settings, **given: Any) -> Settings:
    """The preset's settings, overridden by the values given on the command line."""
    changed: Settings = replace(settings, **{k: v for k, v in given.items() if v is not None})  # type: ignore[type-var]
    return changed


def _check_measure(name: str) -> None:
    from unprm.uncertainty import MEASURES

    if name not in MEASURES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(MEASURES)}", param_hint="--measure")


def _questions(source: str, split: str, count: int, settings: SampleSettings) -> "list[Question]":
    from training.data import questions

    if source == "mini":
        return questions.make_mini(count, settings.seed)
    return questions.load(source, split, count, settings.seed, settings.extraction)


def _source(kind: "SamplerName", model: str, urls: list[str] | None) -> "SamplerSource":
    from unprm.samplers.load import SamplerSource

    return SamplerSource(kind, model, tuple(urls or ()))


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
