"""Programs that tests start as a user would."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.support import PATIENCE, ROOT, free_port, until


def environment(**more: str) -> dict[str, str]:
    """The environment without variables that whoever runs the tests may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("UNPRM_")} | more


def printed(*words: str, **variables: str) -> str:
    """What a program prints; fails unless it ends with status 0."""
    completed = subprocess.run(
        words, cwd=ROOT, env=environment(**variables), capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@contextmanager
def listening(*words: str, program: str = sys.executable, **variables: str) -> Iterator[str]:
    """The address of a program that takes --port, by default one of Python's, until the end of the block."""
    port = free_port()
    command = [program, *words, "--port", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(**variables), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _wait(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            errors = process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in errors


def _wait(port: int, process: "subprocess.Popen[str]") -> None:
    def listens() -> bool:
        assert process.poll() is None
        try:
            httpx.get(f"http://127.0.0.1:{port}/")
        except httpx.TransportError:
            return False
        return True

    until(listens, every=0.1)
