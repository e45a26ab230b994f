"""Processes forked from one that has imported PyTorch already: each starts at once, and may be killed."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["training.prm.train", "tests.training.data.mortal"])


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Runs `work` in a process of its own; the caller waits for it."""
    process = _CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process
