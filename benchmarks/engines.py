"""Our torch engine against vLLM's pooling server over HTTP, on `vote` and `tree`. Needs vLLM."""

import random
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks import baselines, models
from benchmarks.timing import Comparison, median
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


def comparisons() -> list[Comparison]:
    """Runs both engines in fp32, one after the other, as both at once would share the cores."""
    with tempfile.TemporaryDirectory() as directory:
        place = models.write(Path(directory))
        with closing(load_engine(str(place), device="cpu", dtype="float32", prefix_cache_gb=1.0)) as engine:
            ours = [_measure(engine, work) for work in WORKS.values()]
        with (
            baselines.vllm(place) as url,
            closing(load_engine(str(place), engine="remote", url=url)) as engine,
        ):
            theirs = [_measure(engine, work) for work in WORKS.values()]
    rows = []
    for what, (seconds, scores), (baseline, expected) in zip(WORKS, ours, theirs, strict=True):
        close = models.apart(scores, expected)
        description = f"{what}, scores within {close:.0e}"
        rows.append(Comparison(description, seconds, "vLLM's pooling server", baseline, ROUNDS))
    return rows


def _measure(engine: Engine, work: Work) -> tuple[float, list[tuple[float, ...]]]:
    """The median time, and the scores of the first run, which is not timed."""
    scores = [each.values for items in work(0) for each in engine.score(items)]
    rounds = map(work, range(1, ROUNDS + 1))
    return median(lambda batches: [engine.score(items) for items in batches], rounds), scores
