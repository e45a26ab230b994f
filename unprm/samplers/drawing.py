"""Draws tokens with random numbers computed from a row's counter: SplitMix64 (Steele, Lea, Flood, 2014), whose n-th
number is a hash of the key plus n times a constant. A row's key hashes its seed; each token has 2³² numbers."""

import math
from hashlib import blake2b

import torch
from torch.nn import functional


def _signed(number: int) -> int:
    """The int64 that equals this number modulo 2⁶⁴, which calculations with int64 are."""
    return (number + 2**63) % 2**64 - 2**63


_GAMMA = 0x9E3779B97F4A7C15
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)

NEXT = _signed(_GAMMA << 32)
"""What a row's counter grows by with every token."""


def counter(seed: int, place: int) -> int:
    """The counter, int64, of a row with this seed, any integer, that has `place` tokens."""
    key = int.from_bytes(blake2b(str(seed).encode("ascii"), digest_size=8).digest(), "little")
    return _signed(key + NEXT * place)


def draw(weights: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Draws a token per row, (rows,), in proportion to `weights`, (rows, vocabulary). `counters`: (rows,), int64.

    First a block of tokens, then a token of it, each by an exponential race: two numbers per root of the vocabulary,
    and rounding changes few draws, unlike a search in cumulative sums.
    """
    rows, vocabulary = weights.shape
    width = math.isqrt(vocabulary - 1) + 1
    count = -(-vocabulary // width)
    blocks = functional.pad(weights, (0, count * width - vocabulary)).view(rows, count, width)
    times = -uniform(counters, count + width).log()
    block = (blocks.sum(dim=-1) / times[:, :count]).argmax(dim=-1)
    tokens = blocks[torch.arange(rows, device=block.device), block]
    return block * width + (tokens / times[:, count:]).argmax(dim=-1)


def uniform(counters: torch.Tensor, count: int) -> torch.Tensor:
    """`count` numbers for each counter, (rows, count), float64, uniform between 0 and 1, both excluded."""
    mixed = counters[:, None] + torch.arange(count, device=counters.device) * _signed(_GAMMA)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        mixed = (mixed ^ _shifted(mixed, shift)) * factor
    mixed ^= _shifted(mixed, 31)
    return (_shifted(mixed, 12).double() + 0.5) * 2.0**-52


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """int64 numbers shifted to the right, with zeros from the left."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


def nucleus(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Probabilities, (rows, vocabulary), with 0 for all but the fewest tokens that together reach `top_p`."""
    ranked, order = weights.sort(dim=-1, descending=True)
    before = ranked.cumsum(dim=-1) - ranked
    return weights.scatter(1, order, ranked.masked_fill(before >= top_p, 0))
