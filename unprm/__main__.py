"""The command `unprm`: all programs of the package by one name.

unprm serve --port 8000
unprm vote requests.jsonl
unprm train --help
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typer import Typer


class Program(NamedTuple):
    """A module whose `app` has these commands. `extra`: the package's extra that installs what it needs, if any."""

    module: str
    extra: str
    summary: str
    commands: str

    def command(self, name: str) -> Any:
        """The command. Installed, `server` and `training` are in `unprm`; in a checkout, beside it."""
        from typer.main import get_command

        room = self.module.partition(".")[0]
        place = self.module if find_spec(f"unprm.{room}") is None else f"unprm.{self.module}"
        found: Any = get_command(import_module(place).app)
        return found if found.name == name else found.commands[name]


PROGRAMS = (
    Program("server.__main__", "serve", "Serve a model and its page", "serve models"),
    Program("server.scale.__main__", "ray", "Serve replicas on a Ray cluster", "scale"),
    Program("unprm_client.__main__", "", "Call a server", "score vote compare"),
    Program("unprm.grading", "", "Grade answers, without a server", "grade"),
    Program("unprm_client.__main__", "agents", "Offer a server to agents as MCP tools", "mcp"),
    Program(
        "training.__main__",
        "train",
        "Make data, train, evaluate",
        "build sample select annotate merge convert stats train calibrate merge-adapter push evaluate",
    ),
)
NAMES = {name: program for program in PROGRAMS for name in program.commands.split()}

OPTIONAL = {"ray": "ray", "vllm": "vllm"}
"""Packages that only some options of a command need, and their extras."""


def program() -> "Typer":
    """All commands; each is imported when it is named."""
    from typer.core import TyperGroup

    from . import commands

    class Commands(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            self.commands: dict[str, Any] = dict.fromkeys(NAMES)  # what is suggested for a name that is none

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return NAMES[cmd_name].command(cmd_name) if cmd_name in NAMES else None

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            for each in PROGRAMS:
                with formatter.section(f"{each.summary} ({_installing(each.extra)})" if each.extra else each.summary):
                    formatter.write(indent(fill(each.commands, 76, break_on_hyphens=False), "  ") + "\n")

    return commands.group("Scores every step of a candidate solution, and votes for the best answer.", cls=Commands)


def main() -> None:
    """Runs a command. If a package that it needs or its program is missing, it says what installs it: status 1."""
    name = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        from .commands import run

        run(program(), name="unprm")
    except ModuleNotFoundError as error:
        missing, _, inner = str(error.name).partition(".")
        own = missing in ("unprm", "unprm_client", "server", "training")
        if own and inner:
            raise
        extra = OPTIONAL.get(missing) or (NAMES[name].extra if name in NAMES else "")
        reason = "is not in this installation" if own else f"needs {missing}, which is not installed"
        sys.exit(f"{f'unprm {name}'.strip()} {reason}: {_installing(extra)}")


def _installing(extra: str) -> str:
    return f"pip install 'unprm[{extra}]'" if extra else "pip install unprm"


if __name__ == "__main__":
    main()
