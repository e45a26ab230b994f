"""The torch engine's self-test before it serves: its margins are compared with plain forward passes of the same
weights, since attention that the tree does not compute would score wrongly without an error."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from unprm.engines.consistency import PROBLEM, SOLUTIONS, differences
from unprm.engines.torch import plain
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.graphs import SIZES, Size
from unprm.engines.torch.quantized import Int8Linear
from unprm.engines.torch.readers import Reader
from unprm.types import Encoded, Format, SelfTest, common_prefix

LENGTH = 96
"""Maximum tokens of each of the three sequences."""
EVERY = 3
"""Margins are read at every third token, as at the ends of steps; at the others later, when tokens are cached."""
PART = 32
"""Tokens of a pass in the test that runs sequences in parts."""
WINDOW = 16
"""Window of sliding attention during the test, in tokens: its true window is longer than the sequences."""
EXACT = 1e-4
"""Allowed difference of margins in float32, relative to the largest margin if that is above 1."""
ROUNDING = 2.0
"""Allowed difference in other types, in differences of two plain ways to compute margins; usual are 0.4 to 1.0."""


class TreeTest:
    """Plain passes of a model, compared with the tree of a `TorchEngine`; made before the engine has its networks."""

    def __init__(self, reader: Reader, format: Format, window: int, exact: bool) -> None:
        """`window`: maximum tokens that the model reads. `exact`: its numbers are float32, but for weights in int8."""
        self._decoders = reader.decoders
        items, length = [format.encode(PROBLEM, steps) for steps in SOLUTIONS], min(window, LENGTH)
        shared = _shared(items)
        skipped = shared - length // 2 if shared >= length else 0  # else a long prompt would be all that is run
        self._items = [_everywhere(item, skipped, length) for item in items]
        self._batches = [_thirds(item) for item in self._items]

        def margins(values: Sequence[Mapping[int, Any]]) -> list[list[list[Any]]]:
            return [
                [plain.margins(reader, third, known) for third in thirds]
                for thirds, known in zip(self._batches, values, strict=True)
            ]

        with _prepared(self._decoders):
            self._expected = margins([known for item in self._items for known in plain.values(reader, [item])])
            found = self._expected if exact else margins(_padded(reader, self._items))
        expected = list(chain.from_iterable(self._expected))
        rounding = _root_mean_square(expected, list(chain.from_iterable(found)))
        largest = max(float(np.abs(margin).max()) for margin in chain.from_iterable(expected))
        self._tolerance = max(EXACT * max(1.0, largest), ROUNDING * rounding)

    def compare(self, engine: TorchEngine, sizes: Sequence[Size] = SIZES) -> SelfTest:
        """The largest difference from plain margins (root mean square) of five runs: all sequences, from the cache, at
        tokens that were not read before, and in parts. `sizes`: of the graphs that are recorded."""
        first, second, third = range(len(self._items))
        every = [first, second, third]
        engine.margins(self._items)  # the first pass compiles layers, and is to do so for the windows that they have
        engine.forget()
        with _prepared(self._decoders) as changed:
            engine.record(sizes=sizes)
            found = [self._tried(engine, every, 0, LENGTH * len(every))]
            engine.forget()
            found += [self._tried(engine, chosen, 0, LENGTH) for chosen in ([second], [third, first])]
            found += [self._tried(engine, every, 1, LENGTH)]
            engine.forget()
            found += [self._tried(engine, every, 0, PART)]
            engine.forget()
        if changed:
            engine.record(sizes=sizes)
        return SelfTest(max(found), self._tolerance, cached=True)

    def _tried(self, engine: TorchEngine, chosen: Sequence[int], start: int, pass_tokens: int) -> float:
        read = [k for k in chosen if len(self._batches[k]) > start]  # all, except in a window of two tokens
        made, _ = engine.margins([self._batches[k][start] for k in read], pass_tokens)
        return _root_mean_square([self._expected[k][start] for k in read], made)


def _shared(items: Sequence[Encoded]) -> int:
    return min(common_prefix(items[0].ids, item.ids) for item in items)


def _everywhere(item: Encoded, skipped: int, length: int) -> Encoded:
    """At most `length` tokens of an item after `skipped`, read at the solution's or the second half of them."""
    ids = item.ids[skipped : skipped + length]
    first = min(max(item.response - skipped, 1), len(ids) // 2)
    return Encoded(ids, tuple(range(first, len(ids))), first)


def _thirds(item: Encoded) -> list[Encoded]:
    """An item up to three times: read at every third of its positions, from the first, second and third on."""
    found = [item.positions[start::EVERY] for start in range(EVERY)]
    return [Encoded(item.ids, positions, item.response) for positions in found if positions]


def _padded(reader: Reader, items: Sequence[Encoded]) -> list[dict[int, Any]]:
    """The values from one padded pass over all items with eager attention, which rounds differently."""
    attention = [decoder.config._attn_implementation for decoder in reader.decoders]
    for decoder in reader.decoders:
        decoder.set_attn_implementation("eager")
    found = plain.values(reader, items)
    for decoder, before in zip(reader.decoders, attention, strict=True):
        decoder.set_attn_implementation(before)
    return found


def _root_mean_square(expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> float:
    """Of the differences: a fault moves many margins, and rounding seldom moves one far."""
    each = differences(expected, found)
    return float(np.sqrt(np.square(each).mean())) if len(each) else 0.0


@contextmanager
def _prepared(networks: Sequence[PreTrainedModel]) -> Iterator[bool]:
    """Sets sliding windows to `WINDOW` tokens, and leaves activations in float32 before int8 layers, where a last bit
    could change a rounded number. Yields whether anything was changed."""
    parts = [part for network in networks for part in (network.config, *network.modules())]
    changes: list[tuple[Any, str, object]] = [
        (part, "sliding_window", WINDOW) for part in parts if isinstance(getattr(part, "sliding_window", None), int)
    ]
    changes += [(part, "rounds", False) for part in parts if isinstance(part, Int8Linear)]
    before = [(part, name, getattr(part, name)) for part, name, _ in changes]
    for part, name, value in changes:
        setattr(part, name, value)
    try:
        yield bool(changes)
    finally:
        for part, name, value in before:
            setattr(part, name, value)
