"""Command line of the pipeline: `python -m training --help`."""

from unprm.commands import group, run

from .cli import data, evaluate, train

app = group("Makes a process reward model and evaluates it.")
for command in (train.train, train.merge_adapter, train.push, train.calibrate):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(evaluate.app, name="evaluate")


if __name__ == "__main__":
    run(app)
