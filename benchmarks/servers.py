"""Servers on loopback, for benchmarks and tests: ours and vLLM's. Each runs for the time of its `with` block."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from unprm import mini

Process = subprocess.Popen[bytes]
SECONDS = 900
"""Timeout in seconds for a server to become ready."""


@contextmanager
def unprm(*options: str, model: str | Path = mini.NAME, device: str = "cpu") -> Iterator[tuple[str, Process]]:
    """Starts our server; yields its address and its process."""
    chosen = [f"--model={model}", f"--device={device}", "--log-level=error"]
    with python("/readyz", "-m", "server", *chosen, *options) as (url, process):
        yield url, process


@contextmanager
def vllm(model: Path, *options: str) -> Iterator[str]:
    """Starts a vLLM server; yields its address."""
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--enforce-eager"]
    with python("/health", *command, *options) as (url, _):
        yield url


@contextmanager
def python(health: str, *command: str) -> Iterator[tuple[str, Process]]:
    """Starts Python with `command`, which must accept --host and --port, and waits until the path `health` responds;
    yields its address and its process."""
    port = free_port()
    with running([sys.executable, *command, "--host=127.0.0.1", f"--port={port}"], port, health) as served:
        yield served


@contextmanager
def running(command: Sequence[str], port: int, health: str) -> Iterator[tuple[str, Process]]:
    """Runs a server that listens on this port, and waits until the path `health` responds."""
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _wait(f"{url}{health}", process)
            yield url, process
        finally:
            process.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, process: Process) -> None:
    """Waits until the address responds with 200; raises `AssertionError` if the process ends or after `SECONDS`."""
    until = time.monotonic() + SECONDS
    with httpx.Client() as client:  # only one, as creating a client takes longer than a request
        while time.monotonic() < until:
            assert process.poll() is None, "the server did not start"
            with suppress(httpx.TransportError):
                if client.get(url).status_code == 200:
                    return
            time.sleep(0.1)
    raise AssertionError(f"the server was not ready after {SECONDS} s")
