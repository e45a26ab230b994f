"""Adaptive sampling of rollouts."""

import asyncio

import pytest

from tests.training.scripted import ScriptedSampler
from training.data.annotator import Prefix, Roller, finished, fixed_count
from training.stage_settings import AdaptiveSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Rollout
from unprm.uncertainty import frequency

PROBLEM = "Mia has 30 marbles. Mia finds 12 marbles. Mia loses 5 marbles. How many marbles does Mia have now?"
PLAN = AdaptiveSettings()


@pytest.fixture(scope="module")
def equivalence():
    return Equivalence()


def _prefix(sampler, steps=""):
    prompt = sampler.prompt(PROBLEM)
    return Prefix((*prompt, *map(ord, steps)), len(prompt), "37", seed=3)


def _roller(sampler, equivalence, estimator=frequency):
    return Roller(sampler, equivalence, estimator)


def test_sampling_ends_when_enough_are_right(equivalence):
    sampler = ScriptedSampler()
    rollouts = asyncio.run(_roller(sampler, equivalence).sample(_prefix(sampler), PLAN))
    assert sum(rollout.correct for rollout in rollouts) >= PLAN.enough
    assert len(rollouts) == sampler.completions >= PLAN.first
    assert (len(rollouts) - PLAN.first) % PLAN.block == 0


def test_rollouts_are_read_as_the_settings_say(equivalence):
    for extraction, right in (("boxed", True), ("choice", False)):
        roller = Roller(ScriptedSampler(), equivalence, frequency, extraction)
        rollouts = asyncio.run(roller.draw(_prefix(roller.sampler), 8))
        assert any(rollout.correct for rollout in rollouts) is right


def test_a_prefix_with_an_error_takes_all_rollouts(equivalence):
    sampler = ScriptedSampler()
    prefix = _prefix(sampler, "Step 1: 30 + 12 = 43.\n")
    rollouts = asyncio.run(_roller(sampler, equivalence).sample(prefix, PLAN))
    assert len(rollouts) == PLAN.most
    assert frequency(rollouts) == 0


def test_what_was_drawn_is_not_drawn_again(equivalence):
    sampler = ScriptedSampler()
    prefix, roller = _prefix(sampler), _roller(sampler, equivalence)
    first = asyncio.run(roller.sample(prefix, PLAN))
    drawn = sampler.completions
    assert asyncio.run(roller.sample(prefix, PLAN)) == first
    assert sampler.completions == drawn


def test_sampling_takes_the_same_rollouts_whatever_others_have_drawn(equivalence):
    sampler = ScriptedSampler()
    roller, one, many = _roller(sampler, equivalence), _prefix(sampler), _prefix(sampler)
    alone = asyncio.run(roller.sample(one, PLAN))
    for count in (1, 8, 9, 50):
        asyncio.run(roller.draw(many, count))
    assert asyncio.run(roller.sample(many, PLAN)) == alone


def test_calls_at_the_same_time_draw_once(equivalence):
    sampler = ScriptedSampler(seconds=0.01)
    prefix, roller = _prefix(sampler), _roller(sampler, equivalence)

    async def twice():
        return await asyncio.gather(roller.draw(prefix, 8), roller.draw(prefix, 12), roller.draw(prefix, 4))

    eight, twelve, four = asyncio.run(twice())
    assert twelve[:8] == eight
    assert twelve[:4] == four
    assert sampler.completions == 12


def test_rollouts_of_a_question_go_where_its_prefixes_are_cached(equivalence):
    sampler = ScriptedSampler()
    roller = _roller(sampler, equivalence)
    for steps in ("", "Step 1: 30 + 12 = 42.\n", "Step 1: 30 + 12 = 43.\n"):
        asyncio.run(roller.draw(_prefix(sampler, steps), 2))
    assert len(sampler.affinities) == 1


def _rollouts(right, wrong, surprisal=1.0):
    return [Rollout((-surprisal,), True)] * right + [Rollout((-surprisal,), False)] * wrong


@pytest.mark.parametrize(
    ("count", "correct", "ends"),
    [(8, 8, False), (15, 15, False), (16, 9, False), (16, 10, True), (24, 10, True), (71, 9, False), (72, 0, True)],
)
def test_when_adaptive_sampling_ends(count, correct, ends):
    assert finished(_rollouts(correct, count - correct), PLAN) is ends


@pytest.mark.parametrize(
    ("tenth", "right", "count"),
    [(10, 72, 16), (16, 40, 16), (17, 40, 24), (24, 11, 24), (25, 11, 32), (71, 11, 72), (10, 10, 0), (72, 10, 0)],
)
def test_the_fixed_count_is_the_first_multiple_of_8_at_which_10_were_right(tenth, right, count):
    outcomes = [False] * 72
    outcomes[tenth - 10 : tenth] = [True] * 10
    outcomes[tenth : tenth + right - 10] = [True] * (right - 10)
    assert fixed_count([Rollout((-1.0,), correct) for correct in outcomes[:72]], PLAN) == count
