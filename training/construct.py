"""The commands that make process reward data: sample, select, annotate, merge, stats, build."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from training.settings import PRESETS, EstimatorName, SampleSettings, SearchName, SelectionName
from training.stage import directory, tell
from unprm.types import Extraction, Split

if TYPE_CHECKING:
    from training.questions import Question
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
Model = Annotated[str, typer.Option(help="The sampling model: hub name, directory, or unprm-mini.")]
SamplerOption = Annotated[
    Kind, typer.Option("--sampler", help="Run the model here (transformers, vllm) or ask servers (openai, chat).")
]
Urls = Annotated[list[str] | None, typer.Option("--url", help="Server of the model; repeat for more.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Questions in flight at the same time.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")]
Measure = Annotated[str | None, typer.Option(help="Measure of uncertainty, by name.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Questions drawn from the source.")]
RayActors = Annotated[int, typer.Option("--ray", min=0, help="Run on a Ray cluster, with so many actors.")]
RayGpus = Annotated[float, typer.Option(min=0.0, help="GPUs of each actor.")]
HubSplit = Annotated[str, typer.Option(help="Split of a data set of the hub.")]
ExtractionOption = Annotated[
    Extraction | None, typer.Option("--extraction", help="Where answers are looked for in solutions.")
]
StepSplitOption = Annotated[Split | None, typer.Option("--step-split", help="Where solutions are cut into steps.")]


@app.command()
def sample(
    output: Annotated[Path, typer.Option(help="File for the samples.")],
    questions: Questions = "mini",
    model: Model = "unprm-mini",
    sampler: SamplerOption = "transformers",
    url: Urls = None,
    preset: PresetOption = "paper",
    k: Annotated[int | None, typer.Option(min=1, help="Solutions per question.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a solution at the most.")] = None,
    limit: Limit = None,
    split: HubSplit = "train",
    extraction: ExtractionOption = None,
    concurrency: Concurrency = 32,
    seed: Seed = None,
    ray: RayActors = 0,
    ray_gpus: RayGpus = 0.0,
) -> None:
    """Sample candidate solutions for questions, with the log-probabilities of their tokens."""
    from training import sample as stage

    settings = _override(
        PRESETS[preset].sample,
        k=k,
        temperature=temperature,
        max_tokens=max_tokens,
        extraction=extraction,
        seed=seed,
    )
    chosen = _questions(questions, split, limit or PRESETS[preset].questions, settings)
    source = _source(sampler, model, url)
    if ray:
        from training import cluster

        where = cluster.Cluster(ray, concurrency, ray_gpus)
        _finish(lambda: cluster.sample(chosen, source, output, settings, where, console))
        return
    made = source.load(settings.drawing)
    _run(lambda: stage.sample(chosen, made, output, settings, concurrency, console), made.close)


@app.command()
def select(
    samples: Annotated[Path, typer.Argument(help="File of `sample`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the selected solutions.")],
    tokenizer: Annotated[str, typer.Option(help="Whose tokens the samples are: hub name or directory.")] = "unprm-mini",
    preset: PresetOption = "paper",
    selection: Annotated[SelectionName | None, typer.Option(help="Which solutions are preferred.")] = None,
    measure: Measure = None,
    embedding: Annotated[
        str | None, typer.Option(help="Sentence-embedding model for `similarity`; TF-IDF without.")
    ] = None,
    m: Annotated[int | None, typer.Option("--m", min=0, help="Right solutions per question.")] = None,
    n: Annotated[int | None, typer.Option("--n", min=0, help="Wrong solutions per question.")] = None,
    extraction: ExtractionOption = None,
    step_split: StepSplitOption = None,
    seed: Seed = None,
) -> None:
    """Select the right and the wrong solutions of each question that are worth annotating."""
    from training import select as stage
    from unprm.engines.checkpoint import fetch
    from unprm.equivalence import Equivalence
    from unprm.samplers.prompts import Prompter

    settings = _override(
        PRESETS[preset].select,
        selection=selection,
        measure=measure,
        embedding=embedding,
        m=m,
        n=n,
        extraction=extraction,
        split=step_split,
        seed=seed,
    )
    _check_measure(settings.measure)
    decode = Prompter.load(fetch(tokenizer, None)).decode
    with Equivalence() as equivalence:
        selector = stage.Selector(equivalence, decode, settings)
        right, wrong = stage.select(samples, output, selector, console)
    console.print(f"{right} right and {wrong} wrong solutions")
    for reason, count in selector.dropped.most_common():
        console.print(f"left out, {reason}: {count}")


@app.command()
def annotate(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="File for the labelled solutions.")],
    model: Model = "unprm-mini",
    sampler: SamplerOption = "transformers",
    url: Urls = None,
    preset: PresetOption = "paper",
    search: Annotated[SearchName | None, typer.Option(help="How the wrong step is found.")] = None,
    measure: Measure = None,
    estimator: Annotated[EstimatorName | None, typer.Option(help="Value of a prefix from its rollouts.")] = None,
    early_stop: Annotated[
        float | None, typer.Option(min=0.5, max=1.0, help="End rollouts once the verdict is this likely to stay.")
    ] = None,
    share_prefixes: Annotated[
        bool, typer.Option("--share-prefixes", help="Solutions with a common prefix share its rollouts.")
    ] = False,
    extraction: ExtractionOption = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a rollout at the most.")] = None,
    concurrency: Concurrency = 32,
    seed: Seed = None,
    ray: RayActors = 0,
    ray_gpus: RayGpus = 0.0,
) -> None:
    """Label the steps of selected solutions by rollouts from their prefixes."""
    from training import annotate as stage
    from unprm.equivalence import Equivalence

    settings = _override(
        PRESETS[preset].annotate,
        search=search,
        measure=measure,
        estimator=estimator,
        early_stop=early_stop,
        share_prefixes=share_prefixes or None,
        extraction=extraction,
        max_tokens=max_tokens,
        seed=seed,
    )
    _check_measure(settings.measure)
    source = _source(sampler, model, url)
    if ray:
        from training import cluster

        where = cluster.Cluster(ray, concurrency, ray_gpus)
        _finish(lambda: cluster.annotate(selected, source, output, settings, where, console))
        return
    made = source.load(settings.drawing)
    with Equivalence() as equivalence:
        _run(lambda: stage.annotate(selected, made, equivalence, output, settings, concurrency, console), made.close)


@app.command()
def merge(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the data set.", callback=directory)],
    push: Annotated[str | None, typer.Option(help="Also upload it to the hub, under this name.")] = None,
) -> None:
    """Join annotated solutions into a data set in the published layout, with its card."""
    from training import merge as stage

    merged = stage.merge(annotated, output)
    console.print(f"{merged.solutions} solutions in {output}, {merged.duplicates} duplicates left out")
    if push:
        stage.push(output, push)


@app.command()
def stats(
    annotated: Annotated[list[Path], typer.Argument(help="Files of `annotate`, one row each.", exists=True)],
) -> None:
    """Print what annotation cost, what it found, and how true it is where that can be checked."""
    from training.stats import tables

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
    from training import build as stage
    from training.stats import tables

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

    _run(lambda: stage.build(problems, load, chosen, output, concurrency, console))
    for table in tables([output / model.replace("/", "--") / "annotated.jsonl" for model in chosen.models]):
        Console().print(table)


@app.command()
def study(
    selected: Annotated[Path, typer.Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for a file per search and the table.", callback=directory)],
    model: Model = "unprm-mini",
    sampler: SamplerOption = "transformers",
    url: Urls = None,
    preset: PresetOption = "paper",
    extraction: ExtractionOption = None,
    concurrency: Concurrency = 32,
) -> None:
    """Annotate the same solutions by every search, and compare cost and truth."""
    from training import search_findings
    from training import study as stage
    from unprm.equivalence import Equivalence

    settings = _override(PRESETS[preset].annotate, extraction=extraction)
    searches = stage.variants(settings)
    made = _source(sampler, model, url).load(settings.drawing)
    with Equivalence() as equivalence:
        _run(lambda: stage.study(selected, made, equivalence, output, searches, concurrency, console), made.close)
    table = search_findings.markdown(output)
    (output / "study.md").write_text(table, "utf-8")
    Console().print(table, markup=False)


def _override(settings: Settings, **given: Any) -> Settings:
    """The settings with what was given on the command line in place of the preset's."""
    changed: Settings = replace(settings, **{k: v for k, v in given.items() if v is not None})  # type: ignore[type-var]
    return changed


