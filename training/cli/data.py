"""The commands that make process reward data: sample, select, annotate, merge, convert, stats, build."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from typer import Argument, BadParameter, Exit, Option, echo

from unprm.commands import Given, program, with_options
from unprm.types import SamplerName

from ..stage import directory
from ..stage_settings import (
    ANNOTATE,
    BUILD,
    LAYOUT,
    PRESETS,
    SAMPLE,
    SELECT,
    AdaptiveSettings,
    AnnotateSettings,
    BuildSettings,
    LayoutName,
    PresetName,
    SampleSettings,
    SelectSettings,
    WrittenLayout,
)

if TYPE_CHECKING:
    from unprm.types import Sampler, SamplingSettings

    from ..data.sample import Question


console = Console(stderr=True)

PresetOption = Annotated[PresetName, Option("--preset", help="Where the defaults come from.")]
MODEL = "The sampling model: its name at the servers; else a hub name, a directory, or unprm-mini."
ModelOption = Annotated[str, Option("--model", help=MODEL)]
RolloutsOption = Annotated[
    int | None,
    Option(
        "--n",
        min=1,
        help="Maximum rollouts: of a solution with the search bayes, else of each prefix. "
        f"[default: {AdaptiveSettings().most}]",
    ),
]


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Where questions come from, and how many are drawn."""

    questions: Annotated[
        str, Option(help="JSON lines with `problem` and `answer`, a data set of the hub, or `mini` (generated).")
    ] = "mini"
    limit: Annotated[int | None, Option(min=1, help="Number of questions drawn from the source.")] = None
    per: Annotated[
        str | None, Option(help="Draw the limit for each value of this field, such as perturbation_type.")
    ] = None
    hub_split: Annotated[str, Option("--split", help="Split of a data set of the hub.")] = "train"
    unanswerable: Annotated[bool, Option("--unanswerable", help="Also draw questions whose answer is `None`.")] = False

    def draw(self, count: int, settings: SampleSettings) -> "list[Question]":
        """As many questions as the limit, or `count` without one; prints how many have no answer."""
        from ..data.sample import load_questions, make_mini

        if self.per and (self.limit is None or self.questions == "mini"):
            raise BadParameter("it takes a --limit, and --questions that are not made up", param_hint="--per")
        if self.questions == "mini":
            return make_mini(self.limit or count, settings.seed)
        drawn, left_out = load_questions(
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
    """How the model that samples solutions and rollouts is run: in this process, or by servers."""

    sampler: Annotated[
        SamplerName,
        Option(help="Run the model here (transformers, vllm) or call servers (openai, chat)."),
    ] = "transformers"
    url: Annotated[list[str] | None, Option(help="URL of a server that runs the model; repeat for more.")] = None
    tokenizer: Annotated[
        str | None,
        Option(help="The model's tokenizer for --sampler openai: hub name or directory. Default: that of --model."),
    ] = None
    concurrency: Annotated[int, Option(min=1, help="Questions processed at the same time.")] = 32

    def check_annotates(self, models: Sequence[str], probe: str | None = None) -> None:
        """Raises `BadParameter` unless a sampler of these, with the probe, can write solutions and continue them."""
        if self.sampler == "chat":
            reason = "it can't continue the prefixes of solutions: openai does, before vLLM or llama.cpp"
            raise BadParameter(reason, param_hint="--sampler")
        if self.sampler == "openai" and "unprm-mini" in models and self.tokenizer is None:
            reason = "unprm-mini runs here: name the model of the servers, and its --tokenizer"
            raise BadParameter(reason, param_hint="--model")
        for name, value in (("--tokenizer", self.tokenizer), ("--probe", probe)):
            if value is not None and len(models) > 1:
                raise BadParameter(f"it goes with one --model, there are {len(models)}", param_hint=name)

    def load(self, model: str, settings: "SamplingSettings") -> "Sampler":
        from unprm.samplers.load import load_sampler

        return load_sampler(self.sampler, model, settings, self.url or (), self.tokenizer)


def run_stage(work: Callable[[], Awaitable[dict[str, str]]], sampler: "Sampler | None" = None) -> None:
    """Runs an asynchronous stage, closes its sampler, and prints the failures that it returns, grouped by reason; exits
    with status 1 if there are any."""

    async def whole() -> dict[str, str]:
        try:
            return await work()
        finally:
            if sampler:
                await sampler.close()

    failures = asyncio.run(whole())
    for reason, count in Counter(failures.values()).most_common():
        console.print(f"[red]failed {count} times:[/red] {escape(reason)}", highlight=False, soft_wrap=True)
    if failures:
        console.print(f"{len(failures)} failed; the same command tries them again and leaves the rest as it is")
        raise Exit(1)


app = program("")
console = Console(stderr=True)


@app.command()
@with_options
def sample(
    output: Annotated[Path, Option(help="File for the samples.")],
    sampler: SamplerOptions,
    given: Annotated[Given, SampleSettings, SAMPLE],
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
    samples: Annotated[Path, Argument(help="File of `sample`.", exists=True)],
    output: Annotated[Path, Option(help="File for the selected solutions.")],
    given: Annotated[Given, SelectSettings, SELECT],
    tokenizer: Annotated[str, Option(help="Tokenizer of the samples: hub name or directory.")] = "unprm-mini",
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
    selected: Annotated[Path, Argument(help="File of `select`.", exists=True)],
    output: Annotated[Path, Option(help="File for the labelled solutions.")],
    sampler: SamplerOptions,
    given: Annotated[Given, AnnotateSettings, ANNOTATE],
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
    annotated: Annotated[list[Path], Argument(help="Files of `annotate`.", exists=True)],
    output: Annotated[Path, Option(help="Directory for the data set.", callback=directory)],
) -> None:
    """Join annotated solutions into a data set in the published layout, with its card."""
    from ..data import merge

    console.print(f"{output}: {merge.merge(annotated, output)}")


@app.command()
def convert(
    data: Annotated[
        Path, Argument(metavar="INPUT", help="Step labels: a file, a directory, or a data set of the hub.")
    ],
    output: Annotated[Path, Argument(help="Output file in the other layout, as JSON lines.")],
    to: Annotated[WrittenLayout, Option(help="Layout to write.")],
    layout: Annotated[LayoutName | None, LAYOUT] = None,
) -> None:
    """Write step labels in another layout; refused if that layout can't hold them all."""
    from ..layouts import files

    if output.suffix != ".jsonl":
        raise BadParameter("expected a name that ends with .jsonl", param_hint="OUTPUT")
    console.print(f"{files.convert(data, output, to, layout)} solutions in {output}")


@app.command()
def stats(
    annotated: Annotated[list[Path], Argument(help="Files of `annotate`, one row each.", exists=True)],
) -> None:
    """Print what annotation cost and what it found."""
    from ..data.stats import table

    echo(table(annotated), nl=False)


@app.command()
@with_options
def build(
    output: Annotated[Path, Option("--out", help="Output directory.", callback=directory)],
    source: QuestionSource,
    sampler: SamplerOptions,
    given: Annotated[Given, BuildSettings, BUILD],
    model: Annotated[list[str] | None, Option(help=f"{MODEL} Instead of the preset's; repeat for more.")] = None,
    preset: PresetOption = "mini",
    rollouts: RolloutsOption = None,
) -> None:
    """Make a data set from questions with answers: sample, select, annotate, merge, stats."""
    from ..data import build
    from ..data.stats import table

    chosen = PRESETS[preset].changed(model, rollouts, given)
    sampler.check_annotates(chosen.models, chosen.sample.probe)
    questions = source.draw(chosen.questions, chosen.sample)
    run_stage(lambda: build.build(questions, sampler.load, chosen, output, sampler.concurrency, console))
    made = [output / model.replace("/", "--") / "annotated.jsonl" for model in chosen.models]
    echo(table(made), nl=False)
