"""The simulation of replicas: nothing is lost, counts are exact where they can be known, waits are as theory has it."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.simulation import (
    Cache,
    Replicas,
    Request,
    Shape,
    Traffic,
    bursts,
    by_affinity,
    by_chance,
    poisson,
    simulate,
)
from unprm.affinity import ranked


def searches(count, seed=0, questions=5, start=0.01):
    """As many searches, one after the other or all at once."""
    traffic = Traffic(random.Random(seed), questions)
    return [(number * start, traffic.search()) for number in range(count)]


def constant(tokens):
    """A caller of one request that has nothing in common with others."""
    return iter([Request("q", ((next(_names), tokens),), tokens)])


_names = iter(range(10**9))


def test_every_request_is_answered_once():
    for route in (by_affinity(7), by_chance(random.Random(0), 7)):
        outcome = simulate(searches(40), Replicas(7, 1e-3), route, pause=0.5)
        assert len(outcome.sent) == 40 * Shape().steps
        assert outcome.answered.all()
        assert set(outcome.replica) <= set(range(7))
        assert (outcome.latency > 0).all()
        assert outcome.served() == 1.0
        # what a replica did fits into the time there was, and nothing was done twice at a time
        for replica in range(7):
            mine = outcome.replica == replica
            ends = outcome.sent[mine] + outcome.latency[mine]
            starts = ends - outcome.busy[mine]
            assert all(start >= end - 1e-9 for end, start in zip(ends, starts[1:], strict=False))
        assert outcome.busy.sum() == pytest.approx(1e-3 * outcome.computed.sum())


def test_one_replica_that_keeps_everything_computes_each_distinct_token_once():
    requests = [request for _, caller in searches(30) for request in caller]
    outcome = simulate(searches(30), Replicas(1, 1e-3), by_affinity(1))
    assert outcome.computed.sum() == sum(dict(node for request in requests for node in request.nodes).values())
    assert outcome.tokens.sum() == sum(request.tokens for request in requests)
    assert outcome.hit_rate == 1 - outcome.computed.sum() / sum(request.distinct for request in requests)
    assert outcome.known == 1 - outcome.computed.sum() / outcome.tokens.sum()


def test_with_affinity_as_many_tokens_are_computed_however_many_replicas_there_are():
    one = simulate(searches(60), Replicas(1, 1e-3), by_affinity(1))
    nine = simulate(searches(60), Replicas(9, 1e-3), by_affinity(9))
    chance = simulate(searches(60), Replicas(9, 1e-3), by_chance(random.Random(0), 9))
    assert nine.computed.sum() == one.computed.sum()
    assert chance.computed.sum() > 1.3 * one.computed.sum()


def test_with_one_replica_chance_is_affinity():
    affine = simulate(searches(30), Replicas(1, 1e-3, cache_tokens=2000), by_affinity(1))
    chance = simulate(searches(30), Replicas(1, 1e-3, cache_tokens=2000), by_chance(random.Random(0), 1))
    assert (affine.latency == chance.latency).all()
    assert (affine.computed == chance.computed).all()


def test_without_a_cache_nothing_is_known():
    outcome = simulate(searches(30), Replicas(3, 1e-3, cache_tokens=0), by_affinity(3))
    assert outcome.hit_rate == 0
    assert (outcome.computed == outcome.distinct).all()


def test_what_was_used_longest_ago_goes_first_and_a_parent_after_its_children():
    cache = Cache(100)
    assert cache.read([(1, 40), (2, 40)]) == 80
    assert cache.read([(1, 40), (3, 40)]) == 40  # 2 goes
    assert cache.held == 80
    assert cache.read([(1, 40), (3, 40)]) == 0
    assert cache.read([(1, 40), (2, 40)]) == 40  # 3 goes, not 1, which 2 goes on from
    assert cache.read([(1, 40)]) == 0
    assert cache.read([(1, 40), (2, 40)]) == 0
    assert cache.read([(5, 40)]) == 40
    assert cache.read([(1, 40)]) == 0  # 2 went, not what it goes on from
    assert cache.read([(4, 200)]) == 200
    assert cache.held == 0


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_waiting_is_as_pollaczek_and_khinchine_have_it(load):
    """M/D/1: a mean of load / (2 (1 - load)) times the time of service."""
    rng, service = random.Random(1), 0.1
    callers = [(time, constant(100)) for time in poisson(rng, load / service, 20_000.0)]
    outcome = simulate(callers, Replicas(1, service / 100), by_affinity(1))
    waited = (outcome.latency - outcome.busy).mean()
    assert waited == pytest.approx(load / (2 * (1 - load)) * service, rel=0.04)
    assert outcome.load(1) == pytest.approx(load, rel=0.02)


def test_a_replica_that_has_too_much_is_passed_over_and_all_of_them_refuse():
    first, second = (int(name[-1]) for name in ranked("q", ["replica-0", "replica-1"]))
    callers = [(0.001 * number, constant(1000)) for number in range(9)]
    outcome = simulate(callers, Replicas(2, 1e-3, overflow_seconds=1.5, queue_seconds=2.5), by_affinity(2))
    # a second's work each: two wait for the first, two for the second, one more for whichever is free first, and again
    assert list(outcome.replica) == [first, first, second, second, first, second, -1, -1, -1]
    assert math.isnan(outcome.latency[-1])
    assert outcome.served() == pytest.approx(6 / 9)
    assert outcome.served(1.5) == pytest.approx(2 / 9)


def test_callers_that_share_a_queue_send_the_next_when_one_is_answered():
    queue = iter([Request("q", ((number, 100),), 100) for number in range(1, 11)])
    outcome = simulate([(0.0, queue)] * 4, Replicas(1, 0.01), by_affinity(1), pause=0.5)
    assert outcome.seconds == pytest.approx(10.0)  # four wait, so half a second's pause leaves none idle
    assert list(np.round(outcome.sent[4:], 6)) == [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    late = outcome.between(3.0, 5.0)
    assert list(late.sent) == list(outcome.sent[6:8])
    assert late.rate() == 1.0
    assert late.rate(1.0) == 0.0
    assert late.load(1) == pytest.approx(1.0)


def test_arrivals_are_as_many_as_they_are_said_to_be():
    for arrivals in (poisson, bursts):
        times = list(arrivals(random.Random(0), 50.0, 5000.0))
        assert len(times) / 5000 == pytest.approx(50.0, rel=0.05)
        assert all(before <= after for before, after in pairwise(times))
        counts = np.histogram(times, bins=5000)[0]
        spread = counts.var() / counts.mean()
        assert spread == pytest.approx(1.0, abs=0.1) if arrivals is poisson else spread > 5


def test_questions_are_asked_by_zipf_and_a_search_grows_by_a_step():
    traffic = Traffic(random.Random(0), 10)
    questions = [next(traffic.vote()).question for _ in range(20_000)]
    share = 1 / sum(1 / rank for rank in range(1, 11))
    assert questions.count("0") / len(questions) == pytest.approx(share, rel=0.05)
    assert questions.count("9") / len(questions) == pytest.approx(share / 10, rel=0.15)
    grown = list(traffic.search())
    assert [request.distinct for request in grown] == [100 + 20 * depth + 160 for depth in range(10)]
    assert all(set(request.nodes) & set(more.nodes) > set(request.nodes[:1]) for request, more in pairwise(grown))


def test_a_replica_with_more_than_its_share_is_passed_over():
    def calls(start):
        return [(start(number), constant(100)) for number in range(10)]

    def of_the_first(callers, bound):
        return int((simulate(callers, Replicas(2, 1e-3), by_affinity(2, bound=bound)).replica == first).sum())

    (first, _) = by_affinity(2)("q", [0, 0])
    assert of_the_first(calls(lambda number: 0.0), bound=False) == 10
    assert of_the_first(calls(lambda number: 0.0), bound=True) == 7  # 1.4 times the mean of ten
    assert of_the_first(calls(lambda number: number * 0.2), bound=True) == 10  # each is answered before the next


def test_the_order_is_the_projects():
    names = [f"replica-{number}" for number in range(20)]
    assert by_affinity(20)("a question", [0] * 20) == [names.index(name) for name in ranked("a question", names)]
