"""How replies to comparisons elect an answer, against an oracle of the test's own, and against theory."""

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from unprm.election.decide import decide
from unprm.election.selection import MOST, Ask, Question, contenders, orders, preferences

_RUNNER = asyncio.Runner()


def compared(ask: Ask, count: int, repeats: int = 4, pairwise: bool = False) -> list[float] | None:
    return _RUNNER.run(preferences(ask, Question("", [str(k) for k in range(count)], repeats, pairwise)))


class Judge:
    """Replies by a table of random numbers, and keeps them for the oracle; None for some."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._silent = rng, rng.choice((0.0, 0.3))
        self.said: list[tuple[list[int], list[float] | None]] = []

    async def ask(self, order: Sequence[int]) -> list[float] | None:
        weights = [self._rng.choice((0.0, 0.5, 1.0, self._rng.random())) + 1e-3 for _ in order]
        reply = [weight / math.fsum(weights) for weight in weights] if self._rng.random() >= self._silent else None
        self.said.append((list(order), reply))
        return reply

    def share(self, contender: int, pair: tuple[int, int] | None = None) -> float | None:
        """Its mean over the replies, those on this pair alone if one is given."""
        found = [
            reply[order.index(contender)]
            for order, reply in self.said
            if reply is not None and (pair is None or {*order} == {*pair})
        ]
        return math.fsum(found) / len(found) if found else None


def knockout(judge: Judge, count: int) -> int:
    """The winner among contenders by votes, played again from what the judge said, without scores."""
    left = list(range(count))
    while len(left) > 1:
        stay, field = [], list(left)
        while len(field) > 1:
            first, second = field.pop(0), field.pop()
            one = judge.share(first, (first, second))
            other = judge.share(second, (first, second))
            stay.append(first if one is None or other is None or one >= other - 1e-9 else second)
        left = sorted([*stay, *field])
    return left[0]


def test_ten_thousand_random_elections_are_those_of_the_oracle() -> None:
    """From classes and rewards to the elected candidate."""
    rng, kinds = random.Random(1), Counter[str]()
    for number in range(10_000):
        classes = [rng.choice([None, *range(rng.choice((2, 4, 12)))]) for _ in range(rng.randint(2, 14))]
        rewards = [rng.choice((None, 0.2, 0.8, rng.random())) for _ in classes] if number % 2 else None
        shown = contenders(classes, rewards)
        votes = Counter(name for name in classes if name is not None)
        assert len(shown) == min(MOST, len(votes))
        for place, index in enumerate(shown):
            same = [k for k, name in enumerate(classes) if name == classes[index]]
            best = max((rewards[k] or 0.0) if rewards else 0.0 for k in same)
            assert index == next(k for k in same if not rewards or (rewards[k] or 0.0) == best)
            assert place == 0 or votes[classes[shown[place - 1]]] >= votes[classes[index]]
        assert all(votes[name] <= votes[classes[shown[-1]]] for name in votes.keys() - {classes[k] for k in shown})
        if len(shown) < 2:
            continue
        judge, pairwise = Judge(rng), bool(number % 3 == 0)
        found = compared(judge.ask, len(shown), rng.randint(1, 9), pairwise)
        if found is None:
            assert all(reply is None for _, reply in judge.said)
            kinds["silent"] += 1
            continue
        preferred = dict(zip(shown, found, strict=True))
        values = [preferred.get(k) for k in range(len(classes))]
        elected = decide("select", classes, rewards, values=values)
        if pairwise:
            kinds["pairs"] += 1
            assert len(judge.said) == 2 * (len(shown) - 1)
            winner = knockout(judge, len(shown))
            assert elected.solution_index == shown[winner] or (
                elected.tie and votes[classes[shown[winner]]] == elected.candidates[0].count
            )
        else:
            kinds["orders"] += 1
            shares = [judge.share(k) or 0.0 for k in range(len(shown))]
            assert found == pytest.approx(shares)
            assert math.fsum(found) == pytest.approx(1.0)
            level = [k for k, share in enumerate(shares) if max(shares) - share <= 1e-9]
            assert (
                elected.solution_index == shown[level[0]]
                or votes[classes[shown[level[0]]]] == elected.candidates[0].count
            )
            assert preferred[elected.solution_index] == pytest.approx(max(shares))
    assert min(kinds.values()) > 100, kinds


@pytest.mark.parametrize(("count", "repeats"), [*itertools.product(range(2, MOST + 1), (1, 2, 4, 8, 16))])
def test_orders_differ_and_put_every_contender_into_every_slot(count: int, repeats: int) -> None:
    found = orders(count, repeats, "x")
    assert len({tuple(order) for order in found}) == len(found) == min(repeats, 2 * count if count > 2 else 2)
    assert all(sorted(order) == list(range(count)) for order in found)
    if repeats >= count:
        assert all({order[slot] for order in found[:count]} == set(range(count)) for slot in range(count))
    assert found == orders(count, repeats, "x")
    assert count < 4 or found != orders(count, repeats, "y")


def test_the_advantage_of_a_slot_cancels() -> None:
    async def ask(order: Sequence[int]) -> list[float]:
        return [0.6, *[0.4 / (len(order) - 1)] * (len(order) - 1)]

    for count in range(2, MOST + 1):
        assert compared(ask, count, repeats=count) == pytest.approx([1 / count] * count)
    assert compared(ask, 4, pairwise=True) == pytest.approx([0.75, 0.75, 0.25, 0.25])


def accuracy(per_pair: float, count: int, pairwise: bool, elections: int = 2000) -> float:
    """How often a judge elects the right one of contenders that tells it from a wrong one this often, by letters."""
    rng = random.Random(f"{per_pair}/{count}/{pairwise}")

    async def ask(order: Sequence[int]) -> list[float]:
        # the right one is preferred to each wrong one with the odds p : 1 - p (Bradley and Terry)
        odds = [per_pair / (1 - per_pair) if k == right else 1.0 for k in order]
        slot = rng.choices(range(len(order)), odds)[0]
        return [float(k == slot) for k in range(len(order))]

    hits = 0.0
    for _ in range(elections):
        right = rng.randrange(count)
        found = compared(ask, count, pairwise=pairwise)
        assert found is not None
        level = [k for k, share in enumerate(found) if max(found) - share <= 1e-9]
        hits += (right in level) / len(level)
    return hits / elections


def theory(per_pair: float, count: int, calls: int) -> float:
    """By the multinomial distribution of letters: the right one has the most, ties shared out evenly."""
    odds = per_pair / (1 - per_pair)
    chances = [odds / (odds + count - 1), *[1 / (odds + count - 1)] * (count - 1)]
    total = 0.0
    for letters in itertools.product(range(count), repeat=calls):
        votes = Counter(letters)
        level = [k for k, number in votes.items() if number == max(votes.values())]
        total += math.prod(chances[k] for k in letters) * (0 in level) / len(level)
    return total


@pytest.mark.parametrize("per_pair", [0.7, 0.8, 0.9])
@pytest.mark.parametrize("count", [2, 4, 6])
def test_a_judge_of_known_accuracy_elects_as_often_as_theory_says(per_pair: float, count: int) -> None:
    expected = theory(per_pair, count, len(orders(count, 4, "")))
    assert accuracy(per_pair, count, pairwise=False) == pytest.approx(expected, abs=0.035)  # three standard errors
