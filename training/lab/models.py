"""The lab's PRMs: one per data set and seed, from the same base, trained and evaluated alike."""

from pathlib import Path

from rich.console import Console

from training import best_of_n, processbench, stage
from training.lab.benchmark import candidates_file, load_benchmark
from training.lab.construct import data_file
from training.lab.settings import VERDICTS, LabSettings, data_sets
from training.scorers import EngineScorer
from training.settings import LINEAR, TrainSettings
from training.train import Trainer
from unprm import mini
from unprm.engines.load import load_engine
from unprm.equivalence import Equivalence
from unprm.formats.unprm import CONFIG_NAME


def seeds(settings: LabSettings, name: str) -> list[str]:
    """Directories of a data set's PRMs, below that of all models or of all results."""
    return [f"{name}/seed-{seed}" for seed in range(settings.seeds)]


def train(settings: LabSettings, output: Path, console: Console) -> None:
    """Trains every PRM that is not there yet."""
    for name in data_sets(settings):
        for seed, place in enumerate(seeds(settings, name)):
            directory = output / "models" / place
            if not (directory / CONFIG_NAME).exists():  # written after the weights
                with stage.progress(console) as progress:
                    report = Trainer(_training(settings, data_file(output, name), directory, seed)).run(progress)
                console.print(f"{place}: {report.steps} steps on {report.examples} solutions, loss {report.loss:.4f}")


def evaluate(settings: LabSettings, output: Path, console: Console) -> None:
    """Finds first errors and elects answers with every PRM, where an earlier run has not."""
    subsets, questions = load_benchmark(output), best_of_n.load(candidates_file(output))
    with Equivalence() as equivalence:
        for place in (place for name in data_sets(settings) for place in seeds(settings, name)):
            engine = load_engine(str(output / "models" / place))
            try:
                scorer = EngineScorer(engine)
                processbench.evaluate(subsets, scorer, output / "processbench" / place, console)
                best_of_n.evaluate(questions, scorer, equivalence, output / "best-of-n" / place, console)
            finally:
                engine.close()


def _training(settings: LabSettings, data: Path, directory: Path, seed: int) -> TrainSettings:
    positive, negative = VERDICTS
    return TrainSettings(
        base=str(mini.BASE),
        positive=positive,
        negative=negative,
        data=(data,),
        output=directory,
        name="/".join(directory.parts[-2:]),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        batch_tokens=4096,  # short batches waste less on padding than large ones gain
        lora_rank=12,
        lora_alpha=24,
        lora_dropout=0.0,
        lora_targets=LINEAR,
        seed=seed,
    )
