"""Scoring 64 candidates of one question, and 64 solutions without common prefixes, against the loop of the public
scripts and against padded batches."""

import random
from functools import partial

from benchmarks import models
from benchmarks.baselines import loaded, padded, plain_loop
from benchmarks.timing import Comparison, compare

ROUNDS = 2


def comparisons() -> list[Comparison]:
    """Measures in fp32."""
    rng = random.Random(0)
    candidates, unlike = models.vote(rng), models.unlike(rng)
    with loaded() as (engine, plain):
        engine.score(unlike[:8])  # the first forward pass of a process is slow
        scored, expected = engine.score(candidates), padded(plain, candidates)
        share = sum(each.computed for each in scored) / models.distinct(candidates)
        close = models.apart([each.values for each in scored], expected)
        what = f"64 candidates of one question; {share:.3f} × their distinct tokens run, scores within {close:.0e}"
        least = plain.least(candidates)
        works = (
            (what, candidates, "one solution at a time, all logits", plain_loop, plain.work(candidates, True) / least),
            ("the same", candidates, "padded batches of 8", padded, plain.work(candidates) / least),
            ("64 solutions of as many questions", unlike, "padded batches of 8", padded, 1.0),
        )
        return [
            compare(name, partial(engine.score, items), baseline, partial(score, plain, items), ROUNDS, allowed)
            for name, items, baseline, score, allowed in works
        ]
