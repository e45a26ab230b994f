"""Scores with a model whose second pass reads what it answered in the first."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from unprm.formats.family import TwoPassFormat
from unprm.types import BatchScores, Encoded, Engine

ANSWER = 0.5
"""A first pass's answer is good from this probability on."""


class TwoPassEngine:
    """Runs both passes of every step by `inner`, an engine of the same model. Inputs of one solution begin alike, so an
    engine that shares prefixes runs each step about twice."""

    def __init__(self, inner: Engine, format: TwoPassFormat) -> None:
        self.format, self.description = format, inner.description
        self._inner = inner

    def score(self, batch: Sequence[Encoded]) -> BatchScores:
        """Step scores per item. Tokens are those of both passes of all its steps."""
        first = [[replace(step, scope=item.scope) for step in self.format.first(item)] for item in batch]
        answers, ran = self._score(first)
        second = [
            [
                replace(self.format.second(step, [p >= ANSWER for p in pair]), scope=step.scope)
                for step, pair in zip(*each, strict=True)
            ]
            for each in zip(first, answers, strict=True)
        ]
        found, ran_then = self._score(second)
        return BatchScores(
            [tuple(chain.from_iterable(values)) for values in found],
            list(map(sum, zip(ran, ran_then, strict=True))),
            [sum(len(step.needed) for step in chain(*passes)) for passes in zip(first, second, strict=True)],
        )

    def close(self) -> None:
        """Frees the weights and the cache."""
        self._inner.close()

    def _score(self, items: Sequence[Sequence[Encoded]]) -> tuple[list[list[tuple[float, ...]]], list[int]]:
        """For each item, what is read at each of its inputs, and the tokens that were run."""
        done = self._inner.score(list(chain.from_iterable(items)))
        scores, computed = iter(done.scores), iter(done.computed)
        return [[next(scores) for _ in item] for item in items], [sum(next(computed) for _ in item) for item in items]
