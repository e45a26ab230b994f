"""llama.cpp's own server with a small model, for tests of what talks to it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unprm.upstream import configure, serve

NAME = "a-model"
SLOTS = 2


@contextmanager
def llama_server(file: Path) -> Iterator[str]:
    """Serves a GGUF file with `SLOTS` slots in a process of its own until the end of the block; yields the address."""
    command = [sys.executable, "-m", "tests.llama_server", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1].removesuffix("/v1")
        finally:
            server.terminate()


if __name__ == "__main__":
    import xllamacpp

    serve(configure(xllamacpp.CommonParams(), NAME, sys.argv[1], 0, SLOTS, threads=1, tokens=512))
