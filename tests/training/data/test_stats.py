"""Statistics of annotated solutions by hand-worked cases."""

import pytest

from training import resumable
from training.data import stats


def _searched(rank, tried, **more):
    """A wrong solution as `annotate` writes it, of which `tried` steps were tried by falling Δu."""
    evidence = [{"step": step, "prefix": "p", "samples": 8, "tokens": 80} for step in range(2, tried + 2)]
    shared = {"model": "m", "problem": "Why?", "steps": ["So."] * 4, "correct": False, "rank": rank}
    return shared | {
        "id": str(more),
        "tried": evidence,
        "verified": tried,
        "labels": [True, True, False, False],
        **more,
    }


def _right(**more):
    """A right solution, which is not searched."""
    return {"id": "right", "model": "m", "problem": "Why?", "steps": ["So."], "correct": True, "labels": [True],
            "tried": [], "verified": 0, **more}  # fmt: skip


def test_ranks_by_hand():
    # found at once, at the third; never below τ after two, and in a solution that has no step to try
    records = [_searched(0, 1), _searched(2, 3), _searched(None, 2), _searched(None, 0), _right()]
    assert stats.ranks(records) == stats.Ranks(mean=1.0, without=0.5, with_last=1.0)
    assert stats.ranks(records[1:3]) == stats.Ranks(mean=2.0, without=0.5, with_last=1.5)


def test_a_step_that_is_never_found_has_no_rank():
    assert stats.ranks([_searched(None, 0)]) == stats.Ranks(mean=None, without=1.0, with_last=None)
    assert stats.ranks([_searched(None, 0)]).cells() == ("–", "100.0 %", "–")


def test_searches_in_another_order_have_no_ranks():
    unranked = {name: value for name, value in _searched(0, 1).items() if name != "rank"}
    assert stats.ranks([unranked, _right()]) is None
    assert stats.ranks([]) is None


def test_unresolved_solutions_count_as_without_a_rank():
    """As `uncertainty-literal` leaves them."""
    left = {name: value for name, value in _searched(None, 3, reason="none below").items() if name != "labels"}
    (row,) = stats.by_model([_searched(0, 1), left])
    assert (row.solutions, row.verified) == (1, 1)
    assert row.ranks == stats.Ranks(mean=0.0, without=0.5, with_last=1.0)


@pytest.mark.parametrize(("ranked", "shown"), [(True, ["1.00", "0.0 %", "1.00"]), (False, ["–", "–", "–"])])
def test_the_table_shows_ranks_where_there_are_any(tmp_path, ranked, shown):
    record = _searched(1, 2)
    if not ranked:
        del record["rank"]
    resumable.write(tmp_path / "a.jsonl", {"share_prefixes": False}, [record, _right()])
    for name in ("unresolved", "questions"):
        (tmp_path / f"a.{name}.jsonl").touch()
    (table,) = (table for table in stats.tables([tmp_path / "a.jsonl"]) if "sampling model" in str(table.title))
    assert [column.header for column in table.columns][-3:] == list(stats.Ranks.COLUMNS)
    assert [next(iter(column.cells)) for column in table.columns][2:] == ["2", "2.00", *shown]
