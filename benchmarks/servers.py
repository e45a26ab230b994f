"""Servers on loopback, for benchmarks and tests: ours, vLLM's and nginx. Each runs for the time of its `with` block."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil

NGINX = Path(__file__).parents[1] / "docker" / "nginx" / "unprm.conf"
Process = subprocess.Popen[bytes]
SECONDS = 900
"""Timeout in seconds for a server to become ready."""


@contextmanager
def vllm(model: Path, *options: str) -> Iterator[str]:
    """Starts a vLLM server; yields its address."""
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--enforce-eager"]
    with running("/health", *command, *options) as (url, _):
        yield url


@contextmanager
def unprm(*options: str, core: int | None = None) -> Iterator[str]:
    """Starts our server, on one core if `core` is given; yields its address."""
    with unprm_process(*options, core=core) as (url, _):
        yield url


@contextmanager
def unprm_process(*options: str, core: int | None = None) -> Iterator[tuple[str, Process]]:
    """Starts our server, on one core if `core` is given; yields its address and its process."""
    with running("/readyz", "-m", "server", "--log-level=error", *options) as (url, process):
        if core is not None:
            for thread in psutil.Process(process.pid).threads():
                with suppress(ProcessLookupError):  # the thread has ended
                    os.sched_setaffinity(thread.id, {core})
        yield url, process


@contextmanager
def running(health: str, *command: str) -> Iterator[tuple[str, Process]]:
    """Starts Python with `command`, which must accept --host and --port, and waits until the path `health` responds;
    yields its address and its process."""
    port = _free_port()
    whole = [sys.executable, *command, "--host=127.0.0.1", f"--port={port}"]
    with subprocess.Popen(whole, stdout=subprocess.DEVNULL) as process:
        try:
            wait(f"http://127.0.0.1:{port}{health}", process)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()


@contextmanager
def nginx(directory: Path, one: str, other: str) -> Iterator[str]:
    """Starts nginx, configured as in docker/nginx, in front of two servers; yields its address. It writes to
    `directory`."""
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if binary is None:
        raise RuntimeError("this needs nginx (Debian: nginx-light)")
    port = _free_port()
    site = NGINX.read_text("utf-8").replace("listen 8000", f"listen 127.0.0.1:{port}")
    for written, url in (("127.0.0.1:8001", one), ("127.0.0.1:8002", other)):
        site = site.replace(written, url.removeprefix("http://"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    configuration = directory / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {directory}/pid; events {{}}\nhttp {{ access_log off; {folders}\n{site} }}\n", "utf-8"
    )
    with subprocess.Popen([binary, "-c", str(configuration), "-e", "stderr"]) as process:
        try:
            wait(f"http://127.0.0.1:{port}/readyz", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(url: str, process: Process) -> None:
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
