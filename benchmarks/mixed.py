"""Many concurrent clients, with Zipf-distributed questions, against padded batches of each request without HTTP and, if
installed, vLLM's pooling server."""

import itertools
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks import clients, models, servers
from benchmarks.baselines import Plain, padded
from benchmarks.timing import Comparison, timed
from training.mini.slips import Author
from unprm.engines.vllm.model import prepare
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.mini.domain import Problem
from unprm.mini.storyteller import DEMANDING, generate
from unprm.models.checkpoint import load_tokenizer, locate
from unprm.types import Encoded

QUESTIONS, REQUESTS, CANDIDATES, CLIENTS = 20, 80, 4, 16
Query = tuple[str, list[list[str]]]
"""A problem, and solutions as lists of steps."""


def run() -> list[Comparison]:
    """Runs the servers in fp32, one after the other, as both at once would share the cores."""
    what = f"{CLIENTS} clients, {REQUESTS} requests of {CANDIDATES} candidates, {QUESTIONS} questions, over HTTP"
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory))
        plain = Plain.load(place)
        form = UnprmFormat(load_tokenizer(place), PrmConfig.read(place))
        warm, measured = requests(random.Random(1), 4), requests(random.Random(0), REQUESTS)
        encoded = [[form.encode(problem, steps) for steps in solutions] for problem, solutions in measured]
        padded(plain, encoded[0])
        rows = {"padded batches of each request, no HTTP": timed(lambda: [padded(plain, items) for items in encoded])}
        with servers.unprm(f"--model={place}", "--device=cpu", "--dtype=float32") as url:
            clients.call(url, list(map(ours, warm)), CLIENTS)
            taken = timed(clients.call, url, list(map(ours, measured)), CLIENTS)
        if find_spec("vllm"):
            rows["vLLM's pooling server"] = _vllm(place, plain, encoded)
    everything = [item for items in encoded for item in items]
    allowed = plain.work(everything) / plain.least(everything)
    return [Comparison(what, taken, name, seconds, 1, allowed=allowed) for name, seconds in rows.items()]


def requests(rng: random.Random, count: int, candidates: int = CANDIDATES, questions: int = QUESTIONS) -> list[Query]:
    """Problems with solutions; the frequency of the k-th problem is proportional to 1 / k."""
    problems, weights = _problems(rng, questions)
    return [_query(rng, problem, candidates) for problem in rng.choices(problems, weights, k=count)]


def alike(rng: random.Random, count: int, candidates: int = CANDIDATES, questions: int = QUESTIONS) -> list[Query]:
    """Problems with solutions; the problems come in turn, all equally often."""
    problems, _ = _problems(rng, questions)
    return [_query(rng, problem, candidates) for problem in itertools.islice(itertools.cycle(problems), count)]


def endless(rng: random.Random, candidates: int) -> Iterator[Query]:
    """As `requests`, but endless."""
    problems, weights = _problems(rng, QUESTIONS)
    while True:
        (problem,) = rng.choices(problems, weights)
        yield _query(rng, problem, candidates)


def _problems(rng: random.Random, count: int) -> tuple[list[Problem], list[float]]:
    return [generate(rng, DEMANDING) for _ in range(count)], [1 / (rank + 1) for rank in range(count)]


def _query(rng: random.Random, problem: Problem, candidates: int) -> Query:
    return problem.text, [Author(rng, 1.0).solve(problem) for _ in range(candidates)]


def ours(query: Query) -> tuple[str, bytes]:
    """A request for our server: path and body."""
    return clients.request("/score_steps", {"problem": query[0], "solutions": query[1]})


def _vllm(place: Path, plain: Plain, encoded: Sequence[Sequence[Encoded]]) -> float:
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "2"}
    files, tokenizer = locate(str(place), None, None, None), load_tokenizer(place)
    model = prepare(files, plain.verdicts, tokenizer, torch.float32)
    bodies = [
        clients.request(
            "/pooling", {"model": "m", "input": [list(item.ids) for item in items], "task": "token_classify"}
        )
        for items in encoded
    ]
    with servers.vllm(model.directory, "--dtype=float32", "--served-model-name=m", *model.options) as url:
        clients.call(url, bodies[:1], 1)
        return timed(clients.call, url, bodies, CLIENTS)
