"""What tests of all kinds need: where files are, free ports, patience, and the tables of a page."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from unprm.types import StepScores

P = ParamSpec("P")

ROOT = Path(__file__).parents[1]
"""The checkout."""
TEST_DATA = ROOT / "tests" / "data"

PATIENCE = 120.0
"""Seconds that something may take which takes a moment: on a machine that has other work, long."""


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """A port on which nothing listens."""
    (port,) = free_ports(1)
    return port


def until(condition: Callable[[], bool], seconds: float = PATIENCE, every: float = 0.005) -> None:
    """Waits for what other threads or processes do: looks each `every` seconds, and fails after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come about in {seconds:g} s"
        time.sleep(every)


def asynchronous(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a coroutine as a test, which must not hang."""

    @wraps(test)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), PATIENCE))

    return run


def tables(page: str) -> list[list[dict[str, str]]]:
    """The tables of a page: the cells of each row by the names of their columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        names, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(names, row, strict=True)) for row in rows])
    return found


class Columns(NamedTuple):
    """The fields of several `StepScores`, each as a list."""

    values: list[tuple[float, ...]]
    computed: list[int]
    tokens: list[int]
    missing: list[int]


def columns(scores: Sequence[StepScores]) -> Columns:
    """The scores of at least one solution, field by field."""
    return Columns(*map(list, zip(*scores, strict=True)))


MODELS = {"torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "numpy"}
"""Packages that models need."""


def imported(*command: str) -> set[str]:
    """The packages that Python imports as it runs a command."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "clients")))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
