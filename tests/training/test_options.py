from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from training.cli.options import Given, with_options


@dataclass(frozen=True)
class Settings:
    """Of a stage."""

    path: str
    epochs: Annotated[int, typer.Option(min=1)] = 3
    layers: Annotated[tuple[str, ...], typer.Option(help="By commas.")] = ("a",)
    fast: Annotated[bool, typer.Option("--fast")] = False
    hidden: int = 7


@dataclass(frozen=True)
class Where:
    """It runs."""

    device: Annotated[str, typer.Option(help="Which.")] = "cpu"
    cores: Annotated[int, typer.Option("--cpus")] = 1


def _run(*arguments):
    taken = []
    app = typer.Typer()

    @app.command()
    @with_options
    def train(
        data: Annotated[str, typer.Argument()],
        where: Where,
        given: Annotated[Given, Settings],
        seed: Annotated[int, typer.Option()] = 0,
    ) -> None:
        """Trains."""
        taken.append((data, where, given, seed))

    return CliRunner().invoke(app, arguments), taken


def test_what_is_not_given_is_left_to_the_preset():
    result, taken = _run("x.jsonl")
    assert result.exit_code == 0, result.output
    assert taken == [("x.jsonl", Where(), {}, 0)]


def test_what_is_given_comes_under_the_fields_names():
    result, taken = _run(
        "x", "--epochs", "5", "--layers", "q,v", "--fast", "--cpus", "2", "--device", "gpu", "--seed", "1"
    )
    assert result.exit_code == 0, result.output
    assert taken == [("x", Where("gpu", 2), {"epochs": 5, "layers": ("q", "v"), "fast": True}, 1)]


@pytest.mark.parametrize(("option", "said"), [("--epochs=0", "greater than"), ("--hidden=1", "No such option")])
def test_what_is_no_option_or_out_of_range_is_refused(option, said):
    result, taken = _run("x", option)
    assert result.exit_code == 2
    assert said in result.output
    assert not taken


def test_the_help_has_the_fields_texts():
    result, _ = _run("--help")
    assert all(text in result.output for text in ("Trains.", "By commas.", "Which.", "--cpus"))
