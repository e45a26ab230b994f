"""Which answer a language model prefers: one solution of each is shown, in several orders, whose mean decides.

In every order a solution stands in another slot, so that a slot's advantage cancels.
"""

import hashlib
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from unprm.task_groups import all_of
from unprm.types import Usage
from unprm.votes.vote import TIE, Values

MOST = 8
"""Maximum number of answers that are compared."""

Ask = Callable[[Sequence[int]], Coroutine[Any, Any, Sequence[float] | None]]
"""Shows contenders (indices) in this order; gives the probability of each slot, or None without a readable reply."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared: a `problem`, and one text per answer, the most frequent first. `agent`: they are trajectories
    of an agent. `repeats` and `pairwise` as in `SelectTerms`."""

    problem: str
    texts: Sequence[str]
    repeats: int
    pairwise: bool = False
    agent: bool = False

    @property
    def calls(self) -> int:
        """The number of calls that it takes."""
        count = len(self.texts)
        return 2 * (count - 1) if self.pairwise else len(orders(count, self.repeats, ""))

    @property
    def seed(self) -> str:
        """Of the orders: a digest of the content."""
        return hashlib.sha256("\0".join([self.problem, *self.texts]).encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Selected:
    """The `preferences` in [0, 1] for a question's texts; None if there are none, and then `why`: because it `failed`,
    or nothing was to be asked. `usage`: the tokens of `calls`, by the server's count."""

    preferences: Sequence[float] | None = None
    why: str | None = None
    failed: bool = False
    calls: int = 0
    usage: Usage = field(default_factory=Usage)


def contenders(classes: Sequence[int | None], rewards: Values | None) -> list[int]:
    """The candidate to show for each of the `MOST` most frequent classes, most frequent first: its first one with the
    highest reward. Equally frequent classes are ordered by that reward, then by first appearance."""
    members: dict[int, list[int]] = {}
    for index, name in enumerate(classes):
        if name is not None:
            members.setdefault(name, []).append(index)

    def reward(index: int) -> float:
        return (rewards[index] or 0.0) if rewards else 0.0

    ranked = [(max(same, key=lambda index: (reward(index), -index)), len(same)) for same in members.values()]
    ranked.sort(key=lambda each: (-each[1], -reward(each[0])))
    return [index for index, _ in ranked[:MOST]]


def orders(count: int, repeats: int, seed: str) -> list[list[int]]:
    """At most `repeats` different orders of `count` contenders: turns of a shuffled one, then of its reverse. The first
    `count` put each contender into every slot once; fewer are spread over the slots evenly."""
    base = random.Random(seed).sample(range(count), count)
    turns = [turn * count // repeats if repeats < count else turn for turn in range(min(repeats, count))]
    found = [base[turn:] + base[:turn] for turn in turns]
    further = max(0, repeats - count) if count > 2 else 0
    return found + [order[::-1] for order in found[:further]]


async def preferences(ask: Ask, question: Question) -> list[float] | None:
    """The preference for each text; None if no reply could be read. Raises what `ask` raises."""
    count = len(question.texts)
    if question.pairwise:
        return await _knockout(ask, count)
    shown = orders(count, question.repeats, question.seed)
    return _mean(count, shown, await all_of(map(ask, shown)))


def _mean(count: int, shown: Sequence[Sequence[int]], replies: Sequence[Sequence[float] | None]) -> list[float] | None:
    """The mean over the orders with a reply of each contender's probability in its slot."""
    sums, read = [0.0] * count, 0
    for order, reply in zip(shown, replies, strict=True):
        if reply is not None:
            read += 1
            for contender, probability in zip(order, reply, strict=True):
                sums[contender] += probability
    return [total / read for total in sums] if read else None


async def _knockout(ask: Ask, count: int) -> list[float] | None:
    """Rounds in which the most frequent answer left meets the least frequent one, and so on; an odd one has a bye. An
    equal pair goes to the more frequent. The preference is the share of the rounds that a contender stayed in, the last
    of which counts as its share of the pair: so that of the winner is the highest. None without a readable reply."""

    async def meet(first: int, second: int) -> list[float] | None:
        pair, shown = (first, second), ((0, 1), (1, 0))
        return _mean(2, shown, await all_of(ask([pair[k] for k in order]) for order in shown))

    left, scores, read, rounds = list(range(count)), [0.0] * count, False, (count - 1).bit_length()
    for number in range(rounds):
        half = len(left) // 2
        pairs = list(zip(left[:half], left[: -half - 1 : -1], strict=True))
        stay = left[half : len(left) - half]
        for (first, second), reply in zip(pairs, await all_of(meet(*pair) for pair in pairs), strict=True):
            read = read or reply is not None
            one, other = reply or (0.5, 0.5)
            scores[first], scores[second] = (number + one) / rounds, (number + other) / rounds
            stay.append(first if one >= other - TIE else second)
        left = sorted(stay)
    return scores if read else None
