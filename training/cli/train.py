"""The commands that train, publish and calibrate a PRM: train, merge-adapter, push, calibrate."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from typer import Argument, BadParameter, Option

from unprm.commands import Given, option, with_options

from .. import stage
from ..prm.train_settings import PROBE_OPTIONS, TRAIN_PRESETS, TUNE_DEFAULTS, ProbeSummary, TrainSettings
from .evaluate import FittedOptions

if TYPE_CHECKING:
    from ..prm.probe import ProbeTrainer
    from ..prm.train import Trainer

console = Console(stderr=True)


@with_options
def train(
    given: Annotated[Given, TrainSettings, TRAIN_PRESETS],
    preset: Annotated[
        Literal["paper", "authors", "default"],
        Option(help="The paper's loss; the authors' program's loss; or all linear layers and a lower rate."),
    ] = "paper",
) -> None:
    """Train a PRM from step-labelled solutions: an adapter or all weights; `unprm serve --model OUTPUT` serves it.

    Run the same command again to resume a killed run from its last checkpoint. On several GPUs:
    `torchrun --nproc-per-node 8 -m unprm train …`.
    """
    tune, head = given.get("tune", "lora"), given.get("head")
    if (tune == "none") != (head == "probe"):
        missing = "--head probe" if tune == "none" else "--tune none"
        raise BadParameter(f"a probe is what is trained if nothing of the base is: give {missing} too, or neither")
    if tune == "all" and (beside := [name for name in given if name.startswith("lora_")]):
        raise BadParameter("with all weights trained there is no adapter", param_hint=option(beside[0]))
    settings = TrainSettings(**TRAIN_PRESETS[preset] | TUNE_DEFAULTS[tune] | given)
    if tune == "none":
        from ..prm import probe

        if beside := [name for name in given if name not in PROBE_OPTIONS] or ["preset"] * (preset != "paper"):
            raise BadParameter("a probe of a frozen base is fitted without it", param_hint=option(beside[0]))
        trainer: Trainer | ProbeTrainer = probe.ProbeTrainer(settings)
    else:
        from ..prm import train as training

        trainer = training.Trainer(settings)
    shown = trainer.processes.is_first
    if shown:
        console.print(trainer.plan(), highlight=False, soft_wrap=True)
        for name, count in (("--data", trainer.dropped), ("--validation", trainer.dropped_held_out)):
            if count:
                console.print(f"{name}: {count} solutions longer than the model's window are left out")
    with stage.progress(console, shown=shown) as progress:
        summary = trainer.train(progress)
    if shown:
        if isinstance(summary, ProbeSummary):
            console.print(summary.table)
        console.print(f"{summary}; wrote {settings.output}", highlight=False, soft_wrap=True)
    trainer.processes.leave()


def merge_adapter(
    model: Annotated[str, Argument(help="The PRM: a directory made by `train`, a hub name, or a base.")],
    output: Annotated[Path, Option(help="Directory for the merged checkpoint.", callback=stage.directory)],
    adapter: Annotated[str | None, Option(help="The adapter, if the model is a base.")] = None,
    dtype: Annotated[Literal["bfloat16", "float32"], Option(help="Type of the merged weights.")] = "bfloat16",
) -> None:
    """Merge a PRM's adapter into its base: one checkpoint for the server, vLLM and plain transformers."""
    import torch

    from ..prm import publish

    publish.merge_adapter(model, adapter, output, torch.float32 if dtype == "float32" else torch.bfloat16)
    console.print(f"serve it with: unprm serve --model {output}")


def push(
    directory: Annotated[Path, Argument(help="PRM made by `train` or `merge-adapter`.", exists=True)],
    repository: Annotated[str, Argument(help="Its name on the hub.")],
    figures: Annotated[
        Path | None,
        Option(help="Page of results for its card, from `evaluate all`.", exists=True, dir_okay=False),
    ] = None,
) -> None:
    """Publish a PRM on the hub: merged checkpoint, adapter and card. Needs HF_TOKEN in the environment."""
    from ..prm import publish

    console.print(publish.push(directory, repository, figures))


@with_options
def calibrate(prm: FittedOptions) -> None:
    """Fit a PRM's calibration, which makes its scores comparable with other models' in an average."""
    from unprm.calibration import Calibration

    from ..prm.calibrate import calibrate as fit

    place = prm.place
    before = Calibration.read(place)
    with prm.scoring() as scorer, stage.progress(console) as progress:
        fitted = fit(scorer, prm.data, progress)
    replace(fitted.calibration, threshold=before.threshold).write(place)
    console.print(
        f"{place}: scale {fitted.calibration.scale:.3f}, shift {fitted.calibration.shift:+.3f}, of {fitted.steps} "
        f"steps; calibration error {fitted.before.calibration_error:.3f} before, "
        f"{fitted.after.calibration_error:.3f} after",
        highlight=False,
    )
