"""Command line of the pipeline: `python -m training --help`."""

import typer
from rich.console import Console
from rich.markup import escape

from unprm.errors import UnprmError

from .cli import data, evaluate, train

app = typer.Typer(
    help="Makes a process reward model and evaluates it.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for command in (
    train.train,
    train.memory,
    train.merge_adapter,
    train.push,
    train.calibrate,
):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(evaluate.app, name="evaluate")
console = Console(stderr=True)


def main() -> None:
    """Runs the command line; an `UnprmError` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (UnprmError, OSError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
