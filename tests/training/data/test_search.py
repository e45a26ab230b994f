"""The searches, on solutions whose prefixes have known values."""

import asyncio
import random

import pytest

from training.data import search
from training.data.search import BayesSettings, Belief, WrongSolution, bayes, prior
from unprm.types import Rollout


class Known:
    """Prefixes of known value: `before` until the first wrong step, `after` from there on."""

    def __init__(self, wrong: int, length: int, before: float = 0.9, after: float = 0.0, seed: int = 0) -> None:
        self.rates = [before if step < wrong else after for step in range(1, length + 1)]
        self.tried: list[int] = []
        self.rollouts: dict[int, list[Rollout]] = {}
        self.rng = random.Random(seed)

    async def value(self, step: int) -> float:
        self.tried.append(step)
        return self.rates[step - 1]

    async def draw(self, step: int, count: int) -> list[Rollout]:
        drawn = self.rollouts.setdefault(step, [])
        drawn += [Rollout((-1.0,), self.rng.random() < self.rates[step - 1]) for _ in range(count)]
        return drawn


def _solution(uncertainties, tau=0.5, mean=1.0, solved=8, rollouts=16):
    return WrongSolution(tuple(uncertainties), mean, tau, solved, rollouts)


def _found(find, solution, prefixes):
    return asyncio.run(find(solution, prefixes))


def test_uncertainty_tries_the_steps_in_the_order_of_rising_uncertainty():
    # Δu: step 2 +3, step 3 -2, step 4 +1, step 5 +1, step 6 +5
    solution = _solution([1, 4, 2, 3, 4, 9])
    prefixes = Known(wrong=5, length=6)
    assert _found(search.uncertainty, solution, prefixes) == 5
    assert prefixes.tried == [2, 4, 5]  # the tie of 4 and 5 by lower step; 3 is not needed, 6 the last


def test_uncertainty_stops_at_the_first_step_below_tau_which_need_not_be_the_first_error():
    prefixes = Known(wrong=2, length=6)
    assert _found(search.uncertainty, _solution([1, 1, 1, 1, 9, 1]), prefixes) == 5
    assert prefixes.tried == [5]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_uncertainty_names_the_last_step_where_no_other_falls_below_tau_and_never_tries_it(length):
    prefixes = Known(wrong=length, length=length)
    assert _found(search.uncertainty, _solution([*[1.0] * (length - 1), 9.0]), prefixes) == length
    assert prefixes.tried == list(range(2, length))


def test_the_text_of_algorithm_1_tries_the_last_step_and_may_find_nothing():
    solution = _solution([1, 2, 9])
    last = Known(wrong=1, length=3)
    assert _found(search.uncertainty_literal, solution, last) == 3
    assert last.tried == [3]
    right = Known(wrong=9, length=3)
    assert _found(search.uncertainty_literal, solution, right) is None
    assert right.tried == [3, 2]


def test_a_value_equal_to_tau_is_not_below_it():
    prefixes = Known(wrong=2, length=3, before=0.5, after=0.5)
    assert _found(search.sequential, _solution([1, 1, 1], tau=0.5), prefixes) == 3
    assert prefixes.tried == [1, 2]


@pytest.mark.parametrize("find", [search.sequential, search.adaptive_binary])
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("length", range(2, 12))
def test_the_first_error_is_found_wherever_it_is_and_the_last_step_never_tried(find, tau, length):
    for wrong in range(1, length + 1):
        prefixes = Known(wrong, length, before=1.0)
        assert _found(find, _solution([1.0] * length, tau), prefixes) == wrong
        assert length not in prefixes.tried


@pytest.mark.parametrize(("tau", "first"), [(0.2, 3), (0.3, 5), (0.9, 5), (0.95, 7)])
def test_binary_search_begins_where_the_difficulty_says(tau, first):
    prefixes = Known(wrong=3, length=10, before=1.0)
    _found(search.adaptive_binary, _solution([1.0] * 10, tau), prefixes)
    assert prefixes.tried[0] == first  # (1 + 9) // 2 = 5, moved by (9 - 1) // 4


def test_short_solutions_are_halved_from_the_middle():
    prefixes = Known(wrong=3, length=5, before=1.0)
    _found(search.adaptive_binary, _solution([1.0] * 5, 0.1), prefixes)
    assert prefixes.tried[0] == 2


def test_a_drawn_step_is_any_and_always_the_same():
    drawn = [search.drawn(5, seed) for seed in range(300)]
    assert set(drawn) == {1, 2, 3, 4, 5}
    assert drawn == [search.drawn(5, seed) for seed in range(300)]
    assert all(40 <= drawn.count(step) <= 80 for step in range(1, 6))


def test_the_prior_follows_the_rise_of_uncertainty_and_counts_the_first_step():
    weights = prior(_solution([5.0, 5.0, 5.0], mean=1.0), BayesSettings())
    assert sum(weights) == pytest.approx(1)
    assert weights[0] > weights[1] == pytest.approx(weights[2])
    flat = prior(_solution([5.0, 1.0, 3.0]), BayesSettings(strength=0))
    assert flat == pytest.approx([1 / 3] * 3)


def test_rollouts_move_the_belief_to_the_side_they_speak_for():
    belief = Belief(_solution([1.0] * 4), BayesSettings(strength=0))
    belief.observed[2] = (8, 8)
    after_success = belief.posterior()
    assert after_success[0] + after_success[1] < 0.01
    assert after_success[2] == pytest.approx(after_success[3])
    belief.observed[2] = (0, 8)
    after_failure = belief.posterior()
    assert after_failure[0] + after_failure[1] > 0.8


def test_the_next_prefix_is_the_one_in_the_middle_of_the_belief():
    belief = Belief(_solution([1.0] * 8), BayesSettings(strength=0))
    assert belief.most_telling() == 4
    belief.observed[4] = (4, 4)
    assert belief.most_telling() in (6, 7)


def test_bayes_finds_the_first_error_with_fewer_rollouts_than_binary_search_takes():
    hits = samples = 0
    for seed in range(100):
        wrong = random.Random(seed).randint(1, 8)
        prefixes = Known(wrong, 8, before=0.6, after=0.03, seed=seed)
        found = _found(lambda s, p: bayes(s, p, BayesSettings()), _solution([1.0] * 8), prefixes)
        hits += found == wrong
        samples += sum(map(len, prefixes.rollouts.values()))
    assert hits >= 85
    assert samples / 100 < 3 * 16  # binary search verifies three steps at N_0 = 16 rollouts or more each


def test_bayes_names_the_last_step_if_every_other_prefix_leads_on_and_never_tries_it():
    prefixes = Known(wrong=4, length=4, before=1.0)
    assert _found(lambda s, p: bayes(s, p, BayesSettings()), _solution([1.0] * 4), prefixes) == 4
    assert 4 not in prefixes.rollouts


def test_bayes_spends_no_more_than_its_budget():
    prefixes = Known(wrong=3, length=6, before=0.15, after=0.1, seed=1)
    _found(lambda s, p: bayes(s, p, BayesSettings(budget=20)), _solution([1.0] * 6, solved=2), prefixes)
    assert sum(map(len, prefixes.rollouts.values())) <= 20
