"""Serves a model until SIGTERM or SIGINT.

python -m server --model Qwen/Qwen2.5-Math-7B-Instruct --adapter PATH_OR_HUB_NAME --port 8000
python -m server models
python -m server examples
"""

import atexit
import gc
import os
import sys
from typing import NoReturn


def main() -> int:
    """Returns the exit status: 2 for invalid settings, else as `run`. Each command imports only what it needs, so that
    `--help` and errors in options appear at once."""
    if sys.argv[1:] == ["models"]:
        from .catalogue import show

        show()
        return 0
    if sys.argv[1:] == ["examples"]:
        from .examples import answers

        print(answers(), end="")
        return 0
    gc.disable()  # imports make many objects that live long: collecting garbage meanwhile takes time and finds none
    from .settings import Settings, SettingsInvalid

    try:
        settings = Settings.load(sys.argv[1:])
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    from .serving import run

    gc.freeze()
    gc.enable()
    return run(settings)


def end(status: int) -> NoReturn:
    """Ends the process without finalizing the interpreter: a thread that is still loading a model, or whose model
    hangs, would return from C++ code to a finalized interpreter, and that code then aborts the process."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(main())
