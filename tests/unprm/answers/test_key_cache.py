"""The cache of answer keys."""

from unprm.answers.equivalence import KeyCache
from unprm.answers.mathtext.keys import AnswerKey


def test_the_least_recently_used_key_goes_first():
    cache = KeyCache(2)
    for answer in "ab":
        assert cache.put(answer, AnswerKey(f"key of {answer}"), "") == AnswerKey(f"key of {answer}")
    assert cache.get_all(["a"], "") == {"a": AnswerKey("key of a")}
    cache.put("c", AnswerKey("key of c"), "")
    assert cache.get_all(["a", "b", "c"], "").keys() == {"a", "c"}


def test_any_text_can_be_cached():
    cache = KeyCache(5)
    cache.put("\ud800", AnswerKey("x"), "")
    assert cache.get_all(["\ud800", ""], "") == {"\ud800": AnswerKey("x")}


def test_a_cache_of_size_0_keeps_nothing():
    cache = KeyCache(0)
    cache.put("a", AnswerKey("x"), "")
    assert cache.get_all(["a"], "") == {}
