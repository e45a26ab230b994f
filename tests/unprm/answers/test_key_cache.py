"""The cache of answer keys."""

from unprm.answers.equivalence import KeyCache
from unprm.answers.mathtext.keys import AnswerKey


def test_the_least_recently_used_key_goes_first():
    cache = KeyCache(2)
    for answer in "ab":
        assert cache.put(answer, AnswerKey(f"key of {answer}"), "") == AnswerKey(f"key of {answer}")
    assert cache.get("a", "") == AnswerKey("key of a")
    cache.put("c", AnswerKey("key of c"), "")
    assert [answer for answer in "abc" if cache.get(answer, "")] == ["a", "c"]


def test_any_text_can_be_cached():
    cache = KeyCache(5)
    cache.put("\ud800", AnswerKey("x"), "")
    assert cache.get("\ud800", "") == AnswerKey("x")
    assert cache.get("", "") is None


def test_a_cache_of_size_0_keeps_nothing():
    cache = KeyCache(0)
    cache.put("a", AnswerKey("x"), "")
    assert cache.get("a", "") is None
