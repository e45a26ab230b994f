"""What each program that the documentation names understands: options that it lacks are found without running it."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import xllamacpp
import yaml
from dockerfile_parse import DockerfileParser
from typer.testing import CliRunner

import benchmarks.__main__
import research.__main__
import training.__main__
import unprm.__main__
import unprm_client.__main__
from server.scale.settings import ScaleSettings
from server.settings import Settings
from tests.commands.blocks import ROOT
from tests.server.options import read
from unprm.__main__ import NAMES

APPS: dict[str, typer.Typer | Callable[..., None]] = {
    "training": training.__main__.app,
    "benchmarks": benchmarks.__main__.main,
    "research": research.__main__.app,
    "unprm_client": unprm_client.__main__.app,
}
SETTINGS = {"server": Settings, "server.scale": ScaleSettings}
ALONE = (["models"], ["examples"], ["--help"])
"""What a server takes instead of options."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"].keys()
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
VALUED = {"--build-arg", "--build-context", "--entrypoint", "-f", "-t", "-p", "-v", "--gpus", "--shm-size", "--tmpfs"}
"""Options of Docker's that are used here, and are followed by a value."""


def check(words: Sequence[str], directory: Path) -> None:
    """Fails if the program that is named first does not know an option or a name. `directory` is an empty one, for
    what is to be there."""
    program, *more = _without_what_stands_before(words)
    if program == "python":
        check_module(more[more.index("-m") + 1 :], directory)
    elif program == "torchrun":
        from torch.distributed.run import get_args_parser

        parsed = get_args_parser().parse_args(more)
        assert parsed.module
        check_module([parsed.training_script, *parsed.training_script_args], directory)
    elif program == "training":
        check_module(["training", *more], directory)
    elif program == "unprm":
        if more[0] in NAMES:
            module = NAMES[more[0]].module.removesuffix(".__main__")
            check_module([module, *(more[1:] if more[0] in ("serve", "scale") else more)], directory)
        else:
            assert CliRunner().invoke(unprm.__main__.program(), more).exit_code == 0, more
    elif program == "pip":
        check_pip(more)
    elif program == "make":
        assert {word for word in more if "=" not in word} <= TARGETS
        subprocess.run(["make", "--dry-run", *more], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    elif program == "docker":
        check_docker(more)
    elif program == "llama-server":
        library = Path(xllamacpp.__file__).with_name("xllamacpp.abi3.so").read_bytes()
        assert all(f"\0{word}\0".encode() in library for word in more if word.startswith("--"))
    else:
        raise AssertionError(f"nobody knows the program {program}")


def ours(words: Sequence[str]) -> list[str]:
    """The module that has a command, as in `APPS`, and its words; empty if it is of none of these."""
    program, *more = _without_what_stands_before(words)
    if program == "unprm" and more[0] in NAMES:
        more.insert(0, NAMES[more[0]].module.removesuffix(".__main__"))
    elif program == "python":
        more = more[1:]
    return more if more[0] in APPS else []


def missing(words: Sequence[str]) -> set[str]:
    """What a command of ours requires and isn't given."""
    module, *more = ours(words)
    command: Any = typer.main.get_command(APPS[module])
    while named := getattr(command, "commands", None):
        command = named[more.pop(0)]
    given, _, _ = command.make_parser(command.make_context("", [], resilient_parsing=True)).parse_args(more)
    return {param.name for param in command.params if param.required} - {name for name in given if given[name]}


def check_module(words: Sequence[str], directory: Path) -> None:
    """As `check`, of `python -m`."""
    module, *more = words
    if module in SETTINGS:
        if more not in ALONE:
            for word in more:
                (directory / word).mkdir(parents=True, exist_ok=True)
            read(SETTINGS[module], more)
    elif app := APPS.get(module):
        if not isinstance(app, typer.Typer):
            app, main = typer.Typer(), app
            app.command()(main)
        result = CliRunner().invoke(app, [*more, "--help"])
        assert result.exit_code == 0, result.output
    elif module == "pip":
        check_pip(more)
    elif more:
        subprocess.run([sys.executable, "-m", module, *more, "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    else:  # it may take no options, and would run
        assert find_spec(module)


def check_pip(words: Sequence[str]) -> None:
    """What is installed is this project with some of its extras; or PyTorch's build for CPUs, of the version that
    is tested."""
    verb, *more = words
    assert verb == "install"
    if more[1:] == ["--index-url", "https://download.pytorch.org/whl/cpu"]:
        assert more[0] in (ROOT / "constraints.txt").read_text("utf-8").splitlines(), more[0]
        return
    for word in more:
        if word == "-e":
            continue
        found = re.fullmatch(r"(?:\.|unprm)(?:\[([\w,]+)\])?", word)
        assert found, word
        assert not found[1] or set(found[1].split(",")) <= EXTRAS


def check_docker(words: Sequence[str]) -> None:
    """Files are there, ports and volumes those of the image, and what stands behind the image is the server's."""
    verb, *more = words
    options, rest = _options(more)
    if verb == "compose":
        for name in options["-f"]:
            services = yaml.safe_load((ROOT / name).read_text("utf-8"))["services"]
            assert "unprm" in services
        assert rest == ["up"]
    elif verb == "build":
        assert (ROOT / options["-f"][0]).is_file()
        assert options["-t"]
        assert [(ROOT / place).is_dir() for place in rest] == [True]
    else:
        assert verb == "run"
        image, *arguments = rest
        declared = instructions(ROOT / "docker" / {"unprm:cuda": "Dockerfile"}[image])
        assert [port.rpartition(":")[2] for port in options["-p"]] == declared["EXPOSE"]
        assert [volume.rpartition(":")[2] for volume in options["-v"]] == declared["VOLUME"]
        if "--entrypoint" in options:
            assert [*options["--entrypoint"], *arguments[:2]] == ["python3", "-m", "server.scale"]
            read(ScaleSettings, arguments[2:])
        else:
            read(Settings, arguments)


def instructions(file: Path) -> dict[str, list[str]]:
    """The values of each instruction of a Dockerfile."""
    found: dict[str, list[str]] = {}
    with file.open("rb") as opened:
        for row in DockerfileParser(fileobj=opened).structure:
            found.setdefault(row["instruction"], []).append(row["value"])
    return found


def commented(file: Path) -> Iterator[str]:
    """The commands of Docker's in the comments of a file."""
    lines = [line.removeprefix("#").strip() for line in file.read_text("utf-8").splitlines() if line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if found := re.search(r"((?:\w+=\S+ )*docker (?:build|run|compose) .*)", line):
            yield found[1]


def _without_what_stands_before(words: Sequence[str]) -> list[str]:
    """Without variables and the path of the environment; of ``name=$(program)``, the program."""
    if (captured := re.match(r"\w+=\$\(", words[0])) and words[-1].endswith(")"):
        words = [words[0][captured.end() :], *words[1:-1], words[-1][:-1]]
    first = next(number for number, word in enumerate(words) if not re.match(r"\w+=", word))
    return [words[first].removeprefix(".venv/bin/"), *words[first + 1 :]]


def _options(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Docker's options by name, and what follows them."""
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        assert name in VALUED, name
        found.setdefault(name, []).append(rest.pop(0))
    return found, rest
