"""The command `unprm`: all programs of the package by one name.

unprm serve --port 8000
unprm vote requests.jsonl
unprm train --help
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typer import Typer


class Program(NamedTuple):
    """A module whose `app` has these commands. `extra`: the package's extra that installs what it needs, if any."""

    module: str
    extra: str
    summary: str
    commands: dict[str, str]
    """What each is for, by its name."""

    def command(self, name: str) -> Any:
        """The command. Installed, `server` and `training` are in `unprm`; in a checkout, beside it."""
        from typer.main import get_command

        room = self.module.partition(".")[0]
        place = self.module if find_spec(f"unprm.{room}") is None else f"unprm.{self.module}"
        found: Any = get_command(import_module(place).app)
        return found if found.name == name else found.commands[name]


PROGRAMS = (
    Program(
        "server.__main__",
        "serve",
        "Serve a model and its page",
        {"serve": "Serve a PRM, votes and the page", "models": "List the published PRMs that are supported"},
    ),
    Program(
        "server.scale.__main__", "ray", "Serve replicas on a Ray cluster", {"scale": "Serve many replicas of a PRM"}
    ),
    Program(
        "unprm_client.__main__",
        "",
        "Call a server",
        {
            "score": "Score the steps of solutions",
            "vote": "Vote for the best answer",
            "compare": "Take all votes at once",
        },
    ),
    Program("unprm.grading", "", "Grade answers, without a server", {"grade": "Compare answers with the right ones"}),
    Program(
        "unprm_client.__main__", "agents", "Offer a server to agents", {"mcp": "Step scores and votes as MCP tools"}
    ),
    Program(
        "training.__main__",
        "train",
        "Make data, train, evaluate",
        {
            "build": "From questions to a data set: the next four, in one",
            "sample": "Sample solutions of questions",
            "select": "Select solutions worth annotating",
            "annotate": "Find their wrong steps by rollouts",
            "merge": "Join them into a data set",
            "stats": "Print what annotation cost and found",
            "convert": "Write step labels in another layout",
            "train": "Train a PRM from step labels",
            "calibrate": "Make its scores comparable with other PRMs'",
            "evaluate": "Measure it: ProcessBench, PRMBench, best of N",
            "merge-adapter": "Merge its adapter into its base",
            "push": "Publish it on the hub",
        },
    ),
)
NAMES = {name: program for program in PROGRAMS for name in program.commands}

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
                with formatter.section(f"{each.summary} (extra {each.extra})" if each.extra else each.summary):
                    formatter.write_dl([*each.commands.items()])

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
        chosen = f"'.[{extra}]'" if extra else "."
        sys.exit(f"{f'unprm {name}'.strip()} {reason}: pip install {chosen}, in the directory of its source")


if __name__ == "__main__":
    main()
