"""Deploys, on a cluster that is there or on one of this machine's own."""

import signal
import sys
from types import FrameType
from typing import NoReturn

import ray
from ray import serve

from server.scale.deploy import deploy
from server.scale.settings import ScaleSettings


def on_cluster(settings: ScaleSettings) -> int:
    """Deploys to the cluster that RAY_ADDRESS names, and returns: 0, or 1 if that fails."""
    ray.init(log_to_driver=False)
    return _deployed(settings)


def on_this_machine(settings: ScaleSettings) -> int:
    """Starts Ray on this machine and serves until a signal: 0, or 1 if it can't be deployed."""
    try:
        ray.init(include_dashboard=False)
    except SystemExit:  # Ray's own way to take a signal, with the signal's number for a status
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray's own, and before what takes minutes
        signal.signal(number, _leave)
    try:
        status = _deployed(settings)
        while status == 0:
            signal.pause()
        return status
    finally:
        serve.shutdown()


def _deployed(settings: ScaleSettings) -> int:
    try:
        deploy(settings)
    except RuntimeError as error:
        print(f"it could not be deployed: {error}", file=sys.stderr)
        return 1
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)
