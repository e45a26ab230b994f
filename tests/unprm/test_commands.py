import re
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
import typer
from pydantic import BaseModel, Field, SecretStr
from safetensors import SafetensorError
from typer.testing import CliRunner

import unprm.__main__
from training.__main__ import app as pipeline
from unprm.commands import Given, SettingsInvalid, program, run, with_options
from unprm.errors import ModelInvalid


@dataclass(frozen=True)
class Settings:
    """Of a stage."""

    path: str
    home: Annotated[Path, typer.Option(help="Required.")]
    epochs: Annotated[int, typer.Option(min=1)] = 3
    layers: Annotated[tuple[str, ...], typer.Option(help="By commas.")] = ("a",)
    files: Annotated[tuple[Path, ...], typer.Option(help="Repeated.")] = ()
    fast: Annotated[bool, typer.Option("--fast")] = False
    hidden: int = 7


@dataclass(frozen=True)
class Where:
    """It runs."""

    device: Annotated[str, typer.Option(help="Which.")] = "cpu"
    cores: Annotated[int, typer.Option("--cpus")] = 1


class Served(BaseModel):
    """Of a server."""

    GROUP: ClassVar = "Listening"

    port: int = Field(default=8000, description="Where.")
    hosts: list[str] = Field(default=["a", "b"], description="Which.")
    quiet: bool = Field(default=False, description="Says little.")
    api_key: SecretStr | None = Field(default=None, description="Secret.")


def _served(*arguments):
    taken = []
    app = program("Serves.")

    @app.command()
    @with_options
    def serve(given: Annotated[Given, Served]) -> None:
        """Serves."""
        taken.append(given)

    return CliRunner(env={"COLUMNS": "120"}).invoke(app, arguments), taken


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

    return CliRunner().invoke(app, [*arguments, "--home=h"]), taken


def test_what_is_not_given_is_left_to_the_preset():
    result, taken = _run("x.jsonl")
    assert result.exit_code == 0, result.output
    assert taken == [("x.jsonl", Where(), {"home": Path("h")}, 0)]


def test_what_is_given_comes_under_the_fields_names():
    places = "--files", "a", "--files", "b,c"
    result, taken = _run(
        "x", "--epochs", "5", "--layers", "q,v", *places, "--fast", "--cpus", "2", "--device", "gpu", "--seed", "1"
    )
    assert result.exit_code == 0, result.output
    given = {"home": Path("h"), "epochs": 5, "layers": ("q", "v"), "files": (Path("a"), Path("b,c")), "fast": True}
    assert taken == [("x", Where("gpu", 2), given, 1)]


@pytest.mark.parametrize(("option", "said"), [("--epochs=0", "greater than"), ("--hidden=1", "No such option")])
def test_what_is_no_option_or_out_of_range_is_refused(option, said):
    result, taken = _run("x", option)
    assert result.exit_code == 2
    assert said in result.output
    assert not taken


def test_a_field_without_a_default_must_be_given(tmp_path):
    result = CliRunner().invoke(pipeline, ["train", "--base=b", f"--output={tmp_path}"])
    assert result.exit_code == 2
    assert "Missing option '--data'" in result.output


@pytest.mark.parametrize("command", ["select", "annotate"])
def test_an_unknown_measure_is_refused_with_those_that_are_known(command, tmp_path):
    (tmp_path / "made.jsonl").touch()
    arguments = [command, str(tmp_path / "made.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    result = CliRunner(env={"COLUMNS": "400"}).invoke(pipeline, [*arguments, "--measure=doubt"])
    assert result.exit_code == 2
    assert "'doubt' is none of entropy, entropy_t5" in result.output


def test_the_help_has_the_fields_texts():
    result, _ = _run("--help")
    assert all(text in result.output for text in ("Trains.", "By commas.", "Which.", "--cpus"))


def test_the_help_has_the_value_of_each_preset():
    app = program("Trains.")

    @app.command()
    @with_options
    def train(given: Annotated[Given, Settings, {"short": {"layers": ("q", "v"), "fast": True}, "long": {}}]) -> None:
        """Trains."""

    lines = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["--help"]).output.splitlines()
    for name, told in (
        ("--epochs", "[default: 3]  [x>=1]"),
        ("--layers", "By commas. [short: q,v; long: a]"),
        ("--fast", "[short: True; long: False]"),
        ("--files", "Repeated."),
        ("--home", "Required.  [required]"),
    ):
        assert [line.rstrip().endswith(f"  {told}") for line in lines if name in line] == [True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sampler", "openai"], "unprm-mini runs here: name the model of the servers"),
        (["--sampler", "chat", "--model", "m"], "it can't continue the prefixes of solutions"),
        (["--sampler", "openai", "--model", "a", "--model", "b", "--tokenizer", "t"], "there are 2"),
    ],
)
def test_what_a_build_could_not_do_is_refused_before_it_begins(
    options: list[str], message: str, tmp_path: Path
) -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        pipeline, ["build", "--out", str(tmp_path), "--url", "http://a", *options]
    )
    assert done.exit_code == 2
    assert message in done.output


