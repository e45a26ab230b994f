"""The votes: the papers' algorithms by hand-worked tables, their laws by generated candidates."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unprm.election import decide as votes
from unprm.errors import NoAnswer
from unprm.votes.registry import DEFAULTS, VOTES, VoteTerms
from unprm.votes.vote import TIE

ballots = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.floats(0, 1, allow_nan=False)),
    min_size=1,
    max_size=24,
).filter(lambda ballot: any(name is not None for name, _ in ballot))


def _split(ballot):
    return [name for name, _ in ballot], [value for _, value in ballot]


def _winner(result, classes):
    return classes[result.solution_index]


def tied_places(result):
    """Indices of the tied groups, all at the front; empty if there is no tie."""
    return tuple(range(len(result.tied_answers)))


def _decide(strategy, classes, values, terms=DEFAULTS):
    """A vote on values that are rewards and confidences at once."""
    return votes.decide(strategy, classes, values, terms, values)


def test_algorithm_2_takes_the_majority_at_half_of_the_candidates():
    # N = 6, class 0 has 3 = N/2: the majority decides although class 1 holds the best reward
    result = votes.decide("hmr", [0, 0, 0, 1, 1, 2], [0.1, 0.2, 0.1, 0.9, 0.8, 0.3])
    assert (result.decided_by, _winner(result, [0, 0, 0, 1, 1, 2])) == ("majority", 0)
    assert result.solution_index == 0  # rewards were not looked at: the first member stands for the class
    assert [c.score for c in result.candidates] == [3, 2, 1]
    assert result.margin == 1


def test_algorithm_2_asks_the_prm_below_half():
    # the same with a seventh candidate: 3 < 3.5
    result = votes.decide("hmr", [0, 0, 0, 1, 1, 2, 2], [0.1, 0.2, 0.1, 0.9, 0.8, 0.3, 0.95])
    assert (result.decided_by, result.solution_index) == ("reward", 6)
    assert result.margin == pytest.approx(0.05)


def test_candidates_without_an_answer_count_in_n_and_cannot_win():
    classes = [0, 0, 1, None, None]  # 2 of 5 is no majority
    result = votes.decide("hmr", classes, [0.2, 0.3, 0.6, 0.99, 0.98])
    assert (result.decided_by, result.solution_index) == ("reward", 2)
    assert [c.members for c in result.candidates] == [[2], [0, 1]]


def test_algorithm_3_by_hand():
    # class 0: mean 0.4, f 3; class 1: mean 0.9, f 1; class 2: mean 0.65, f 2
    classes = [0, 0, 0, 1, 2, 2]
    rewards = [0.3, 0.4, 0.5, 0.9, 0.6, 0.7]
    result = votes.decide("wrf", classes, rewards, VoteTerms(alpha=0.5))
    by_class = {classes[c.members[0]]: c for c in result.candidates}
    assert (by_class[0].normalized_reward, by_class[0].normalized_frequency) == (0, 1)
    assert (by_class[1].normalized_reward, by_class[1].normalized_frequency) == (1, 0)
    assert by_class[2].normalized_reward == pytest.approx(0.5)
    assert by_class[2].normalized_frequency == pytest.approx(0.5)
    # every class scores 0.5: a total tie, won by the most frequent
    assert [c.score for c in result.candidates] == pytest.approx([0.5, 0.5, 0.5])
    assert _winner(result, classes) == 0
    assert tied_places(result) == (0, 1, 2)


def test_algorithm_3_weighs_by_alpha():
    classes, rewards = [0, 0, 0, 1, 2, 2], [0.3, 0.4, 0.5, 0.9, 0.6, 0.8]
    # class 2: mean 0.7 -> (0.7 - 0.4) / 0.5 = 0.6; f 2 -> 0.5
    result = votes.decide("wrf", classes, rewards, VoteTerms(alpha=0.6))
    scores = {classes[c.members[0]]: c.score for c in result.candidates}
    assert scores == pytest.approx({0: 0.4, 1: 0.6, 2: 0.56})
    assert _winner(result, classes) == 1
    assert result.margin == pytest.approx(0.04)


def test_wrf_of_equal_means_is_decided_by_frequency():
    result = votes.decide("wrf", [0, 1, 1], [0.5, 0.5, 0.5])
    assert [c.normalized_reward for c in result.candidates] == [1, 1]
    assert result.candidates[0].members == [1, 2]


def test_weighted_and_prm_by_hand():
    classes, rewards = [0, 1, 1], [0.9, 0.5, 0.5]
    assert _winner(votes.decide("weighted", classes, rewards), classes) == 1
    assert _winner(votes.decide("prm", classes, rewards), classes) == 0


def test_ties_go_to_frequency_then_mean_reward_then_first():
    frequency = votes.decide("prm", [0, 1, 1], [0.8, 0.8, 0.1])
    assert (frequency.candidates[0].members, tied_places(frequency)) == ([1, 2], (0, 1))
    mean = votes.decide("weighted", [0, 0, 1, 1, 1], [0.3, 0.3, 0.2, 0.2, 0.2])
    assert mean.candidates[0].members == [2, 3, 4]
    mean = votes.decide("prm", [0, 0, 1, 1], [0.1, 0.4, 0.3, 0.4])
    assert mean.candidates[0].members == [2, 3]
    first = votes.decide("prm", [7, 3], [0.5, 0.5])
    assert (first.solution_index, tied_places(first), first.margin) == (0, (0, 1), 0)


def test_majority_never_sees_a_reward():
    result = votes.decide("majority", [0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4])
    assert (result.candidates[0].members, result.solution_index, tied_places(result)) == ([0, 1], 0, (0, 1))
    assert result.candidates[1].mean_reward == pytest.approx(0.35)  # reported where it is known


def test_algorithm_2_asks_the_prm_at_two_halves():
    assert votes.needed_signal("hmr", [0, 1]) == "reward"
    assert votes.needed_signal("hmr", [0, 0, 1, 1]) == "reward"
    assert votes.needed_signal("hmr", [0, 0, 1, None]) != "reward"
    result = votes.decide("hmr", [0, 0, 1, 1], [0.6, 0.7, 0.1, 0.9])
    assert (result.decided_by, result.solution_index) == ("reward", 3)


def test_wrf_by_share_is_not_deaf_to_49_of_50():
    classes, rewards = [0] * 49 + [1], [0.90] * 49 + [0.91]
    minmax = votes.decide("wrf", classes, rewards)
    assert tied_places(minmax) == (0, 1)
    assert votes.decide("wrf", classes, rewards, VoteTerms(alpha=0.51)).solution_index == 49
    share = votes.decide("wrf", classes, rewards, VoteTerms(alpha=0.51, normalization="share"))
    assert share.solution_index == 0
    winner = share.candidates[0]
    assert (winner.normalized_reward, winner.normalized_frequency) == (pytest.approx(0.9), 0.98)
    assert winner.score == pytest.approx(0.51 * 0.9 + 0.49 * 0.98)


def test_share_counts_candidates_without_an_answer_in_n():
    result = votes.decide("wrf", [0, 0, 1, None], [0.5, 0.7, 0.8, 0.9], VoteTerms(normalization="share"))
    assert {tuple(c.members): c.score for c in result.candidates} == {
        (0, 1): pytest.approx(0.5 * 0.6 + 0.5 * 0.5),
        (2,): pytest.approx(0.5 * 0.8 + 0.5 * 0.25),
    }


@pytest.mark.parametrize(
    ("strategy", "winner", "scores"),
    [
        ("majority", 0, {(0, 1, 2): 3, (3, 4): 2, (5,): 1}),
        # half of all, and no other class as frequent: that one was not scored makes no difference
        ("hmr", 0, {(0, 1, 2): 3, (3, 4): 2, (5,): 1}),
        ("prm", 3, {(0, 1, 2): 0.4, (3, 4): 0.6, (5,): 0.0}),
        ("weighted", 0, {(0, 1, 2): 0.7, (3, 4): 0.6, (5,): 0.0}),
        # means 0.35, 0.6 and 0 (nothing scored), frequencies 3, 2 and 1
        ("wrf", 0, {(0, 1, 2): 0.5 * 0.35 / 0.6 + 0.5, (3, 4): 0.75, (5,): 0.0}),
    ],
)
def test_candidates_that_were_not_scored_keep_their_place_and_bring_no_reward(strategy, winner, scores):
    classes, rewards = [0, 0, 0, 1, 1, 2], [0.3, 0.4, None, 0.6, None, None]
    result = votes.decide(strategy, classes, rewards)
    assert classes[result.solution_index] == classes[winner]
    assert {tuple(c.members): c.score for c in result.candidates} == pytest.approx(scores)
    assert {tuple(c.members): c.max_reward for c in result.candidates} == {(0, 1, 2): 0.4, (3, 4): 0.6, (5,): None}


def test_a_candidate_that_was_not_scored_stands_for_its_class_only_where_none_was():
    assert votes.decide("prm", [0, 0, 1], [None, 0.2, 0.1]).solution_index == 1
    assert votes.decide("prm", [0, 0, None], [None, None, 0.1]).solution_index == 0


def test_rewards_of_which_none_is_there_decide_nothing():
    with pytest.raises(votes.RewardsMissing, match="needs the candidates' rewards"):
        votes.decide("prm", [0, 1], [None, None])


def test_values_of_candidates_without_an_answer_decide_nothing():
    assert votes.drop_unanswered([None, 0, 1], [0.9, None, 0.0]) == [None, None, 0.0]
    assert votes.drop_unanswered([None, 0, 1], [0.9, None, None]) is None
    for strategy in list(VOTES):
        if votes.needed_signal(strategy, [None, 0, 1]) != "none":
            with pytest.raises((votes.RewardsMissing, ValueError), match="needs the candidates'"):
                _decide(strategy, [None, 0, 1], [0.9, None, None])


def test_a_hair_counts_as_a_tie_and_more_does_not():
    assert tied_places(votes.decide("prm", [0, 1], [0.5, 0.5 + 5e-10])) == (0, 1)
    assert tied_places(votes.decide("prm", [0, 1], [0.5, 0.5 + 5e-9])) == ()


@pytest.mark.parametrize("strategy", list(VOTES))
def test_one_class_wins_without_scoring(strategy):
    for classes, decided_by in (([4, 4], "unanimous"), ([None, 4, None], "only_answer")):
        assert votes.needed_signal(strategy, classes) != "reward"
        result = votes.decide(strategy, classes)
        assert (result.decided_by, result.solution_index) == (decided_by, classes.index(4))
        assert (result.margin, result.candidates[0].mean_reward) == (None, None)


def test_no_answer_at_all_is_an_error():
    with pytest.raises(NoAnswer, match="none of the 2 solutions"):
        votes.decide("majority", [None, None])


def test_missing_rewards_are_an_error():
    with pytest.raises(votes.RewardsMissing, match="needs the candidates' rewards"):
        votes.decide("wrf", [0, 1])


@given(ballots, st.sampled_from(list(VOTES)), st.floats(0, 1), st.randoms(use_true_random=False))
def test_the_order_of_candidates_matters_only_in_total_ties(ballot, strategy, alpha, rng):
    shuffled = rng.sample(ballot, len(ballot))
    one, other = (_decide(strategy, *_split(b), VoteTerms(alpha=alpha)) for b in (ballot, shuffled))
    assert (one.decided_by, len(tied_places(one))) == (other.decided_by, len(tied_places(other)))
    # sums of numbers so small that they have fewer digits depend on their order
    assert one.margin == (None if other.margin is None else pytest.approx(other.margin, abs=1e-300))
    best = [c for c in one.candidates if tied_places(one) == () or one.candidates.index(c) in tied_places(one)]
    by_reward = VOTES[strategy].signal == "reward" and one.decided_by != "majority"
    keys = [(c.count, c.mean_reward if by_reward else 0) for c in best]
    if keys.count(max(keys)) == 1:  # else only the order could break the tie
        assert ballot[one.solution_index][0] == shuffled[other.solution_index][0]


@given(ballots)
def test_hmr_is_majority_at_half_and_prm_below(ballot):
    classes, rewards = _split(ballot)
    counts = sorted((classes.count(name) for name in {*classes} - {None}), reverse=True)
    model = "majority" if 2 * counts[0] >= len(classes) and counts[0] not in counts[1:] else "prm"
    hmr, other = votes.decide("hmr", classes, rewards), votes.decide(model, classes, rewards)
    assert (hmr.candidates, hmr.solution_index, tied_places(hmr)) == (
        other.candidates,
        other.solution_index,
        tied_places(other),
    )


@given(ballots, st.sampled_from(list(VOTES)))
def test_a_vote_that_needs_no_rewards_elects_the_same_with_them(ballot, strategy):
    classes, rewards = _split(ballot)
    if votes.needed_signal(strategy, classes) == "none":
        with_rewards, without = _decide(strategy, classes, rewards), votes.decide(strategy, classes)
        assert classes[with_rewards.solution_index] == classes[without.solution_index]
        assert tied_places(with_rewards) == tied_places(without)


@given(ballots, st.sampled_from([0.0, 1.0]))
def test_wrf_at_the_ends_of_alpha_is_frequency_or_mean_reward_alone(ballot, alpha):
    classes, rewards = _split(ballot)
    winner = votes.decide("wrf", classes, rewards, VoteTerms(alpha=alpha)).candidates[0]
    means = [c.mean_reward for c in votes.decide("wrf", classes, rewards).candidates]
    if alpha == 0:
        assert winner.count == max(classes.count(name) for name in classes if name is not None)
    else:
        assert winner.mean_reward == pytest.approx(max(means), abs=1e-8)


@given(ballots, st.sampled_from(list(VOTES)))
def test_every_answer_is_in_exactly_one_candidate_and_the_best_is_first(ballot, strategy):
    classes, rewards = _split(ballot)
    result = _decide(strategy, classes, rewards)
    members = [index for c in result.candidates for index in c.members]
    assert sorted(members) == [index for index, name in enumerate(classes) if name is not None]
    assert result.solution_index in result.candidates[0].members
    scores = [-math.inf if c.score is None else c.score for c in result.candidates]
    assert all(left >= right - TIE for left, right in pairwise(scores))


def test_best_of_majority_drops_the_rare_and_takes_the_highest_reward():
    classes, rewards = [0, 0, 0, 1, 1, 2], [0.1, 0.2, 0.3, 0.4, 0.5, 0.9]
    result = votes.decide("best_of_majority", classes, rewards, VoteTerms(min_share=0.3))
    assert [c.score for c in result.candidates] == [0.5, 0.3, None]
    assert (result.solution_index, result.decided_by, result.margin) == (4, "reward", pytest.approx(0.2))
    assert votes.decide("best_of_majority", classes, rewards, VoteTerms(min_share=0.1)).solution_index == 5
    # a third of six is two, however it is rounded
    third = votes.decide("best_of_majority", classes, rewards, VoteTerms(min_share=1 / 3))
    assert third.solution_index == 4


def test_best_of_majority_needs_no_reward_where_one_answer_is_frequent():
    terms = VoteTerms(min_share=0.5)
    assert votes.needed_signal("best_of_majority", [0, 0, 0, 1, 2], terms) != "reward"
    result = votes.decide("best_of_majority", [0, 0, 0, 1, 2], None, terms)
    assert (result.solution_index, result.decided_by) == (0, "majority")
    # none is frequent enough: the most frequent are what is left
    assert votes.needed_signal("best_of_majority", [0, 0, 1, 1, 2], terms) == "reward"
    assert votes.decide("best_of_majority", [0, 0, 1, 1, 2], [0.1, 0.2, 0.1, 0.3, 0.9], terms).solution_index == 3


@given(ballots, st.floats(-5, 5))
def test_cisc_knows_no_zero(ballot, shift):
    """Only differences of confidences count."""
    classes, confidences = _split(ballot)
    one, other = (
        votes.decide("cisc", classes, None, DEFAULTS, [value + more for value in confidences]) for more in (0.0, shift)
    )
    assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates])


def test_cisc_by_hand():
    result = votes.decide("cisc", [0, 0, 1, None], None, VoteTerms(temperature=0.5), [0.5, 0.5, 1.0, 0.0])
    total = 2 * math.e + math.e**2
    assert {tuple(c.members): c.score for c in result.candidates} == pytest.approx(
        {(0, 1): 2 * math.e / total, (2,): math.e**2 / total}
    )


@given(ballots)
def test_cisc_is_the_most_confident_in_the_cold_and_majority_in_the_heat(ballot):
    classes, confidences = _split(ballot)
    confidences = [round(confidence, 2) for confidence in confidences]
    if len({*classes} - {None}) > 1:
        cold = votes.decide("cisc", classes, None, VoteTerms(temperature=1e-4), confidences)
        best = max(value for name, value in zip(classes, confidences, strict=True) if name is not None)
        assert best in [confidences[index] for index in cold.candidates[0].members]
        hot = votes.decide("cisc", classes, None, VoteTerms(temperature=1e6), confidences)
        assert hot.candidates[0].count == max(c.count for c in hot.candidates)


def test_confidences_are_needed_and_rewards_do_not_replace_them():
    assert votes.needed_signal("cisc", [0, 1]) == "confidence"
    with pytest.raises(ValueError, match="cisc needs the candidates' confidences"):
        votes.decide("cisc", [0, 1], [0.5, 0.6])
    with pytest.raises(ValueError, match="confidences"):
        votes.decide("cisc", [0, 1], None, DEFAULTS, [None, None])


@given(ballots, st.sampled_from(list(VOTES)), st.integers(2, 3))
def test_every_candidate_twice_elects_the_same(ballot, strategy, times):
    classes, values = _split(ballot)
    once, again = _decide(strategy, classes, values), _decide(strategy, classes * times, values * times)
    if not (tied_places(once) or tied_places(again)):
        assert _winner(once, classes) == _winner(again, classes * times)
