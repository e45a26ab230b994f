"""Command line of the pipeline: `python -m training --help`."""

import typer

from .cli import data, evaluate, train
from .cli.options import run

app = typer.Typer(
    help="Makes a process reward model and evaluates it.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
for command in (train.train, train.merge_adapter, train.push, train.calibrate):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(evaluate.app, name="evaluate")


if __name__ == "__main__":
    run(app)