def _check_measure(name: str) -> None:
    from unprm.uncertainty import MEASURES

    if name not in MEASURES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(MEASURES)}", param_hint="--measure")


def _questions(source: str, split: str, count: int, settings: SampleSettings) -> "list[Question]":
    from training import questions

    if source == "mini":
        return questions.make_mini(count, settings.seed)
    return questions.load(source, split, count, settings.seed, settings.extraction)


def _source(kind: "SamplerName", model: str, urls: list[str] | None) -> "SamplerSource":
    from unprm.samplers.load import SamplerSource

    return SamplerSource(kind, model, tuple(urls or ()))


def _run(
    work: Callable[[], Coroutine[Any, Any, dict[str, str]]], close: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Runs an asynchronous stage to its end, then closes what it used."""

    async def whole() -> dict[str, str]:
        try:
            return await work()
        finally:
            if close:
                await close()

    _finish(lambda: asyncio.run(whole()))


def _finish(work: Callable[[], dict[str, str]]) -> None:
    """Prints what failed; exits with status 1 if anything did."""
    try:
        failures = work()
    except OSError as error:
        message = f"{escape(str(error))}; what was written stays, the same command goes on"
        console.print(f"[red]stopped:[/red] {message}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    if tell(console, failures):
        raise typer.Exit(1)
