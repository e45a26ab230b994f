"""Random numbers from counters, and what is drawn with them."""

import random
from hashlib import blake2b

import pytest
import torch
from scipy import stats

from unprm.samplers.drawing import NEXT, counter, draw, nucleus, uniform

SEEDS = (0, 1, -3, 2**63, 2**70)


def _splitmix(key, index):
    """The number as the publication has it, in plain integers."""
    mixed = (key + index * 0x9E3779B97F4A7C15) % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def test_the_first_numbers_are_the_published_ones():
    """The first outputs of the public domain reference for the state 1234567, which adds the constant beforehand."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found = uniform(torch.tensor([1234567]), 4)[0, 1:]
    assert found.tolist() == [((number >> 12) + 0.5) / 2**52 for number in published]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_integer_is_a_seed_and_each_token_has_its_numbers(seed):
    key = int.from_bytes(blake2b(str(seed).encode(), digest_size=8).digest(), "little")
    for place in (0, 1, 5000):
        expected = [((_splitmix(key, place * 2**32 + index) >> 12) + 0.5) / 2**52 for index in range(40)]
        assert uniform(torch.tensor([counter(seed, place)]), 40)[0].tolist() == expected


def test_a_counter_grows_by_the_same_with_every_token():
    grown = torch.tensor(counter(7, 0))
    for place in range(1, 50):
        grown += NEXT
        assert grown == counter(7, place)


@pytest.mark.parametrize("vary", ["seed", "place", "index"])
def test_neighbours_are_independent(vary):
    """Numbers side by side fill the square evenly."""
    if vary == "index":
        numbers = uniform(torch.tensor([counter(3, 0)]), 40_000).view(-1, 2)
    else:
        counters = [counter(n, 3) if vary == "seed" else counter(3, n) for n in range(40)]
        numbers = uniform(torch.tensor(counters), 1000).unfold(0, 2, 1).reshape(-1, 2)
    cells = (numbers * 8).long() @ torch.tensor([8, 1])
    assert stats.chisquare(cells.bincount(minlength=64).numpy()).pvalue > 0.001


@pytest.mark.parametrize("vocabulary", [1, 2, 5, 100, 997])
def test_tokens_are_drawn_in_proportion_to_their_weights(vocabulary):
    weights = torch.rand(vocabulary, generator=torch.Generator().manual_seed(vocabulary)).pow(4)
    weights[vocabulary // 2 :: 7] = 0
    weights[0] = 1
    count = 50_000
    counters = torch.tensor([counter(seed, 0) for seed in range(count)])
    drawn = draw(weights.expand(count, -1), counters).bincount(minlength=vocabulary)
    possible = weights > 0
    assert drawn[~possible].sum() == 0
    expected = (count * weights / weights.sum())[possible].double()
    rare = expected < 5
    seen = [*drawn[possible][~rare].tolist(), int(drawn[possible][rare].sum())]
    foreseen = [*expected[~rare].tolist(), float(expected[rare].sum())]
    pairs = [pair for pair in zip(seen, foreseen, strict=True) if pair[1] > 0]
    if len(pairs) > 1:
        observed, wanted = (torch.tensor(side, dtype=torch.float64).numpy() for side in zip(*pairs, strict=True))
        assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 0.001


def test_rounding_errors_seldom_change_a_draw_even_among_many_unlikely_tokens():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 20_000, generator=generator).expand(500, -1)
    counters = torch.tensor([random.Random(n).getrandbits(63) for n in range(500)])
    off = logits + 1e-3 * torch.randn(logits.shape, generator=generator)
    changed = draw(logits.softmax(dim=-1), counters) != draw(off.softmax(dim=-1), counters)
    assert changed.sum() <= 5  # by search in cumulative sums, hundreds


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p():
    weights = torch.tensor([[0.5, 0.1, 0.3, 0.1]])
    assert nucleus(weights, 0.75).equal(torch.tensor([[0.5, 0, 0.3, 0]]))
    assert nucleus(weights, 0.2).equal(torch.tensor([[0.5, 0, 0, 0]]))
