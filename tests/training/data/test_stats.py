"""Statistics of annotated solutions by hand-worked cases."""

import pytest

from tests.training.solutions import annotated
from training import resumable
from training.data import stats


def _searched(rank, tried, labels=(True, True, False, False)):
    """A wrong solution of which `tried` steps were tried by falling Δu."""
    reason = None if labels else "none below"
    return annotated(tried=tried, steps=("So.",) * 4, labels=labels, reason=reason, rank=rank)


RIGHT = annotated(id="right", steps=("So.",), correct=True, labels=(True,))


def test_ranks_by_hand():
    # found at once, at the third; never below τ after two, and in a solution that has no step to try
    records = [_searched(0, 1), _searched(2, 3), _searched(None, 2), _searched(None, 0), RIGHT]
    assert stats.ranks(records) == stats.FoundRanks(mean=1.0, without=0.5, with_last=1.0)
    assert stats.ranks(records[1:3]) == stats.FoundRanks(mean=2.0, without=0.5, with_last=1.5)


def test_a_step_that_is_never_found_has_no_rank():
    assert stats.ranks([_searched(None, 0)]) == stats.FoundRanks(mean=None, without=1.0, with_last=None)
    assert stats.ranks([_searched(None, 0)]).cells() == ("–", "100.0 %", "–")


def test_searches_in_another_order_have_no_ranks():
    assert stats.ranks([_searched("unranked", 1), RIGHT]) is None
    assert stats.ranks([]) is None


def test_unresolved_solutions_count_as_without_a_rank():
    """As `uncertainty-literal` leaves them."""
    found = stats.ranks([_searched(0, 1), _searched(None, 3, labels=None)])
    assert found == stats.FoundRanks(mean=0.0, without=0.5, with_last=1.0)


@pytest.mark.parametrize(("ranked", "shown"), [(True, "1.00 | 0.0 % | 1.00"), (False, "– | – | –")])
def test_the_table_shows_ranks_where_there_are_any(tmp_path, ranked, shown):
    solution = _searched(1 if ranked else "unranked", 2)
    resumable.write(tmp_path / "a.jsonl", {"share_prefixes": False}, [solution, RIGHT])
    for name in ("unresolved", "questions"):
        (tmp_path / f"a.{name}.jsonl").touch()
    assert stats.table([tmp_path / "a.jsonl"]).splitlines()[-1] == f"| a | 2 | 1 | 0 | 2 | 16 | 160 | 0 | {shown} |"
