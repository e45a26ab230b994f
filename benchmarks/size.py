"""Real model sizes without a GPU: random checkpoints in the shapes of Qwen2.5-Math-7B and of a model of 1.5 billion
parameters, written in the hub's layout and served on a CPU by a new process, one after the other.

Takes about 10 minutes, 40 GB of disk and 24 GB of memory.

Weights that need no conversion stay in the mapped file, and only the embedding rows of tokens that occur are read from
it; in these cases measured memory is compared with the plan without the embedding.
"""

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from rich.console import Console

from benchmarks import models, queries, servers
from benchmarks.baselines import Plain, padded
from benchmarks.models import ONE_AND_A_HALF_BILLION, SEVEN_BILLION
from benchmarks.queries import Query
from benchmarks.timing import Comparison, median
from unprm.checkpoints.files import load_base, load_tokenizer
from unprm.engines.torch.devices import multiplies_bf16_fast
from unprm.engines.torch.quantized import widen_all
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm_client import Client

DISK = 40 * 10**9
CANDIDATES, ROUNDS, SECONDS = 8, 2, 900
console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Served:
    """Measurements of a server. `ready`, `vote`: seconds until it was ready, and for a vote (median). `serving`: peak
    bytes of the model afterwards, including mapped files; `planned`: the server's plan for these. `tokens`, `computed`:
    tokens of all votes, and those of them that were run.
    """

    ready: float
    vote: float
    serving: float
    planned: float
    tokens: int
    computed: int


def comparisons() -> list[Comparison]:
    """Measures one size after the other; each is written, served and deleted."""
    if shutil.disk_usage(tempfile.gettempdir()).free < DISK:
        raise SystemExit(f"this benchmark needs 40 GB of disk in {tempfile.gettempdir()}; TMPDIR names another place")
    program = _program()
    return [
        *_measured("7 billion parameters", SEVEN_BILLION, ["bfloat16"], program, adapter=True),
        *_measured("1.5 billion parameters", ONE_AND_A_HALF_BILLION, ["bfloat16", "int8"], program),
    ]


def _measured(
    name: str, shape: dict[str, int], dtypes: Sequence[str], program: float, adapter: bool = False
) -> list[Comparison]:
    votes = [queries.single(seed, CANDIDATES) for seed in range(ROUNDS)]
    unread = 2 * shape["vocab_size"] * shape["hidden_size"]
    with tempfile.TemporaryDirectory() as directory:
        model = models.write_shards(Path(directory), shape, adapter)
        console.print(f"{name}: written")
        served = {dtype: _served(model, dtype, votes, program, unread) for dtype in dtypes}
        plain = _padded(Path(directory), votes)
    rows = []
    for dtype, measured in served.items():
        what, rate = f"{name}, {dtype}", measured.computed / ROUNDS / measured.vote
        work = f"{measured.tokens / ROUNDS:,.0f} tokens, {measured.computed / ROUNDS:,.0f} run, {rate:.0f} a second"
        rows += [
            Comparison(
                f"{what}, ready after {measured.ready:.0f} s: a vote of {CANDIDATES}, {work}",
                measured.vote,
                "padded, bfloat16",
                plain,
                ROUNDS,
            ),
            Comparison(f"{what}: memory while it serves", measured.serving, "as planned", measured.planned, 1, "B"),
        ]
    return rows


def _program() -> float:
    """Bytes of the server itself: its memory with a small model, minus that model's weights."""
    with watched() as taken, servers.unprm("--prefix-cache-gb=0") as (url, _), Client(url) as client:
        memory = client.model().memory
        assert memory is not None
        time.sleep(1.0)
    return max(taken) - memory.weights


def _served(model: Path, dtype: str, votes: Sequence[Query], program: float, unread: int) -> Served:
    options = (f"--dtype={dtype}", "--max-solution-tokens=1024", "--prefix-cache-gb=0.05")
    limits = (f"--max-request-seconds={SECONDS}", f"--max-batch-seconds={SECONDS}")
    start = time.perf_counter()
    with (
        watched() as taken,
        servers.unprm(*options, *limits, model=model) as (url, _),
        Client(url, timeout=SECONDS) as client,
    ):
        ready = time.perf_counter() - start
        taken.clear()
        memory = client.model().memory
        assert memory is not None
        seconds, tokens, computed = [], 0, 0
        for problem, solutions in votes:
            start = time.perf_counter()
            usage = client.vote(problem, solutions, "wrf").usage
            seconds.append(time.perf_counter() - start)
            tokens, computed = tokens + usage.tokens, computed + usage.computed_tokens
    planned = memory.weights + memory.slots + memory.activations - (unread if dtype == "bfloat16" else 0)
    served = Served(ready, statistics.median(seconds), max(taken) - program, planned, tokens, computed)
    console.print(f"{model}, {dtype}: {served}, {memory}")
    return served


def _padded(base: Path, votes: Sequence[Query]) -> float:
    """Seconds for a vote in padded batches (median)."""
    network, tokenizer = load_base(base, torch.bfloat16), load_tokenizer(base)
    config = PrmConfig.for_base(tokenizer, "size", ".")
    form = UnprmFormat(tokenizer, config)
    plain = Plain(network, Verdicts(config.positive_id, config.negative_id))
    if not multiplies_bf16_fast(torch.device("cpu")):
        widen_all(plain.decoder)  # makes the baseline as fast as possible on this CPU
    items = [[form.encode(problem, steps) for steps in solutions] for problem, solutions in votes]
    return median(lambda batch: padded(plain, batch), items)


@contextmanager
def watched() -> Iterator[list[int]]:
    """A list that grows by the memory of all child processes, in bytes with mapped files, ten times a second during the
    block."""
    uses: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            sizes = []
            for child in psutil.Process().children():
                with suppress(psutil.NoSuchProcess):
                    sizes.append(child.memory_info().rss)
            uses.append(sum(sizes))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield uses
    finally:
        over.set()
        thread.join()
