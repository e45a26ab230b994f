"""A PRM in the shape of Qwen2.5-Math-7B with random weights on a GPU, against the card's measured peak: the engine, its
kernels, a server of a checkpoint with an adapter over HTTP, and the sampler. Takes some minutes, 16 GB of disk in
TMPDIR and 24 GB of the card.

What ends in an error is left out, and the rest goes on. With `--device cpu` a model of two layers takes the same way in
a minute, and its figures mean nothing.
"""

import gc
import json
import random
import statistics
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from rich.console import Console
from tokenizers import Tokenizer
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks import clients, models, servers
from benchmarks.baselines import Plain, padded
from benchmarks.clients import Request
from benchmarks.models import SEVEN_BILLION
from benchmarks.timing import Comparison, median, timed
from unprm.checkpoints.files import load_tokenizer
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.readers import AtPositions
from unprm.formats.family import Verdicts
from unprm.models.options import EngineOptions
from unprm.samplers.decoding import DecodingBatch, Row
from unprm.types import Encoded, ModelDescription, SamplingSettings

ROUNDS, KERNELS, PEAK = 3, 12, "the matrix product's peak"
WORDS = ("+", "-", "=", "12", "7", "pens", "left", "takes", "red")
console = Console(stderr=True)


@dataclass(frozen=True)
class Workload:
    """What is measured. `matrix`: size of the square matrices whose product is the peak. Of a vote: its `candidates`
    of `length` tokens, after a problem of `problem` tokens; `clients`: numbers of clients that send votes, one each.
    `singles`: solutions sent alone. `beams`: width and depth of the beam search. `long`: tokens of the long problem.
    `shard`: most bytes of a file of weights. `sampled`: the sampler's shape; `rows`: texts that it writes at once."""

    shape: Mapping[str, int]
    matrix: int
    candidates: int
    length: int
    problem: int
    clients: Sequence[int]
    singles: int
    beams: tuple[int, int]
    long: int
    shard: int
    sampled: Mapping[str, int]
    rows: Sequence[int]


TINY = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16_384,
    "tie_word_embeddings": False,
}
CARD = Workload(
    shape=SEVEN_BILLION | {"max_position_embeddings": 16_384},
    matrix=8192,
    candidates=64,
    length=300,
    problem=150,
    clients=(1, 8, 32),
    singles=20,
    beams=(8, 10),
    long=7500,
    shard=models.SHARD,
    sampled=models.ONE_AND_A_HALF_BILLION,
    rows=(1024, 256, 64),
)
REHEARSAL = Workload(
    shape=TINY,
    matrix=128,
    candidates=8,
    length=60,
    problem=30,
    clients=(1, 2),
    singles=3,
    beams=(2, 3),
    long=1000,
    shard=200_000,
    sampled=TINY,
    rows=(8,),
)


