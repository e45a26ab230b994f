"""Serves from a Ray cluster.

unprm scale --model Qwen/Qwen2.5-Math-PRM-7B --replicas 2 --replica-gpus 1
"""

import os
import sys

from ..settings import SettingsInvalid
from .settings import RAY, ScaleSettings

_STARTS = {
    # request lines resemble each other, and Ray would drop those of one replica that resemble another's
    "RAY_DEDUP_LOGS": "0",
    # for a second during its start, Ray's native code would treat a signal as a crash and abort
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}
"""Ray's settings for the process that starts it."""


def main() -> int:
    """Returns the exit status: 0 once deployed, or after a signal; 2 for invalid settings or keys, 1 if it fails."""
    try:
        settings = ScaleSettings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in (RAY | _STARTS).items():
        os.environ.setdefault(name, value)
    remote = "RAY_ADDRESS" in os.environ
    if not remote:  # on a cluster, replicas read the file where they run
        from ..middleware import Keys, KeysInvalid  # imported only here: it takes longer than the rest of `--help`

        try:
            Keys(settings.api_key, settings.api_keys_file)
        except KeysInvalid as error:
            print(error, file=sys.stderr)
            return 2
    from .deploy import on_cluster, on_this_machine  # Ray reads the environment as it is imported

    return on_cluster(settings) if remote else on_this_machine(settings)


if __name__ == "__main__":
    sys.exit(main())
