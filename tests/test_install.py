"""The package as it is installed: one wheel, and for each command the packages of its extra and no others."""

import json
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer

import training.__main__
import unprm_client.__main__
from tests.clients.programs import listening
from tests.fakes import openai_server
from tests.installed import Environment
from tests.support import PATIENCE, ROOT
from unprm.__main__ import NAMES, PROGRAMS
from unprm_client import Client

PLACES = {
    "unprm": "unprm",
    "server": "unprm/server",
    "training": "unprm/training",
    "clients/unprm_client": "unprm_client",
}
"""Folders of the checkout, and where the wheel has them."""
URL = "http://127.0.0.1:1"
"""Where nothing listens."""
REQUEST = {
    "problem": "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?",
    "solutions": ["Step 1: 23 + 45 = 68. The answer is \\boxed{68}."],
}
"""Of the demonstration's domain, so that its scores are shown."""
CALL = """
import json, sys
from unprm_client import Client
with Client(sys.argv[1]) as client:
    vote = client.vote(**json.load(sys.stdin), strategy="majority")
print(json.dumps([vote.answer, sorted({"typer", "rich", "unprm.election", "unprm.server"} & set(sys.modules))]))
"""
IMPORT_ALL = """
import importlib, json, pkgutil, unprm, unprm_client
missing = set()
for package in (unprm, unprm_client):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(".__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                missing.add(error.name.partition(".")[0])
print(json.dumps(sorted(missing)))
"""


def test_the_wheel_has_every_file(wheel: Path) -> None:
    expected = {
        f"{target}/{file.relative_to(ROOT / folder).as_posix()}"
        for folder, target in PLACES.items()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"unprm/py.typed", "unprm/server/page/files/index.html", "unprm/mini/weights/base/config.json"} < expected
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == expected


def test_the_client_asks_the_server(environment_with: Callable[[str], Environment]) -> None:
    """Each with the packages of its extra alone."""
    client, server = environment_with(""), environment_with("serve")
    request = json.dumps(REQUEST)
    with listening(str(server.script), "serve", program=str(server.python), PYTHONPATH="") as url:
        with Client(url, attempts=1000, timeout=5 * PATIENCE) as waiting:
            waiting.model()
        assert json.loads(client.run("-c", CALL, url, sent=request)) == ["68", []]
        scored = client.unprm("score", "--url", url, "--json", sent=request)
    assert json.loads(scored)["solutions"][0]["step_scores"]


@contextmanager
def serving_read_only(gateway: Environment, *words: str) -> Iterator[str]:
    """A server that can write neither to its home nor where it is, as in an image: nobody can in /proc."""
    program = "--chdir=/proc", str(gateway.python), str(gateway.script)
    with listening(*program, *words, program="env", PYTHONPATH="", HOME="/proc") as url:
        yield url


def test_a_gateway_needs_no_torch(environment_with: Callable[[str], Environment]) -> None:
    gateway = environment_with("gateway")
    words = "serve", "--model", "checks", "--upstream-url", URL
    with serving_read_only(gateway, *words) as url, Client(url, attempts=1000, timeout=5 * PATIENCE) as waiting:
        assert waiting.model().engine == "checks"
    refused = gateway.unprm("serve", "--port", "0", status=2).splitlines()[-1]
    assert refused.endswith("a PRM here needs PyTorch: pip install '.[serve]' in unprm's directory, or --engine remote")
    for module in ("torch", "peft"):
        assert f"No module named '{module}'" in gateway.run("-c", f"import {module}", status=1)


