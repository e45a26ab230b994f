"""Trains in several processes, set up as `torchrun` sets them up, or in one that is not this one."""

import os
import signal
from multiprocessing.process import BaseProcess
from typing import Any

from rich.progress import Progress, TaskID

from tests import forked
from tests.support import free_port
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings


class Unfinished(Progress):
    """That of a run which stops after its last step: it never ends before it is killed."""

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        while self.finished:
            signal.pause()


def start(settings: TrainSettings, count: int = 2, ends: bool = True) -> list[BaseProcess]:
    """Starts a run; the caller waits for its processes, or kills them if it never `ends`."""
    port = free_port()
    return [forked.start(_train, k, count, port, settings, ends) for k in range(count)]


def train(settings: TrainSettings, count: int = 2) -> None:
    """Runs to the end."""
    for process in start(settings, count):
        process.join()
        assert process.exitcode == 0


def _train(rank: int, count: int, port: int, settings: TrainSettings, ends: bool) -> None:
    if count > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in names.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}
    trainer = Trainer(settings)
    trainer.train(Progress(disable=True) if ends else Unfinished(disable=True))
    trainer.processes.leave()
