"""Our torch engine against vLLM's pooling server over HTTP, on `vote` and `tree`. Needs vLLM."""

import os
import random
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch

from benchmarks import models, servers
from benchmarks.timing import Comparison, timed
from unprm.engines.vllm.model import prepare
from unprm.models.checkpoint import load_tokenizer, locate
from unprm.models.load import load_engine
from unprm.types import Encoded, Engine

ROUNDS = 1
"""Only one, as a search takes vLLM minutes here."""
Work = Callable[[int], list[list[Encoded]]]
"""Makes from a seed the batches that are scored one after the other."""


def _vote(seed: int) -> list[list[Encoded]]:
    return [models.vote(random.Random(seed))]


def _search(seed: int) -> list[list[Encoded]]:
    return models.beam_search(random.Random(seed))


WORKS: dict[str, Work] = {"64 candidates of one question": _vote, "a beam search, 8 × 8 × 10 steps": _search}


def run() -> list[Comparison]:
    """Runs both engines in fp32, one after the other, as both at once would share the cores."""
    # quiet, and no more memory than the small model needs
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "2"}
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory))
        with closing(load_engine(str(place), device="cpu", dtype="float32", prefix_cache_gb=1.0)) as engine:
            ours = [_measure(engine, work) for work in WORKS.values()]
            readout = engine.format.readout  # type: ignore[attr-defined]  # every family has one
        prepared = prepare(locate(str(place), None, None, None), readout, load_tokenizer(place), torch.float32)
        served = servers.vllm(prepared.directory, "--dtype=float32", *prepared.options)
        with served as url, closing(load_engine(str(place), engine="remote", url=url)) as engine:
            theirs = [_measure(engine, work) for work in WORKS.values()]
    rows = []
    for what, (seconds, scores), (baseline, expected) in zip(WORKS, ours, theirs, strict=True):
        close = models.apart(scores, expected)
        description = f"{what}, scores within {close:.0e}"
        rows.append(Comparison(description, seconds, "vLLM's pooling server", baseline, ROUNDS))
    return rows


def _measure(engine: Engine, work: Work) -> tuple[float, list[tuple[float, ...]]]:
    """The median time, and the scores of the first run, which is not timed."""
    scores = [values for items in work(0) for values in engine.score(items).scores]
    searches = map(work, range(1, ROUNDS + 1))
    taken = [timed(lambda batches: [engine.score(items) for items in batches], search) for search in searches]
    return statistics.median(taken), scores
