"""Settings as the options of a command line give them."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import typer

from server.settings import Settings
from unprm.commands import Given, program, with_options

Kind = TypeVar("Kind", bound=Settings)


def read(kind: type[Kind], arguments: Sequence[str]) -> Kind:
    """The settings of a command line. Raises `SettingsInvalid`, and Typer's errors for what is no option."""
    app, taken = program("Takes settings."), []

    @app.command()
    @with_options
    def take(given: Annotated[Given, kind]) -> None:  # type: ignore[valid-type]
        taken.append(kind.read(given))

    typer.main.get_command(app).main(list(arguments), standalone_mode=False)
    return taken[0]