def comparisons(device: str = "cuda") -> Iterator[Comparison]:
    """Measures in bf16, and yields each figure as it comes. Raises `SystemExit` without the device, and at the end if
    a part failed."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a GPU that PyTorch sees; --device cpu rehearses it")
    yield from measure(CARD if device == "cuda" else REHEARSAL, torch.device(device))


def measure(work: Workload, device: torch.device) -> Iterator[Comparison]:
    """Measures the workload on a device; errors as `comparisons`."""
    operations = _peak(device, work.matrix)
    failed = 0
    for part in (_engine, _server, _sampler):
        try:
            yield from part(work, device, operations)
        except Exception:  # the time on a card is short: the other part is measured all the same
            traceback.print_exc()
            failed += 1
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if failed:
        raise SystemExit(f"{failed} of 3 parts ended in an error")


def _engine(work: Workload, device: torch.device, operations: float) -> Iterator[Comparison]:
    """The engine in this process, without a cache."""
    with device:
        network = Qwen2ForCausalLM._from_config(Qwen2Config(**work.shape), dtype=torch.bfloat16).eval()
    plain = Plain(network, Verdicts(11, 12))
    plain.head.to(device)
    peak = operations / (2 * plain.weights)
    batches = [_vote(random.Random(seed), work) for seed in range(ROUNDS + 1)]
    padded(plain, batches[0][:8])
    baseline = median(lambda items: _synchronised(device, padded, plain, items), batches[1:])
    expected = padded(plain, batches[0])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    # from here on the network uses our attention
    about = ModelDescription(
        name="7b", family="", engine="torch", device=str(device), dtype="bfloat16", max_tokens=4096
    )
    engine = TorchEngine(AtPositions(plain.decoder, plain.head, device), None, about, EngineOptions().batch_tokens, 0)  # type: ignore[arg-type]
    with closing(engine):
        start = time.perf_counter()
        scored = engine.score(batches[0])
        first = time.perf_counter() - start
        recorded = timed(engine.record)
        seconds = median(engine.score, batches[1:])
        yield Comparison("the first vote, for which layers are compiled", first, "a later one", seconds)
        yield Comparison("small passes recorded as graphs", recorded)
        computed = models.distinct(batches[0])
        close = models.apart([each.values for each in scored], expected)
        share = sum(each.computed for each in scored) / computed
        what = f"{work.candidates} candidates of {work.length} tokens, {share:.3f} × their distinct tokens run"
        yield Comparison(f"{what}, scores within {close:.0e}", seconds, "padded batches of 8", baseline, ROUNDS)
        yield Comparison("tokens computed", computed / seconds, PEAK, peak, ROUNDS, "/s", 1.0)
        if device.type == "cuda":
            weights = sum(parameter.nbytes for parameter in network.parameters())
            yield Comparison("memory", torch.cuda.max_memory_allocated(), "the weights", weights, unit="B")
        single = [[each[0]] for each in batches[1:]]
        alone = median(engine.score, single)
        yield Comparison("a single solution", alone, PEAK, len(single[0][0].ids_to_last_position) / peak, ROUNDS)
        engine.record(sizes=())
        yield Comparison("a single solution", alone, "launched kernel by kernel", median(engine.score, single), ROUNDS)
        engine.record()
        halves = median(partial(engine.margins, pass_tokens=computed // 2 + 1), batches[1:])
        yield Comparison("a vote", seconds, "in two passes", halves, ROUNDS)
        for name, items, whole in (("a vote", batches[0], seconds), ("a single solution", single[0], alone)):
            yield from _kernels(name, partial(engine.score, items), whole, device)


def _kernels(what: str, score: Callable[[], object], whole: float, device: torch.device) -> Iterator[Comparison]:
    """The kernels of a pass that takes `whole` seconds when nothing watches it, and how long the card is idle; on a CPU
    its outermost operations."""
    on_card = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_card]) as watched:
        score()
    events = [
        event
        for event in watched.events()
        if (event.device_type.name == "CUDA" if on_card else event.cpu_parent is None) and not event.is_user_annotation
    ]
    taken: Counter[str] = Counter()
    for event in events:
        taken[event.name] += event.time_range.elapsed_us()
    count = Counter(event.name for event in events)
    for name, microseconds in taken.most_common(KERNELS):
        console.print(f"{what}: {microseconds / 1000:9.3f} ms, {count[name]:5} × {name[:100]}", markup=False)
    kernels = sum(not event.name.startswith(("Memcpy", "Memset")) for event in events)
    yield Comparison(f"{what}: kernels", kernels, unit="")
    yield Comparison(f"{what}: the card is idle", max(0.0, whole - _busy(events)), "the whole", whole)


def _busy(events: Sequence[Any]) -> float:
    """Seconds in which at least one of the events runs."""
    busy, end = 0.0, -1.0
    for first, last in sorted((event.time_range.start, event.time_range.end) for event in events):
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    return busy / 1e6


def _server(work: Workload, device: torch.device, operations: float) -> Iterator[Comparison]:
    """A server of a base in several files with an adapter, over HTTP."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        written = timed(models.write_shards, place, work.shape, True, work.shard, device)
        yield Comparison("a checkpoint with an adapter, written", written)
        read = timed(lambda: [sum(map(len, _pieces(file))) for file in place.glob("*.safetensors")])
        options = ["--engine=torch", "--dtype=bfloat16", "--max-queued-tokens=8388608", "--max-request-seconds=600"]
        options += ["--log-level=warning"]  # such as of layers that can't be compiled
        start = time.perf_counter()
        with servers.unprm(*options, model=place / "prm", device=device.type) as (url, _):
            ready = time.perf_counter() - start
            yield Comparison("from start to ready: digest, load, merge, self-test", ready, "reading the files", read)
            about = json.loads(_get(f"{url}/model"))
            test, memory = about["self_test"], about["memory"]
            yield Comparison(
                "self-test: margins differ by", test["difference"], "the most allowed", test["tolerance"], unit=""
            )
            if device.type == "cuda":
                free, total = torch.cuda.mem_get_info(device)
                yield Comparison("memory of the GPU", total - free, "as planned", sum(memory.values()), unit="B")
            weights = _linear(work.shape)
            yield from _requests(work, url, load_tokenizer(place), operations / (2 * weights))