def test_a_prm_on_a_server_of_vllm_needs_no_torch_here(environment_with: Callable[[str], Environment]) -> None:
    gateway = environment_with("gateway")

    def vllm(body: Any) -> Any:
        if body is None:
            return {"data": [{"id": "prm"}]}
        rows = [[[float(token % 7 - 3)] for token in ids] for ids in body["input"]]
        return {"data": [{"index": index, "data": data} for index, data in enumerate(rows)]}

    with openai_server(vllm) as (pooling, seen):
        words = "serve", "--engine", "remote", "--url", pooling
        with serving_read_only(gateway, *words) as url, Client(url, attempts=1000, timeout=5 * PATIENCE) as waiting:
            assert (waiting.model().engine, waiting.model().dtype) == ("remote", "auto")
            (scores,) = json.loads(gateway.unprm("score", "--url", url, "--json", sent=json.dumps(REQUEST)))[
                "solutions"
            ]
    last = seen[-1].body["input"][-1][-1]
    assert scores["step_scores"][-1] == pytest.approx(1 / (1 + math.exp(3 - last % 7)))


def test_without_extras_a_command_works_or_says_which_it_needs(environment_with: Callable[[str], Environment]) -> None:
    base = environment_with("")
    assert base.unprm("--version") == f"{metadata.version('unprm')}\n"
    assert base.unprm("--help") == run("--help").stdout
    assert json.loads(base.unprm("grade", sent='{"answer": "0.5", "gold": "1/2"}'))["correct"]
    assert "127.0.0.1:1 can't be reached" in base.unprm("vote", "--url", URL, sent=json.dumps(REQUEST), status=1)
    assert "No module named 'torch'" in base.run("-c", "import torch", status=1)
    packages = {"mcp": "mcp", "serve": "uvicorn", "scale": "starlette"}
    for name, program in NAMES.items():
        if program.extra:
            needed = f"needs {packages.get(name, 'tokenizers')}, which is not installed"
            assert (
                base.unprm(name, status=1)
                == f"unprm {name} {needed}: pip install '.[{program.extra}]', in the directory of its source\n"
            )


def test_a_command_whose_program_is_left_out(environment_with: Callable[[str], Environment], tmp_path: Path) -> None:
    """Images have the server and the client only."""
    (tmp_path / "unprm").symlink_to(ROOT / "unprm")
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['unprm', 'train']"
    refused = environment_with("").run("-c", f"{first}; from unprm.__main__ import main; main()", status=1)
    assert (
        refused == "unprm train is not in this installation: pip install '.[train]', in the directory of its source\n"
    )


def test_every_module_finds_what_the_extra_brings(
    environment_with: Callable[[str], Environment], tmp_path: Path
) -> None:
    """But for those of other extras, which the command names."""
    train = environment_with("train")
    assert json.loads(train.run("-c", IMPORT_ALL)) == ["mcp", "ray", "vllm"]
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"problem": "What is 3 + 4?", "answer": "7"}\n', "utf-8")
    options = ("--model", "unprm-mini", "--questions", str(questions), "--output", str(tmp_path / "samples.jsonl"))
    refused = train.unprm("sample", "--sampler", "vllm", *options, status=1)
    assert refused.endswith(
        "unprm sample needs vllm, which is not installed: pip install '.[vllm]', in the directory of its source\n"
    )


def test_every_command_is_found_by_its_name() -> None:
    apps = {"training.__main__": training.__main__.app, "unprm_client.__main__": unprm_client.__main__.app}
    for module, app in apps.items():
        named = {name for name, program in NAMES.items() if program.module == module}
        assert named == typer.main.get_command(app).commands.keys()  # type: ignore[attr-defined]
    assert all(program.command(name).name == name for name, program in NAMES.items())
    assert len(NAMES) == sum(len(program.commands) for program in PROGRAMS)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "unprm", *words], cwd=ROOT, capture_output=True, text=True)


def test_without_a_command_all_are_shown() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stderr == run("--help").stdout
    assert set(NAMES) <= set(done.stderr.split())


def test_what_is_no_command_is_answered_with_one_like_it() -> None:
    done = run("trai")
    assert done.returncode == 2
    assert done.stderr.endswith("No such command 'trai'. Did you mean 'train'?\n")


def test_the_program_says_its_version_and_what_a_command_is() -> None:
    assert run("--version").stdout == f"{metadata.version('unprm')}\n"
    done = run("models", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: unprm models [OPTIONS]")
    assert "published process reward models" in done.stdout
    assert "--port" not in done.stdout
