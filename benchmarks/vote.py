"""Scoring 64 candidates of one question, and 64 solutions without common prefixes, against the loop of the public
scripts and against padded batches."""

import random

from benchmarks import models
from benchmarks.baselines import loaded, padded, plain_loop
from benchmarks.timing import Comparison, compare

ROUNDS = 2


def run() -> list[Comparison]:
    """Measures in fp32."""
    rng = random.Random(0)
    candidates, unlike = models.vote(rng), models.unlike(rng)
    with loaded() as (engine, plain):
        engine.score(unlike[:8])  # the first forward pass of a process is slow
        result, expected = engine.score(candidates), padded(plain, candidates)
        share = sum(result.computed) / models.distinct(candidates)
        what = f"64 candidates of one question; {share:.3f} × their distinct tokens run, scores within"
        return [
            compare(
                f"{what} {models.apart(result.scores, expected):.0e}",
                lambda: engine.score(candidates),
                "one solution at a time, all logits",
                lambda: plain_loop(plain, candidates),
                ROUNDS,
                plain.work(candidates, logits=True) / plain.least(candidates),
            ),
            compare(
                "the same",
                lambda: engine.score(candidates),
                "padded batches of 8",
                lambda: padded(plain, candidates),
                ROUNDS,
                plain.work(candidates) / plain.least(candidates),
            ),
            compare(
                "64 solutions of as many questions",
                lambda: engine.score(unlike),
                "padded batches of 8",
                lambda: padded(plain, unlike),
                ROUNDS,
                1.0,
            ),
        ]
