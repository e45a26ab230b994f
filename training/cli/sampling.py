"""Options of the commands that sample: where questions come from, and how the model that writes solutions is run."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from unprm.types import SamplerName

from ..stage_settings import PresetName, SampleSettings

if TYPE_CHECKING:
    from unprm.types import Sampler, SamplingSettings

    from ..data.questions import Question

console = Console(stderr=True)

PresetOption = Annotated[PresetName, typer.Option("--preset", help="Where the defaults come from.")]
MODEL = "The sampling model: its name at the servers; else a hub name, a directory, a base by name, or unprm-mini."
ModelOption = Annotated[str, typer.Option("--model", help=MODEL)]
RolloutsOption = Annotated[
    int | None,
    typer.Option("--n", min=1, help="Maximum rollouts: of a solution with the search bayes, else of each prefix."),
]


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
        drawn, left_out = questions.load_questions(
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
        typer.Option(help="Run the model here (transformers, vllm) or call servers (openai, chat)."),
    ] = "transformers"
    url: Annotated[list[str] | None, typer.Option(help="URL of a server that runs the model; repeat for more.")] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The model's tokenizer for --sampler openai: hub name or directory. Default: that of --model."
        ),
    ] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Questions processed at the same time.")] = 32

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
        raise typer.Exit(1)
