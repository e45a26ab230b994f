"""A server of vLLM on loopback, for benchmarks and tests."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx


@contextmanager
def serving(model: Path, *options: str) -> Iterator[str]:
    """Serves a model until the end of the block; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--enforce-eager"]
    command += ["--host", "127.0.0.1", "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(2400):
        assert process.poll() is None, "vLLM's server did not start"
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("vLLM's server was not ready after four minutes")
