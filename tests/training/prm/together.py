"""Trains in two processes, set up as `torchrun` sets them up, but forked from one that has imported PyTorch already."""

import multiprocessing
import os
from multiprocessing.process import BaseProcess

from rich.progress import Progress

from tests.support import free_port
from training.prm.settings import TrainSettings
from training.prm.train import Trainer

COUNT = 2
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


def start(settings: TrainSettings) -> list[BaseProcess]:
    """Starts a run; the caller waits for its processes."""
    port = free_port()
    processes: list[BaseProcess] = [_CONTEXT.Process(target=_train, args=(k, port, settings)) for k in range(COUNT)]
    for process in processes:
        process.start()
    return processes


def train(settings: TrainSettings) -> None:
    """Runs to the end."""
    for process in start(settings):
        process.join()
        assert process.exitcode == 0


def _train(rank: int, port: int, settings: TrainSettings) -> None:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": COUNT, "LOCAL_WORLD_SIZE": COUNT, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in names.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}
    trainer = Trainer(settings)
    trainer.train(Progress(disable=True))
    trainer.processes.leave()
