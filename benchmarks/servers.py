"""Servers on loopback, for benchmarks and tests: ours, and vLLM's. Each lives as long as its block."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

Process = subprocess.Popen[bytes]
SECONDS = 240
"""Time to be ready."""


@contextmanager
def vllm(model: Path, *options: str) -> Iterator[str]:
    """A server of vLLM; its address."""
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--enforce-eager"]
    with _running("/health", *command, *options) as (url, _):
        yield url


@contextmanager
def unprm(*options: str) -> Iterator[str]:
    """Our server; its address."""
    with unprm_process(*options) as (url, _):
        yield url


@contextmanager
def unprm_process(*options: str) -> Iterator[tuple[str, Process]]:
    """Our server; its address, and its process."""
    with _running("/readyz", "-m", "server", "--log-level=error", *options) as own:
        yield own


@contextmanager
def _running(health: str, *command: str) -> Iterator[tuple[str, Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    whole = [sys.executable, *command, "--host=127.0.0.1", f"--port={port}"]
    with subprocess.Popen(whole, stdout=subprocess.DEVNULL) as process:
        try:
            _wait(f"http://127.0.0.1:{port}{health}", process)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()


def _wait(url: str, process: Process) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the server did not start"
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server was not ready after {SECONDS} s")