def _sampler(work: Workload, device: torch.device, operations: float) -> Iterator[Comparison]:
    """Steps of the sampler, with rows of the same length."""
    with device:
        network = Qwen2ForCausalLM._from_config(Qwen2Config(**work.sampled), dtype=torch.bfloat16).eval()
    peak = operations / (2 * Plain(network, Verdicts(11, 12)).weights)
    for rows in work.rows:
        taken = []
        for record in (None, lambda run: run):
            batch = DecodingBatch(network, SamplingSettings(), [-1], rows, record=record)
            batch.add([Row((seed % 1000, *range(work.problem)), seed) for seed in range(rows)])
            steps = [timed(batch.step) for _ in range(11)]
            taken.append(statistics.median(steps[3:]))
            batch.clear()
        yield Comparison(f"the sampler's step, {rows:,} rows", taken[0], "launched kernel by kernel", taken[1], 8)
        yield Comparison(f"the sampler, {rows:,} rows", rows / taken[0], PEAK, peak, 8, "/s", 1.0)


def _requests(work: Workload, url: str, tokenizer: Tokenizer, peak: float) -> Iterator[Comparison]:
    """`peak`: tokens per second."""
    writer = Writer(tokenizer, random.Random(0))

    def run(requests: Sequence[Request], count: int) -> tuple[list[float], float, float]:
        """Seconds of each request and of all, and the tokens that the model ran; tells of its batches."""
        before, start = _counted(url), time.perf_counter()
        taken = clients.call(url, requests, count)
        seconds, (computed, batches) = time.perf_counter() - start, _counted(url) - before
        console.print(f"{batches:.0f} batches for {len(requests)} requests, {computed:,.0f} tokens computed")
        return taken, seconds, computed

    def votes(count: int) -> list[Request]:
        return [writer.vote(work.problem, work.candidates, work.length) for _ in range(count)]

    size = f"{work.candidates} × {work.length} tokens"
    taken, _, tokens = run(votes(1), 1)
    yield Comparison(f"over HTTP: the first vote of {size}", taken[0], PEAK, tokens / peak)
    for count in work.clients:
        taken, seconds, tokens = run(votes(max(count, ROUNDS)), count)
        what = f"over HTTP, {count} at once: votes of {size}"
        yield Comparison(what, tokens / seconds, PEAK, peak, len(taken), "/s", 1.0)
        yield Comparison(f"{what}, each", statistics.median(taken), PEAK, tokens / len(taken) / peak, len(taken))
    singles = [writer.vote(work.problem, 1, work.length, "/score_steps") for _ in range(work.singles)]
    taken, _, tokens = run(singles, 1)  # not a vote: whoever is alone wins it without a score
    what = f"over HTTP: a solution of {work.length} tokens alone"
    yield Comparison(what, statistics.median(taken), PEAK, tokens / len(taken) / peak, len(taken))
    width, depth = work.beams
    _, seconds, tokens = run(writer.beam_search(work.problem, width, depth), 1)
    yield Comparison(f"over HTTP: a beam search, {width} × {width} × {depth} steps", seconds, PEAK, tokens / peak)
    taken, _, tokens = run([writer.vote(work.long, 8, work.length) for _ in range(ROUNDS)], 1)
    what = f"over HTTP: 8 solutions of a problem of {work.long:,} tokens"
    yield Comparison(what, statistics.median(taken), PEAK, tokens / len(taken) / peak, len(taken))


