"""Serves from a Ray cluster.

python -m server.scale --model Qwen/Qwen2.5-Math-PRM-7B --replicas 2 --replica-gpus 1
"""

import os
import signal
import sys
import threading

import ray
from ray import serve

from server.keys import Keys, KeysInvalid
from server.scale.deploy import deploy
from server.scale.settings import ScaleSettings
from server.settings import SettingsInvalid


def main() -> int:
    """Exit status: 0 once deployed, or after a signal; 2 for settings or keys that can't be used, 1 if it fails."""
    try:
        settings = ScaleSettings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to others unasked
    remote = "RAY_ADDRESS" in os.environ
    if not remote:  # on a cluster the file is looked for where entrances and replicas are
        try:
            Keys(settings.api_key, settings.api_keys_file)
        except KeysInvalid as error:
            print(error, file=sys.stderr)
            return 2
    ray.init(log_to_driver=not remote, include_dashboard=False if not remote else None)
    try:
        deploy(settings)
    except RuntimeError as error:
        print(f"it could not be deployed: {error}", file=sys.stderr)
        return 1
    if not remote:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *told: stop.set())
        stop.wait()
        serve.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
