"""How sure a vote is before all candidates are there."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm.election.adaptive import stability
from unprm.election.decide import RewardsMissing, decide
from unprm.votes.registry import DEFAULTS, VOTES, Strategy, VoteTerms

Classes = list[int | None]

classes = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=7)


@given(classes, st.integers(0, 4), st.data())
def test_what_is_certain_never_changes(now: Classes, left: int, data: st.DataObject) -> None:
    """Whatever comes: every vote that is called certain has the same winner after all of it."""
    rewards = data.draw(st.lists(st.floats(0, 1), min_size=len(now), max_size=len(now)))
    for strategy in VOTES:
        if stability(strategy, now, rewards, len(now) + left, draws=5) < 1 or not any(c is not None for c in now):
            continue
        winner = now[decide(strategy, now, rewards, DEFAULTS, rewards).solution_index]
        for _ in range(20):
            more = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=left, max_size=left))
            scored = rewards + data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=left, max_size=left))
            assert (now + more)[decide(strategy, now + more, scored, DEFAULTS, scored).solution_index] == winner


@pytest.mark.parametrize(
    ("strategy", "now", "budget", "certain"),
    [
        ("majority", [0, 0, 0], 5, True),
        ("majority", [0, 0, 0], 6, False),
        ("majority", [0, 0, 0, 1], 5, True),
        ("majority", [0, 0, 0, 1], 6, False),
        ("majority", [0, 0, None], 3, True),
        ("hmr", [0, 0, 0], 5, True),
        ("hmr", [0, 0, 0], 6, False),
        ("weighted", [0, 0, 0], 4, True),
        ("weighted", [0, 0, 0], 5, False),
        ("prm", [0, 0, 0], 4, False),
        ("wrf", [0, 0, 0], 4, False),
        ("wrf", [0, 0, 0], 3, True),
    ],
)
def test_certain_is_what_can_be_proved(strategy: Strategy, now: Classes, budget: int, certain: bool) -> None:
    rewards = [0.5, 0.6, 0.7, 0.1][: len(now)]
    assert (stability(strategy, now, rewards, budget) == 1.0) is certain


def test_without_an_answer_nothing_is_sure() -> None:
    assert stability("majority", [None, None], None, 4) == 0.0
    assert stability("majority", [None, None], None, 2) == 1.0


@pytest.mark.parametrize("strategy", ["prm", "wrf", "weighted", "cisc"])
def test_a_vote_that_lacks_its_values_is_open_until_the_budget_is_used_up(strategy: Strategy) -> None:
    """Whatever the candidate without an answer brings."""
    for values in ([None, None, None], [None, None, 0.9]):
        assert stability(strategy, [0, 1, None], values, 5) == 0.0
        assert stability(strategy, [0, 1, None], values, 3) == 1.0


def test_values_yet_unseen_may_be_any() -> None:
    """One answer, which nothing has been scored of: the next is another with probability 1/2, and then has a reward."""
    assert stability("prm", [0], [None], 2, draws=20_000) == pytest.approx(1 / 2, abs=0.01)
    assert stability("prm", [0, None], [None, 0.9], 3, draws=20_000) == pytest.approx(2 / 3, abs=0.01)


def test_the_probability_is_that_of_the_urn() -> None:
    """A majority vote of three candidates with two to come: all that may be drawn, each with its chance."""
    now: Classes = [0, 0, 1]
    expected = 0.0
    for first in (0, 0, 1, 2):  # one of those before, or a new answer
        for second in (*now, first, 3):
            final = [*now, first, second]
            same = final[decide("majority", final).solution_index] == 0
            expected += same / (4 * 5)
    assert 0 < expected < 1
    assert stability("majority", now, None, 5, draws=20_000) == pytest.approx(expected, abs=0.01)


def test_a_reward_exceeds_all_seen_with_the_chance_of_a_new_record() -> None:
    """One class of n with rewards, best-of-N: the next of another class wins if its reward is a record."""
    rewards = [0.2, 0.4, 0.6]
    # the next is new with probability 1/4, and then falls above 0.6 with probability 1/4
    expected = 1 - 1 / 16
    assert stability("prm", [0, 0, 0], rewards, 4, draws=20_000) == pytest.approx(expected, abs=0.01)


def test_more_evidence_makes_it_surer() -> None:
    rng = random.Random(0)
    rewards = [rng.random() for _ in range(12)]
    for strategy in VOTES:
        sure = [stability(strategy, [0] * count, rewards[:count], 32, draws=500) for count in (2, 4, 12)]
        assert sure == sorted(sure), strategy
        assert sure[-1] > 0.8


def test_the_same_candidates_have_the_same_probability() -> None:
    candidates: tuple[Classes, list[float]] = ([0, 1, 0, None], [0.1, 0.9, 0.4, 0.2])
    assert stability("wrf", *candidates, 16) == stability("wrf", *candidates, 16)


def test_hmr_without_rewards_counts_on_its_majority_alone() -> None:
    """Where a future has no majority, rewards would decide, and they are unknown."""
    probability = stability("hmr", [0, 0, 0, 1], None, 8)
    assert 0.3 < probability < 1
    with pytest.raises(RewardsMissing, match="needs the candidates' rewards"):
        stability("hmr", [0, 1, 2], None, 8)


def test_alpha_counts() -> None:
    """With the frequency alone, the frequent class is safer than with the reward alone."""
    now: Classes = [0, 0, 0, 1]
    rewards = [0.3, 0.3, 0.3, 0.9]
    assert stability("wrf", now, rewards, 8, VoteTerms(alpha=0.0)) > 0.8
    won = now[decide("wrf", now, rewards, VoteTerms(alpha=1.0)).solution_index]
    assert won == 1
    assert stability("wrf", now, rewards, 8, VoteTerms(alpha=1.0)) < 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.integers(0, 6), st.data())
def test_what_is_certain_stays_so_however_answers_are_grouped_anew(
    bonds: list[int], left: int, data: st.DataObject
) -> None:
    """Candidates of one bond stay together; classes of different bonds join, part, or lose their answer."""
    rewards = data.draw(st.lists(st.floats(0, 1), min_size=len(bonds), max_size=len(bonds)))
    grouping = data.draw(st.lists(st.integers(0, 1), min_size=3, max_size=3))
    now: Classes = [grouping[bond] for bond in bonds]
    for strategy in VOTES:
        if left == 0 or stability(strategy, now, rewards, len(now) + left, bonds=bonds, draws=5) < 1:
            continue
        kept = max(bonds, key=bonds.count)
        for _ in range(20):
            group = {bond: data.draw(st.sampled_from([0, 1, 1, None])) for bond in range(3)} | {kept: 0}
            later = data.draw(st.lists(st.sampled_from([1, 1, None]), min_size=left, max_size=left))
            scored = rewards + data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=left, max_size=left))
            final = [*map(group.__getitem__, bonds), *later]
            assert final[decide(strategy, final, scored, DEFAULTS, scored).solution_index] == 0


def test_answers_that_may_part_are_not_certain() -> None:
    """5, 5 km and 5 km are equal until somebody says 5 m."""
    assert stability("majority", [0, 0, 0, 1], None, 5) == 1
    assert stability("majority", [0, 0, 0, 1], None, 5, bonds=["5", "5 km", "5 km", "6"]) < 1
    assert stability("majority", [0, 0, 0, 1], None, 5, bonds=["5 km", "5 km", "5 km", "6"]) == 1
    assert stability("majority", [0, 0, 0, None], None, 5, bonds=["5", "5", "5", None]) == 1
    assert stability("weighted", [0, 0, 0, None], [1, 1, 1, None], 5, bonds=["5", "5", "5", None]) == 1
    assert stability("weighted", [0, 0, 0, None], [0.5, 0.5, 0.9, None], 5, bonds=["5", "5", "5", None]) < 1


def test_a_simulation_that_cannot_reach_the_threshold_ends_early() -> None:
    now: Classes = [0, 1, 2, 3]
    exact = stability("majority", now, None, 8)
    assert stability("majority", now, None, 8, enough=exact) == exact
    assert stability("majority", now, None, 8, enough=0.95) < 0.95