class Writer:
    """Writes requests about random problems, which have about the numbers of tokens that are asked for."""

    def __init__(self, tokenizer: Tokenizer, rng: random.Random) -> None:
        self._rng = rng
        self._lengths = {word: len(tokenizer.encode(f" {word}", add_special_tokens=False).ids) for word in WORDS}

    def text(self, tokens: int) -> str:
        """A text of about this many tokens."""
        words, written = [], 0
        while written < tokens:
            words.append(self._rng.choice(WORDS))
            written += self._lengths[words[-1]]
        return " ".join(words)

    def steps(self, tokens: int) -> list[str]:
        """A solution; its last step has the answer."""
        steps = [self.text(models.STEP) for _ in range(max(1, tokens // models.STEP - 1))]
        return [*steps, f"The answer is \\boxed{{{self._rng.randrange(9)}}}."]

    def vote(self, problem: int, candidates: int, length: int, path: str = "/vote/wrf") -> Request:
        """A vote on candidates of `length` tokens for a problem of `problem` tokens."""
        solutions = [self.steps(length) for _ in range(candidates)]
        return path, json.dumps({"problem": self.text(problem), "solutions": solutions}).encode()

    def beam_search(self, problem: int, width: int, depth: int) -> list[Request]:
        """The requests of a beam search, one per step: `width` beams with `width` continuations each, of which random
        ones are kept."""
        text, beams, requests = self.text(problem), [list[str]()] * width, []
        for _ in range(depth):
            grown = [[*beam, self.text(models.STEP)] for beam in beams for _ in range(width)]
            requests.append(("/score_steps", json.dumps({"problem": text, "solutions": grown}).encode()))
            beams = self._rng.sample(grown, width)
        return requests


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(2**24):
            yield piece


def _get(url: str) -> str:
    return httpx.get(url, timeout=60, trust_env=False).raise_for_status().text


def _counted(url: str) -> np.ndarray[Any, Any]:
    """Tokens that the server's model has run, and its batches."""
    lines = _get(f"{url}/metrics").splitlines()
    names = ("unprm_computed_tokens_total", "unprm_batch_tokens_count")
    return np.array([sum(float(line.split()[-1]) for line in lines if line.startswith(name)) for name in names])


def _linear(shape: Mapping[str, int]) -> int:
    """Weights of the linear layers that each token passes."""
    with torch.device("meta"):
        network = Qwen2ForCausalLM._from_config(Qwen2Config(**shape))
    return Plain(network, Verdicts(11, 12)).weights


def _vote(rng: random.Random, work: Workload) -> list[Encoded]:
    vocabulary = range(work.shape["vocab_size"])
    question = rng.choices(vocabulary, k=work.problem)
    return [models.scored(question + rng.choices(vocabulary, k=work.length)) for _ in range(work.candidates)]


def _peak(device: torch.device, size: int) -> float:
    """Operations per second of a product of square matrices in bf16; each multiplication counts as two operations."""
    first, second = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    taken = [timed(_synchronised, device, torch.matmul, first, second) for _ in range(10)]
    return 2 * size**3 / min(taken)


def _synchronised(device: torch.device, work: Callable[..., object], *arguments: object) -> None:
    """Runs `work` and waits until a GPU has finished it."""
    work(*arguments)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
