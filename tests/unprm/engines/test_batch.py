"""What items of a batch have in common."""

from hypothesis import given
from hypothesis import strategies as st

from unprm.engines.model_queue import Batch
from unprm.types import Encoded, common_prefix

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=40).map(tuple)
ITEMS = st.lists(st.tuples(IDS, st.sampled_from("ab")), min_size=1, max_size=12)


def _shared(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    return next(
        (k for k, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(map(len, (first, second)))
    )


@given(IDS, IDS)
def test_the_common_prefix(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert common_prefix(first, second) == _shared(first, second)


@given(ITEMS, st.integers(0, 40))
def test_an_item_costs_what_is_new_to_the_engine_and_to_the_batch(
    items: list[tuple[tuple[int, ...], str]], known: int
) -> None:
    batch = Batch(10**6, lambda item: max(0, len(item.ids) - known))
    for number, (ids, scope) in enumerate(items):
        longest = max((_shared(ids, other) for other, where in items[:number] if where == scope), default=0)
        shared = min(len(ids), max(known, longest))
        item = Encoded(ids, (0,), response=number, scope=scope)
        assert batch.add(item) == len(ids) - shared + shared // 8
