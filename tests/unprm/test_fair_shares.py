"""A caller's share of what is limited: what one holds never keeps out the next, and who has had least is first."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm.errors import Overloaded
from unprm.fair_shares import Capacity, FairQueue, Quota, Reservation


def test_a_caller_has_half_of_a_capacity_and_others_the_same_of_the_rest() -> None:
    room = Capacity(100, "bytes")
    with Reservation(room, "a") as first, Reservation(room, "a") as second, Reservation(room, "b") as other:
        first.take(30)
        second.take(20)
        with pytest.raises(Overloaded, match=r"50 bytes of this caller .* and 1 more .* for others, 49 of 100"):
            second.take(1)
        other.take(25)
        with pytest.raises(Overloaded):
            other.take(1)
    with Reservation(room, "a") as again:
        again.take(50)


def test_whatever_its_size_an_amount_is_taken_when_nothing_is_held() -> None:
    room = Capacity(100, "tokens", wait=lambda missing: missing / 10)
    with Reservation(room, "a") as one, Reservation(room, "b") as other:
        one.take(1000)
        with pytest.raises(Overloaded) as refused:
            one.take(1)
        assert refused.value.retry_after == 0.2  # two too many: 51 held and 49 left
        other.take(25)
    with Reservation(room, "b") as other:
        other.take(1000)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 300)), max_size=40), st.integers(1, 200))
def test_who_takes_leaves_as_much_free_as_it_holds(demands: list[tuple[str, int]], limit: int) -> None:
    room = Capacity(limit, "tokens")
    held: dict[str, Reservation] = {}
    for caller, amount in demands:
        one = held.setdefault(caller, Reservation(room, caller))
        try:
            one.take(amount)
        except Overloaded:
            continue
        assert min(one.amount, limit // 2) <= limit - room.taken
    for each in held.values():
        each.set(0)
    assert room.taken == 0


@dataclass(eq=False)
class Work:
    """Units of work that a caller waits for."""

    caller: str
    left: int
    rank: int = 0

    @property
    def waits(self) -> bool:
        return self.left > 0


def dealt(queue: FairQueue[Work], places: int, cost: int = 1) -> str:
    """Whose turns so many were, each at this cost."""
    took = ""

    def take(one: Work) -> int | None:
        nonlocal took
        if not one.left or len(took) == places:
            return None
        one.left -= 1
        took += one.caller
        return cost

    queue.offer_turns(take)
    return took


def queue_of(*waiting: Work) -> FairQueue[Work]:
    queue = FairQueue[Work]()
    for work in waiting:
        queue.add(work)
    return queue


def test_a_turn_is_of_the_caller_that_has_had_least() -> None:
    many, one = Work("m", 99), Work("o", 3)
    queue = queue_of(many)
    assert dealt(queue, 4, cost=10) == "mmmm"
    queue.add(one)
    assert dealt(queue, 6, cost=10) == "omomom"  # as if it had come when the others began
    assert dealt(queue, 3) == "mmm"
    queue.add(Work("l", 9))
    assert dealt(queue, 4) == "lmlm"  # what it did not use before is not saved up
    assert next(iter(queue)) is many


def test_what_a_caller_was_given_out_of_turn_counts() -> None:
    queue = queue_of(Work("a", 9), Work("b", 9))
    queue.charge("a", 3)
    assert dealt(queue, 6) == "bbbaba"


def test_a_caller_s_own_are_served_by_rank_and_in_rotation() -> None:
    waiting = [Work("a", 2, rank=2), Work("a", 2, rank=1), Work("a", 2, rank=1)]
    left = [[one.left for one in waiting] for places in range(1, 5) if dealt(queue_of(*waiting), 1)]
    assert left == [[2, 1, 2], [2, 0, 2], [2, 0, 1], [2, 0, 0]]
    waiting = [Work("a", 2, rank=2), Work("a", 2, rank=1), Work("a", 2, rank=1)]
    assert dealt(queue_of(*waiting), 4) == "aaaa"
    assert [one.left for one in waiting] == [1, 0, 1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=30),
    st.integers(1, 4),
)
def test_no_caller_that_waits_falls_behind(demands: list[tuple[str, int]], places: int) -> None:
    """Of two that wait all the time, none has more than one turn more than the other."""
    had = {"x": 0, "y": 0}
    queue = queue_of(Work("x", 10**6), Work("y", 10**6))
    for caller, left in demands:
        queue.add(Work(caller, left))
        for each in dealt(queue, places):
            had[each] = had.get(each, 0) + 1
        assert abs(had["x"] - had["y"]) <= 1


def test_a_quota_is_paid_back_before_the_next_request() -> None:
    now = 0.0
    quota = Quota(60, lambda: now)
    quota.check()
    quota.charge(90)
    with pytest.raises(Overloaded, match="the 60 tokens a minute of this key are used up; try again in 31 s") as caught:
        quota.check()
    assert caught.value.retry_after == 31
    now = 30.5
    quota.check()
    now = 1000.0
    quota.charge(60)  # no more than a minute's tokens are saved up
    with pytest.raises(Overloaded):
        quota.check()
