"""Serves a model until SIGTERM or SIGINT.

python -m server --model Qwen/Qwen2.5-Math-7B-Instruct --adapter PATH_OR_HUB_NAME --port 8000
python -m server models
"""

import atexit
import gc
import os
import sys
import threading
from typing import Annotated

from unprm.commands import Given, group, run, with_options

from .settings import Settings

app = group("Serves a process reward model over HTTP.")

_LEAVING_SECONDS = 5.0
"""Time for what else runs to end, once the server has."""


@app.command()
@with_options
def serve(given: Annotated[Given, Settings]) -> None:
    """Serves a process reward model over HTTP: step scores, and votes for the best answer.

    `unprm models` lists the published models it supports.
    """
    settings = Settings.read(given)
    status = 1  # unless it ends as it should

    def leave() -> None:
        """Ends the process before its interpreter is finalized: a thread that is still loading a model, or whose model
        hangs, would return to it from C++ code, and that aborts the process."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(leave)  # what is registered first is called last
    gc.disable()  # imports make many objects that live long: collecting garbage meanwhile takes time and finds none
    from . import serving

    gc.freeze()
    gc.enable()
    status = serving.run(settings)
    late = threading.Timer(_LEAVING_SECONDS, leave)  # other threads that go on, as downloads
    late.daemon = True
    late.start()


@app.command()
def models() -> None:
    """Prints the published process reward models that the server supports."""
    from .catalogue import show

    show()


def main() -> None:
    """The command line of `python -m server`, which serves unless the name of another command comes first."""
    named = any(not word.startswith("-") for word in sys.argv[1:2])
    run(app, [*([] if named else ["serve"]), *sys.argv[1:]], "unprm")


if __name__ == "__main__":
    main()
