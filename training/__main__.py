"""Command line of the pipeline: `python -m training --help`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from training import construct, evaluation
from unprm.errors import UnprmError

app = typer.Typer(
    help="Makes a process reward model and measures what it is worth.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(construct.app)
app.add_typer(evaluation.app, name="evaluate")
console = Console(stderr=True)


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console)


@app.command()
def train(
    base: Annotated[str, typer.Option(help="Base model: hub name or directory.")],
    data: Annotated[list[Path], typer.Option(help="Step-labelled JSON lines; repeat for more.", exists=True)],
    output: Annotated[Path, typer.Option(help="Directory for the adapter, its configuration and its card.")],
    base_revision: Annotated[str | None, typer.Option(help="Revision of the base on the hub.")] = None,
    problem_template: Annotated[
        str, typer.Option(help="How the model reads a problem; {problem} stands for it.")
    ] = "{problem}\n",
    name: Annotated[str, typer.Option(help="Name of the model; the output directory's by default.")] = "",
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    learning_rate: Annotated[float, typer.Option(min=0.0)] = 5e-4,
    warmup: Annotated[float, typer.Option(min=0.0, max=1.0, help="Fraction of the steps that warm up.")] = 0.1,
    batch_size: Annotated[int, typer.Option(min=1, help="Solutions per optimiser step.")] = 256,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per forward pass, padding included.")] = 16384,
    lora_rank: Annotated[int, typer.Option(min=1)] = 8,
    lora_alpha: Annotated[int, typer.Option(min=1)] = 32,
    lora_dropout: Annotated[float, typer.Option(min=0.0, max=0.99)] = 0.1,
    lora_targets: Annotated[str, typer.Option(help="Layers that get an adapter, by commas.")] = "q_proj,v_proj",
    bf16: Annotated[bool, typer.Option(help="Compute in bfloat16 where that is safe.")] = False,
    compile: Annotated[bool, typer.Option(help="Compile the model first; pays for long runs.")] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Optimiser steps between checkpoints.")] = 50,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Train a PRM from step-labelled solutions: a LoRA adapter that `python -m server --model OUTPUT` serves.

    Killed runs go on from their last checkpoint when the same command is given again.
    """
    from training.settings import TrainSettings
    from training.train import Trainer

    settings = TrainSettings(
        base=base,
        data=tuple(data),
        output=output,
        name=name,
        base_revision=base_revision,
        problem_template=problem_template,
        epochs=epochs,
        learning_rate=learning_rate,
        warmup=warmup,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
        lora_targets=tuple(lora_targets.split(",")),
        bf16=bf16,
        compile=compile,
        checkpoint_every=checkpoint_every,
        seed=seed,
    )
    with _progress() as progress:
        report = Trainer(settings).run(progress)
    console.print(f"{report.steps} steps on {report.examples} solutions, loss {report.loss:.4f}; wrote {output}")


@app.command()
def mini(
    output: Annotated[Path, typer.Option(help="Directory for everything that is made.")] = Path("runs/mini"),
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Make the embedded model anew: reasoner, labelled solutions, PRM. Takes about two hours on two cores."""
    from training.mini.pipeline import MiniSettings, make

    with _progress() as progress:
        adapter = make(output, MiniSettings(seed=seed), progress)
    console.print(f"serve it with: python -m server --model {adapter}")


@app.command()
def measure_mini(
    model: Annotated[str, typer.Option(help="The embedded model, or an adapter that `mini` made.")] = "unprm-mini",
    problems: Annotated[int, typer.Option(min=2, help="New problems, 16 solutions each.")] = 300,
    seed: Annotated[str, typer.Option(help="Which problems.")] = "held out",
    figures: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
) -> None:
    """Measure the embedded model, reasoner and PRM, on problems that it has never seen."""
    from training.mini.measure import measure
    from unprm.engines.load import locate

    with _progress() as progress:
        measured = measure(locate(model, None, None, None).base, model, problems, seed, progress)
    Console().print(measured.table())
    if figures:
        figures.write_text(json.dumps(measured.as_dict(), indent=2) + "\n", "utf-8")


def main() -> None:
    """Runs the command line; an error of ours is one red sentence and exit code 1."""
    try:
        app()
    except UnprmError as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
