"""The `--help` of every program and command, in a terminal of 100 columns without colours.

Each is a process of its own, but forked from one that has imported what most of them need.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tests.support import ROOT

COMMANDS = {
    "unprm": ("", "serve", "models", "scale"),
    "unprm.grading": ("",),
    "unprm_client": ("", "score", "vote", "compare", "mcp"),
    "training": (
        *("", "build", "sample", "select", "annotate", "merge", "convert", "stats"),
        *("train", "calibrate", "merge-adapter", "push"),
        *("evaluate", "evaluate processbench", "evaluate prmbench", "evaluate best-of-n", "evaluate trajectories"),
        *("evaluate all", "evaluate calibrate-votes"),
    ),
    "server": ("",),
    "server.scale": ("",),
}
"""By module the commands whose help is kept: those that the help of programs lists."""
_IMPORTED = ("typer.rich_utils", "rich.markdown", "server.scale.settings", "training.cli.data", "unprm_client.terminal")
_TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUTF8": "1"}


def usage(_: Path) -> dict[str, str]:
    """A file for each module."""
    commands = [f"{module} {command}".strip() for module, each in COMMANDS.items() for command in each]
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    words = [sys.executable, "-m", __name__, *commands]
    done = subprocess.run(words, cwd=ROOT, env=inherited | _TERMINAL, capture_output=True, text=True, check=True)
    shown = iter(json.loads(done.stdout))
    return {f"{module}.txt": "\n".join(next(shown) for _ in each) for module, each in COMMANDS.items()}


def _help(command: str) -> str:
    with tempfile.TemporaryFile("w+b") as output:
        if (child := os.fork()) == 0:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            _run(command.split())
        _, status = os.waitpid(child, 0)
        output.seek(0)
        lines = [line.rstrip() for line in output.read().decode().strip().splitlines()]
    title = f"# python -m {command} --help"
    return "\n".join([title, f"exit status {os.waitstatus_to_exitcode(status)}", *lines, ""])


def _run(words: Sequence[str]) -> None:
    """Ends the process as `python -m` with these words would."""
    module, *more = words
    sys.argv[1:] = [*more, "--help"]
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        status = 1
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    for each in _IMPORTED:
        import_module(each)
    print(json.dumps([_help(command) for command in sys.argv[1:]]))
