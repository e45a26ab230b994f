"""llama.cpp's own server with a small model, for tests of what talks to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xllamacpp

NAME = "a-model"
SLOTS = 2


@contextmanager
def llama_server(file: Path) -> Iterator[str]:
    """Serves a GGUF file with `SLOTS` slots in a process of its own until the end of the block; yields the address."""
    command = [sys.executable, "-m", "tests.llama_server", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def serve(file: str) -> None:
    """Serves until it is terminated; says at which address. It samples from the model's own distribution, without
    llama.cpp's cuts of it."""
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = file, {NAME}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    params.cache_ram_mib = 0
    params.ui, params.verbosity = False, 1
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # also in llama.cpp's threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait((signal.SIGTERM,))
    os._exit(0)  # freed in the ordinary way, the server first waits for the answers that it is writing


if __name__ == "__main__":
    serve(sys.argv[1])
