"""A beam search that scores after every step, 8 beams × 8 continuations × 10 steps, against padded batches."""

import itertools
import random
from collections.abc import Callable, Iterator

from benchmarks import models
from benchmarks.baselines import loaded, padded
from benchmarks.timing import Comparison, compare
from unprm.types import Encoded

ROUNDS = 2


def comparisons() -> list[Comparison]:
    """Measures in fp32; every search has a new question."""
    first = models.beam_search(random.Random(0))
    everything = [item for items in first for item in items]
    with loaded(prefix_cache_gb=1.0) as (engine, plain):
        results = [engine.score(items) for items in first]
        ran = sum(each.computed for result in results for each in result)
        expected = padded(plain, first[-1])
        share = ran / models.distinct(everything)
        close = models.apart([each.values for each in results[-1]], expected)
        return [
            compare(
                f"a beam search, 8 × 8 × 10 steps; {share:.3f} × its distinct tokens run, scores within {close:.0e}",
                _searching(engine.score),
                "padded batches of 8",
                _searching(lambda items: padded(plain, items)),
                ROUNDS,
                plain.work(everything) / plain.least(everything),
            )
        ]


def _searching(score: Callable[[list[Encoded]], object]) -> Callable[[], None]:
    """A function that runs a different search at each call."""
    seeds: Iterator[int] = itertools.count(1)

    def search() -> None:
        for items in models.beam_search(random.Random(next(seeds))):
            score(items)

    return search
