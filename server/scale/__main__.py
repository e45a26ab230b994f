"""Serves from a Ray cluster.

unprm scale --model Qwen/Qwen2.5-Math-PRM-7B --replicas 2 --replica-gpus 1
"""

import os
from typing import Annotated

import typer

from unprm.commands import Given, SettingsInvalid, program, run, with_options

from .settings import RAY, ScaleSettings

_STARTS = {
    # request lines resemble each other, and Ray would drop those of one replica that resemble another's
    "RAY_DEDUP_LOGS": "0",
    # for a second during its start, Ray's native code would treat a signal as a crash and abort
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}
"""Ray's settings for the process that starts it."""

app = program("Serves a process reward model from many machines.")


@app.command()
@with_options
def scale(given: Annotated[Given, ScaleSettings]) -> None:
    """Serves a process reward model from many machines: replicas on a Ray cluster, each with a model of its own.

    With RAY_ADDRESS set it deploys to that cluster and ends; run again with other settings, it replaces one replica
    after the other. Without it, starts Ray on this machine and serves until SIGTERM or SIGINT.
    """
    settings = ScaleSettings.read(given)
    for name, value in (RAY | _STARTS).items():
        os.environ.setdefault(name, value)
    remote = "RAY_ADDRESS" in os.environ
    if not remote:  # on a cluster, replicas read the file where they run
        from ..middleware import Keys, KeysInvalid  # imported only here: it takes longer than the rest of `--help`

        try:
            Keys(settings.api_key, settings.api_keys_file)
        except KeysInvalid as error:
            raise SettingsInvalid(str(error)) from None
    from .deploy import on_cluster, on_this_machine  # Ray reads the environment as it is imported

    raise typer.Exit(on_cluster(settings) if remote else on_this_machine(settings))


if __name__ == "__main__":
    run(app, name="unprm scale")
