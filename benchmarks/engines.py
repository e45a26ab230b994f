"""The engines on one model: PyTorch in this process, vLLM, and a server of vLLM over HTTP. Needs vLLM."""

import os
import random
import statistics
import time
from contextlib import closing

import torch

from benchmarks.timing import Comparison
from benchmarks.vllm_server import serving
from training.mini.slips import Author
from unprm import mini
from unprm.engines.checkpoint import load_tokenizer, locate
from unprm.engines.load import load_engine
from unprm.engines.vllm_model import prepare
from unprm.formats.family import Verdicts
from unprm.formats.unprm import PrmConfig
from unprm.mini.storyteller import generate
from unprm.types import Encoded, Engine

SOLUTIONS, ROUNDS = 256, 5
Scores = list[tuple[float, ...]]


def run() -> list[Comparison]:
    """256 solutions of as many problems in fp32, one engine after the other: two at once would share the cores."""
    # quiet, and no more memory than the small model needs
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with closing(load_engine(dtype="float32")) as engine:
        batch = _batch(engine)
        baseline, expected = _measure(engine, batch)
    with closing(load_engine(engine="vllm", dtype="float32")) as engine:
        here = _measure(engine, batch)
    files, config = locate(mini.NAME, None, None, None), PrmConfig.read(mini.ADAPTER)
    verdicts = Verdicts(config.positive_id, config.negative_id)
    model = prepare(files, verdicts, load_tokenizer(files.base), torch.float32)
    served = serving(model.directory, "--dtype=float32", *model.options)
    with served as url, closing(load_engine(engine="remote", url=url)) as engine:
        there = _measure(engine, batch)
    rows = []
    for name, (seconds, scores) in {"vLLM in-process": here, "vLLM's server over HTTP": there}.items():
        told = f"{name}: {SOLUTIONS / seconds:,.0f} solutions/s, scores within {_difference(scores, expected):.0e}"
        rows.append(Comparison(told, seconds, f"torch: {SOLUTIONS / baseline:,.0f} solutions/s", baseline, ROUNDS))
    return rows


def _batch(engine: Engine) -> list[Encoded]:
    rng = random.Random(0)
    problems = [generate(rng) for _ in range(SOLUTIONS)]
    return [engine.format.encode(problem.text, Author(rng, 1.0).solve(problem)) for problem in problems]


def _measure(engine: Engine, batch: list[Encoded]) -> tuple[float, Scores]:
    scores = engine.score(batch).scores
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        engine.score(batch)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), scores


def _difference(first: Scores, second: Scores) -> float:
    pairs = zip(first, second, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))
