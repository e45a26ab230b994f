"""Servers that are processes of their own."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support import PATIENCE, ROOT, until


class Process:
    """A server process, its standard error in `log`."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        command = (sys.executable, *command, "--port=0")
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=stderr)
        until(lambda: "the page is at" in self.text or self.process.poll() is not None)
        self.url = re.findall(r"https?://127\.0\.0\.1:\d+", self.text)[0]
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def connect(self, request: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])))
        connection.sendall(request)
        return connection

    @property
    def text(self) -> str:
        return self.log.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def process(log: Path, *options: str, gate: Path | str = ROOT) -> Iterator[Process]:
    """With the fake engine, whose batches take until there is this file; with `lost`, all fail."""
    with started(log, "-W", "error", "-m", "tests.server.fake_server", str(gate), *options) as server:
        yield server


@contextmanager
def started(log: Path, *command: str) -> Iterator[Process]:
    server = Process(log, *command)
    try:
        yield server
    finally:
        server.http.close()
        server.process.kill()
        server.process.wait()
