"""Capacity that callers share: what one holds never keeps out the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm.budget import Budget, Held
from unprm.errors import Overloaded


def test_a_caller_has_half_of_a_budget_and_others_the_same_of_the_rest() -> None:
    budget = Budget(100, "bytes")
    with budget.holding("a") as first, budget.holding("a") as second, budget.holding("b") as other:
        first(30)
        second(20)
        with pytest.raises(Overloaded, match=r"50 bytes of this caller .* and 1 more .* for others, 49 of 100"):
            second(1)
        other(25)
        with pytest.raises(Overloaded):
            other(1)
    with budget.holding("a") as again:
        again(50)


def test_whatever_its_size_an_amount_is_taken_when_nothing_is_held() -> None:
    budget = Budget(100, "tokens", wait=lambda missing: missing / 10)
    with budget.holding("a") as hold, budget.holding("b") as other:
        hold(1000)
        with pytest.raises(Overloaded) as refused:
            hold(1)
        assert refused.value.retry_after == 0.2  # two too many: 51 held and 49 left
        other(25)
    with budget.holding("b") as other:
        other(1000)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 300)), max_size=40), st.integers(1, 200))
def test_who_takes_leaves_as_much_free_as_it_holds(demands: list[tuple[str, int]], limit: int) -> None:
    budget = Budget(limit, "tokens")
    held: dict[str, Held] = {}
    for caller, amount in demands:
        one = held.setdefault(caller, Held(budget, caller))
        try:
            one.take(amount)
        except Overloaded:
            continue
        assert one.amount <= limit - budget.taken
    for each in held.values():
        each.set(0)
    assert budget.taken == 0
