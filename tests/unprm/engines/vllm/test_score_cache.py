"""Scores by the tokens that they depend on: found for every sequence that begins alike, and for no other."""

from unprm.engines.vllm.score_cache import ScoreCache
from unprm.types import Encoded


def test_scores_are_found_for_what_begins_alike_and_for_nothing_else():
    cache = ScoreCache(10)
    cache.keep(Encoded((1, 2, 3, 4), (1, 3)), [0.25, 0.75])
    assert cache.find(Encoded((1, 2, 3, 4, 5), (1, 2, 3, 4))) == [0.25, None, 0.75, None]
    assert cache.find(Encoded((1, 2, 9, 4), (1, 3))) == [0.25, None]
    assert cache.find(Encoded((12,), (0,))) == [None]
    assert cache.find(Encoded((0, 1, 2), (2,))) == [None]


def test_large_ids_are_told_apart():
    cache = ScoreCache(10)
    cache.keep(Encoded((2**32 + 1,), (0,)), [0.5])
    assert cache.find(Encoded((1,), (0,))) == [None]


def test_what_was_not_used_for_longest_goes():
    cache = ScoreCache(2)
    first, second, third = (Encoded((token,), (0,)) for token in range(3))
    cache.keep(first, [0.1])
    cache.keep(second, [0.2])
    assert cache.find(first) == [0.1]
    cache.keep(third, [0.3])
    assert [cache.find(item) for item in (first, second, third)] == [[0.1], [None], [0.3]]
    assert len(cache) == 2


def test_scopes_share_nothing():
    cache = ScoreCache(10)
    mine = Encoded((1, 2), (1,), scope="mine")
    cache.keep(mine, [0.5])
    assert cache.find(mine) == [0.5]
    assert [cache.find(Encoded((1, 2), (1,), scope=other)) for other in ("", "min", "yours")] == [[None]] * 3
