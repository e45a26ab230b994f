"""The command `unprm`: all programs of the package by one name.

unprm serve --port 8000
unprm vote requests.jsonl
unprm train --help
"""

import runpy
import sys
import textwrap
from importlib.util import find_spec
from typing import NamedTuple

SERVE, SCALE = "serve", "scale"
"""Commands that name a whole program: the program does not get their name."""


class Program(NamedTuple):
    """A module that `python -m` runs. `extra`: the package's extra that installs what it needs."""

    module: str
    extra: str
    summary: str
    commands: str

    def place(self) -> str:
        """The module's full name: installed, `server` and `training` are in `unprm`; in a checkout, beside it."""
        room = self.module.partition(".")[0]
        return self.module if find_spec(f"unprm.{room}") is None else f"unprm.{self.module}"


PROGRAMS = (
    Program("server", "serve", "Serve a model and its page", f"{SERVE} models"),
    Program("server.scale", "ray", "Serve replicas on a Ray cluster", SCALE),
    Program("unprm_client", "client", "Call a server", "score vote compare"),
    Program("unprm_client", "agents", "Offer a server to agents as MCP tools", "mcp"),
    Program(
        "training",
        "train",
        "Make data, train, evaluate",
        "build sample select annotate merge convert stats train calibrate merge-adapter push evaluate",
    ),
)

OPTIONAL = {"ray": "ray", "vllm": "vllm"}
"""Packages that only some options of a command need, and their extras."""


def main() -> None:
    """Runs the command that is named first, as `python -m` runs its program. Status 2 without one of this name."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    program = next((each for each in PROGRAMS if name in each.commands.split()), None)
    if program is None:
        if name in ("-h", "--help"):
            print(_usage())
            return
        sys.stderr.write(f"{_usage()}\n\nunprm has no command {name!r}\n" if name else f"{_usage()}\n")
        raise SystemExit(2)
    if name in (SERVE, SCALE):
        del sys.argv[1]
    try:
        if find_spec(program.place()) is None:
            sys.exit(f"unprm {name} is not in this installation: pip install 'unprm[{program.extra}]'")
        runpy.run_module(program.place(), run_name="__main__")
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in ("unprm", "unprm_client", "server", "training"):
            raise
        extra = OPTIONAL.get(missing, program.extra)
        sys.exit(f"unprm {name} needs {missing}, which is not installed: pip install 'unprm[{extra}]'")


def _usage() -> str:
    lines = ["Usage: unprm COMMAND …, or unprm COMMAND --help"]
    for program in PROGRAMS:
        lines += ["", f"{program.summary} (pip install 'unprm[{program.extra}]'):"]
        lines.append(textwrap.indent(textwrap.fill(program.commands, 76, break_on_hyphens=False), "  "))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
