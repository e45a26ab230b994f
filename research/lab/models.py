"""The lab's PRMs: one per base, data set and seed, all trained and evaluated in the same way."""

import ctypes
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from joblib import Parallel, cpu_count, delayed, parallel_config
from rich.console import Console

from training import stage
from training.evaluate import best_of_n, pool, processbench
from training.evaluate.scorers import EngineScorer
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from unprm import mini
from unprm.checkpoints.files import read_tokenizer
from unprm.formats.unprm import CONFIG_NAME
from unprm.models.load import load_engine

from ..mini.pipeline import prm_settings, reasoner
from ..mini.pretrain import WITHOUT_VERDICTS
from .benchmark import candidates_file, load_benchmark
from .construct import data_file
from .lab_settings import DATA_SETS, VERDICTS, BaseName, LabSettings

Job = Callable[[], str]
"""Does one piece of work and returns a line about its result."""


def seeds(settings: LabSettings, base: BaseName, data_set: str) -> list[str]:
    """Directories of a data set's PRMs from one base, relative to the directory of all models or results."""
    return [f"{data_set}-{base}/seed-{seed}" for seed in range(settings.seeds)]


def train(settings: LabSettings, output: Path, console: Console) -> None:
    bases: dict[BaseName, Path] = {"verdicts": mini.BASE}
    if "text" in settings.bases:
        with stage.progress(console) as progress:
            bases["text"] = reasoner(output / "text-base", read_tokenizer(mini.BASE), WITHOUT_VERDICTS, progress)
    positive, negative = VERDICTS
    wanted = [
        prm_settings(
            bases[base],
            [data_file(output, data_set)],
            output / "models" / place,
            place,
            seed,
            positive=positive,
            negative=negative,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            batch_tokens=4096,  # short batches waste less on padding than large ones gain
        )
        for base in settings.bases
        for data_set in DATA_SETS
        for seed, place in enumerate(seeds(settings, base, data_set))
    ]
    # the configuration is written after the weights
    missing = [training for training in wanted if not (training.output / CONFIG_NAME).exists()]
    for line in _side_by_side([partial(_train, training) for training in missing]):
        console.print(line)


def evaluate(settings: LabSettings, output: Path, console: Console) -> None:
    """Evaluates every PRM on first errors, and those of data sets with `votes` by best-of-N; skips finished work."""
    calls = [
        partial(_evaluate, output, place, data_set.votes)
        for base in settings.bases
        for name, data_set in DATA_SETS.items()
        for place in seeds(settings, base, name)
    ]
    for line in _side_by_side(calls):
        console.print(line)


def _side_by_side(calls: Sequence[Job]) -> Iterator[str]:
    """The results of the calls, in order of completion. On a CPU each call has one core, as small models gain more from
    that than from several cores each; on a GPU the calls run one after the other in this process."""
    if torch.cuda.is_available() or cpu_count() == 1:
        yield from (call() for call in calls)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from Parallel(n_jobs=cpu_count(), return_as="generator_unordered")(map(delayed(_child), calls))


def _child(call: Job) -> str:
    """Runs a call in a process that dies with its parent: a killed run must not leave a process that writes to the same
    files as the next run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    return call()


def _train(settings: TrainSettings) -> str:
    with stage.progress(_lines()) as progress:
        summary = Trainer(settings).train(progress)
    return f"{settings.name}: {summary.steps} steps on {summary.examples} solutions, loss {summary.loss:.4f}"


def _evaluate(output: Path, place: str, votes: bool) -> str:
    console = _lines()
    engine = load_engine(str(output / "models" / place))
    try:
        scorer = EngineScorer(engine)
        first_errors = processbench.evaluate(load_benchmark(output), scorer, output / "processbench" / place, console)
        if votes:
            questions, judged = pool.read_pool(candidates_file(output)), output / "best-of-n" / place
            best_of_n.evaluate(questions, scorer, judged, console, aggregates=["min"])
    finally:
        engine.close()
    return f"{place}: F1 {100 * first_errors['fixed'].average_f1:.1f}"


def _lines() -> Console:
    """A console for lines of a log file; quiet on a terminal, where several bars would overwrite each other."""
    return Console(stderr=True, quiet=sys.stderr.isatty())
