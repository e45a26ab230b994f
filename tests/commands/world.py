"""Where commands of the documentation run as they stand there: names, paths and programs lead to small things."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.clients.programs import environment
from tests.commands.blocks import ROOT
from tests.support import free_port, until

SECONDS = 900.0
"""For a command to end, or a server to be ready: much, because other programs may have the machine."""
REASONERS = (
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-Math-7B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
)
PRM = "Qwen/Qwen2.5-Math-PRM-7B"
REVISION = "0" * 40
WELL = (0, 128 + signal.SIGTERM)
"""Statuses of a server that got a signal to end: uvicorn alone gives itself the signal again once it has finished."""
STAND_IN = """\
#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
"""
SQLITE = """\
#!{python}
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print(*row, sep="|")
"""
"""As much of the program as is used, for machines that lack it."""


class World:
    """A directory in which the project's programs run, with a hub of models that need no network.

    `pip`, `docker` and `vllm` only note their arguments in `calls`. `port` is free, and what curl requests of
    localhost:8000 goes there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._calls = directory / "calls.jsonl"
        self._hub, self._data = directory / "hub", directory / "data-of-the-hub"
        for program in ("docker", "pip", "vllm"):
            self._stand_in(program, directory / "bin" / program)
        self._stand_in("pip", directory / "packages" / "pip.py")  # for `python -m pip`
        if shutil.which("sqlite3") is None:
            self._program(directory / "bin" / "sqlite3", SQLITE)
        (directory / ".venv").symlink_to(sys.prefix)
        (directory / ".curlrc").write_text(f'connect-to = "localhost:8000:127.0.0.1:{self.port}"\n', "ascii")

    @property
    def url(self) -> str:
        """The address of what is served here."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[list[str]]:
        """The calls of stand-ins: a program's name and its words."""
        return [json.loads(line) for line in self._calls.read_text("utf-8").splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        """What commands find in their environment."""
        first = [self.directory / "bin", Path(sys.executable).parent]
        return environment(
            HOME=str(self.directory),
            PATH=os.pathsep.join([*map(str, first), os.environ["PATH"]]),
            PYTHONPATH=os.pathsep.join(map(str, [self.directory / "packages", ROOT])),
            HF_HUB_CACHE=str(self._hub),
            HF_DATASETS_CACHE=str(self._data),
            HF_HUB_OFFLINE="1",
            CALLS=str(self._calls),
            COLUMNS="200",
            UNPRM_PORT=str(self.port),
            OMP_NUM_THREADS="1",  # small models gain little by more, and lose much where other programs run
        )

    def path(self, name: str) -> Path:
        """A path in it, whose parents are there."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def link(self, name: str, place: Path) -> None:
        """Has a path lead to another place."""
        self.path(name).symlink_to(place)

    def publish(self, name: str, place: Path) -> None:
        """Has the hub's model of this name be that of a directory."""
        model = self._hub / f"models--{name.replace('/', '--')}"
        for folder in ("refs", "snapshots"):
            (model / folder).mkdir(parents=True)
        (model / "refs" / "main").write_text(REVISION, "ascii")
        (model / "snapshots" / REVISION).symlink_to(place)

    def publish_data(self, owner: str, name: str, splits: dict[str, Path]) -> None:
        """Has the hub's data set OWNER/NAME, whose NAME is written with underscores here, have the rows of files."""
        from datasets.packaged_modules.json.json import Json

        files = {split: [str(file)] for split, file in splits.items()}
        made = Json(cache_dir=str(self._data), dataset_name=name, data_files=files, hash=REVISION)
        made.download_and_prepare()
        place = self._data / f"{owner}___{name}" / "default" / "0.0.0" / REVISION
        place.parent.mkdir(parents=True)
        shutil.move(made.cache_dir, place)

    def write(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Writes a file of JSON lines."""
        self.path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a file of JSON lines."""
        return [json.loads(line) for line in (self.directory / name).read_text("utf-8").splitlines()]

    def run(self, text: str, **variables: str) -> str:
        """What commands print; fails if one of them does."""
        completed = subprocess.run(
            _shell(text),
            cwd=self.directory,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout
        return completed.stdout

    @contextmanager
    def started(self, text: str, **variables: str) -> Iterator["Started"]:
        """Runs commands until the end of the block, where the last of them gets a signal to end."""
        with self.path("log").open("w", encoding="utf-8") as log:
            # with something behind it the last command is not run in the shell's place, and so is its child
            command = _shell(f"{text}\n:")
            environment = self.environment | variables
            with subprocess.Popen(
                command, cwd=self.directory, env=environment, stdout=log, stderr=subprocess.STDOUT
            ) as shell:
                try:
                    yield Started(shell, self.path("log"))
                finally:
                    for child in psutil.Process(shell.pid).children() if shell.poll() is None else ():
                        child.terminate()
                    shell.wait(SECONDS)

    @contextmanager
    def serving(self, text: str, health: str | None = "/readyz", **variables: str) -> Iterator[httpx.Client]:
        """A client of the server that the last command starts, which gets a signal at the end of the block, and has to
        end then.

        Waits until the server answers at `health` with status 200; None: until it answers at all.
        """
        with httpx.Client(base_url=self.url, timeout=SECONDS, trust_env=False) as client:
            with self.started(text, **variables) as started:
                started.wait_for(lambda: _answers(client, health))
                yield client
            assert started.shell.returncode in WELL, started.text

    def _stand_in(self, name: str, path: Path) -> None:
        self._program(path, STAND_IN, name=name)

    def _program(self, path: Path, text: str, **more: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=sys.executable, **more), "utf-8")
        path.chmod(0o755)


@dataclass(frozen=True, slots=True)
class Started:
    """Commands on their way, and what they write."""

    shell: "subprocess.Popen[bytes]"
    log: Path

    @property
    def text(self) -> str:
        """What they wrote so far."""
        return self.log.read_text("utf-8")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until they have brought it about; fails with what they wrote if they end before."""

        def come() -> bool:
            assert self.shell.poll() is None, self.text
            return condition()

        wait(come)


def wait(condition: Callable[[], bool]) -> None:
    """Until something has come about."""
    until(condition, SECONDS, 0.2)


def _answers(client: httpx.Client, path: str | None) -> bool:
    try:
        return client.get(path or "/").status_code == 200 or path is None
    except httpx.TransportError:
        return False


def _shell(text: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", text]


PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
RIGHT = ["Step 1: 4 * 15 = 60.", "Step 2: 23 + 60 = 83. The answer is \\boxed{83}."]
WRONG = ["Step 1: 4 * 15 = 50.", "Step 2: 23 + 50 = 73. The answer is \\boxed{73}."]
REQUEST = {"problem": PROBLEM, "solutions": [RIGHT, WRONG]}


def rewards(client: httpx.Client, **more: Any) -> tuple[float, float]:
    """Of the right solution and of the wrong one."""
    answer = client.post("/score_steps", json=REQUEST | more)
    assert answer.status_code == 200, answer.text
    right, wrong = answer.json()["solutions"]
    return right["reward"], wrong["reward"]
