"""Deploys to an existing cluster, or to one started on this machine."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import NoReturn

import ray
from ray import serve

from .deploy import deploy
from .settings import ScaleSettings


def on_cluster(settings: ScaleSettings) -> int:
    """Deploys to the cluster that RAY_ADDRESS names. Returns the exit status: 0, or 1 if that fails."""
    return _deployed(settings, log_to_driver=False)


def on_this_machine(settings: ScaleSettings) -> int:
    """Starts Ray on this machine and serves until a signal. Returns 0, or 1 if deploying fails."""
    _on_signals(_end)
    # Ray crashes if a signal handler raises while it starts: this thread waits for signals, another starts Ray
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(_deployed, settings, include_dashboard=False).result()
        _on_signals(_leave)
        try:
            while status == 0:
                signal.pause()
            return status
        finally:
            serve.shutdown()
            ray.shutdown()


def _deployed(settings: ScaleSettings, **options: bool) -> int:
    """The exit status; `options` are those of `ray.init`."""
    ray.init(**options)
    try:
        deploy(settings)
    except RuntimeError as error:
        print(f"it could not be deployed: {error}", file=sys.stderr)
        return 1
    return 0


def _on_signals(handler: Callable[[int, FrameType | None], NoReturn]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(0)  # the kernel ends Ray's processes with the one that started them