def test_the_fields_of_a_model_are_given_as_texts():
    result, taken = _served("--port=x", "--hosts", "a", "--hosts=b,c", "--quiet", "--api-key=k")
    assert result.exit_code == 0, result.output
    assert taken == [{"port": "x", "hosts": "a,b,c", "quiet": True, "api_key": "k"}]
    assert _served()[1] == [{}]


def test_a_model_s_fields_are_shown_with_their_variables():
    output = _served("-h")[0].output
    lines = ("Where. (default: 8000) [env: UNPRM_PORT]", "Which. (default: a,b) [env: UNPRM_HOSTS]")
    assert all(line in output for line in (*lines, "Says little. [env: UNPRM_QUIET]", "Secret. [env: UNPRM_API_KEY]"))


def test_options_are_grouped_by_the_model_that_has_them():
    class Kept(BaseModel):
        GROUP: ClassVar = "Records"

        journal: str | None = Field(default=None, description="Kept.")

    class Both(Kept, Served):
        pass

    app = program("Serves.")

    @app.command()
    @with_options
    def serve(given: Annotated[Given, Both]) -> None:
        """Serves."""

    output = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--help"]).output
    titles = re.findall(r"^(\w+):$", output, re.MULTILINE)
    assert titles == ["Listening", "Records", "Options"]
    assert "--journal <str>" in output.partition("Records:")[2]
    assert "--api-key <key>" in output
    assert "--hosts <str>" in output
    assert "list[" not in output


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("unprm.__main__", ""),
        ("training.__main__", ""),
        ("training.__main__", "evaluate"),
        ("unprm_client.__main__", ""),
        ("server.__main__", ""),
    ],
)
def test_every_program_shows_the_version(module, words):
    app = unprm.__main__.program() if module == "unprm.__main__" else import_module(module).app
    result = CliRunner().invoke(app, [*words.split(), "--version"])
    assert (result.exit_code, result.output) == (0, f"{unprm.__version__}\n")


def test_a_value_of_another_type_is_named_with_its_option(tmp_path):
    result = CliRunner(env={"COLUMNS": "200"}).invoke(pipeline, ["build", "--out", str(tmp_path), "--k=abc"])
    assert result.exit_code == 2
    assert "'--k': Input should be a valid integer, unable to parse string as an integer" in result.output


def test_the_public_names_are_listed():
    assert dir(unprm) == ["__version__", "grade", "load_prm", "score", "vote"]
    assert all(hasattr(unprm, name) for name in dir(unprm))
    assert unprm.__version__ == version("unprm")


def test_the_next_option_is_no_value():
    result, taken = _served("--api-key", "--port=3")
    assert result.exit_code == 2
    assert "'--api-key': expected a value before the next option" in result.output
    assert not taken


@pytest.mark.parametrize(
    ("kind", "status"), [(SettingsInvalid, 2), (ModelInvalid, 1), (OSError, 1), (SafetensorError, 1)]
)
def test_what_a_user_can_mend_is_said_without_a_traceback(
    kind: type[Exception], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    app = program("Fails.")

    @app.command()
    def fail() -> None:
        raise kind("[b] is 1")

    with pytest.raises(SystemExit) as ended:
        run(app, [])
    assert ended.value.code == status
    assert capsys.readouterr().err == "[b] is 1\n"
