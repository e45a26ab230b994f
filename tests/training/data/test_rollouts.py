"""Adaptive sampling of rollouts, and ending it early."""

import asyncio
import random

import pytest

from tests.training.scripted import ScriptedSampler
from training.data.rollouts import EarlyStop, Prefix, Roller, finished, fixed_count
from training.settings import AdaptiveSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Rollout
from unprm.uncertainty import ESTIMATORS, frequency, inverse_ppl, mc_ppl

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


@pytest.mark.parametrize("estimator", list(ESTIMATORS.values()))
def test_a_settled_verdict_is_never_changed_by_the_rest(estimator):
    stop = EarlyStop(tau=0.4, confidence=1, largest=1.0, seed=0)
    for right in range(17):
        seen = _rollouts(right, 16 - right)
        if stop.is_settled(seen, estimator, PLAN):
            verdict = estimator(seen) < 0.4
            for more in range(PLAN.most - 16 + 1):
                after = [*seen, *_rollouts(more, PLAN.most - 16 - more)]
                assert (estimator(after) < 0.4) is verdict


@pytest.mark.parametrize("estimator", list(ESTIMATORS.values()))
def test_certainty_ends_in_the_verdict_of_all_rollouts(equivalence, estimator):
    """Of texts as sure and as long as they come, with any threshold, also where the first count is no multiple of a
    block."""

    async def saved(number):
        rng = random.Random(number)
        plan = rng.choice((PLAN, AdaptiveSettings(first=20), AdaptiveSettings(first=24, most=24)))
        rate, scale = rng.random() ** 2, rng.choice((0.1, 0.7, 3.0))
        drawn = [Rollout((-rng.expovariate(1 / scale),), rng.random() < rate) for _ in range(plan.most)]
        stop = EarlyStop(rng.random(), 1.0, max(-rollout.logprobs[0] for rollout in drawn), seed=0)
        roller = Roller(ScriptedSampler(), equivalence, estimator)
        everything, early = [
            await roller.sample(Prefix((1,), 1, "37", seed=0, rollouts=list(drawn)), plan, way) for way in (None, stop)
        ]
        assert (estimator(early) < stop.tau) is (estimator(everything) < stop.tau), number
        return len(everything) - len(early)

    async def all_saved():
        return [await saved(number) for number in range(1500)]

    assert any(asyncio.run(all_saved()))


def test_certainty_needs_more_rollouts_than_confidence():
    sure = EarlyStop(tau=0.8, confidence=1, largest=1.0, seed=0)
    confident = EarlyStop(tau=0.8, confidence=0.95, largest=1.0, seed=0)
    seen = _rollouts(0, 8)
    assert not sure.is_settled(seen, mc_ppl, PLAN)
    assert confident.is_settled(seen, mc_ppl, PLAN)
    assert sure.is_settled(_rollouts(0, 60), mc_ppl, PLAN)


def test_a_close_verdict_is_not_settled():
    stop = EarlyStop(tau=0.5, confidence=0.95, largest=1.0, seed=0)
    assert not stop.is_settled(_rollouts(4, 4), inverse_ppl, PLAN)


def test_early_stop_saves_rollouts_and_keeps_the_verdict(equivalence):
    for steps, below in (("Step 1: 30 + 12 = 43.\n", True), ("Step 1: 30 + 12 = 42.\n", False)):
        sampler = ScriptedSampler()
        stop = EarlyStop(tau=0.3, confidence=0.95, largest=2.0, seed=1)
        rollouts = asyncio.run(_roller(sampler, equivalence, mc_ppl).sample(_prefix(sampler, steps), PLAN, stop))
        assert (mc_ppl(rollouts) < 0.3) is below
        if below:
            assert len(rollouts) < PLAN.most
