"""Serves from a Ray cluster.

python -m server.scale --model Qwen/Qwen2.5-Math-PRM-7B --replicas 2 --replica-gpus 1
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import ray
from ray import serve

from server.keys import Keys, KeysInvalid
from server.scale.deploy import deploy
from server.scale.settings import RAY, ScaleSettings
from server.settings import SettingsInvalid


def main() -> int:
    """Exit status: 0 once deployed, or after a signal; 2 for settings or keys that can't be used, 1 if it fails."""
    try:
        settings = ScaleSettings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in RAY.items():
        os.environ.setdefault(name, value)
    remote = "RAY_ADDRESS" in os.environ
    if not remote:  # on a cluster the file is looked for where entrances and replicas are
        try:
            Keys(settings.api_key, settings.api_keys_file)
        except KeysInvalid as error:
            print(error, file=sys.stderr)
            return 2
    try:
        ray.init(log_to_driver=not remote, include_dashboard=False if not remote else None)
    except SystemExit:  # Ray's own way to take a signal, with the signal's number for a status
        return 0
    if remote:
        return _deployed(settings)
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


if __name__ == "__main__":
    sys.exit(main())
