"""Answers to many chat requests with one budget: candidates go where the vote is least decided."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from unprm.election.adaptive import Standing, least_decided

from .election import Elected, Rounds

IN_FLIGHT = 8
"""Most requests for which candidates are sampled at a time."""


async def elect_all(elections: Sequence[Rounds], budget: int) -> list[Elected | Exception]:
    """Elects an answer for each, with at most `budget` candidates for all together, at least one each.

    After a first round for each, every further one goes to the request whose vote would most probably change, until
    the budget is used up or every election has stopped. An election that fails has its error in place of an answer.
    """
    shared = _SharedBudget(elections, budget)
    await _by(IN_FLIGHT, shared.begin)
    # were all sampled at a time, none would be chosen
    await _by(max(1, min(IN_FLIGHT, len(elections) // 2)), shared.go_on)
    return [shared.failures.get(index) or await _elected(rounds) for index, rounds in enumerate(elections)]


class _SharedBudget:
    """The candidates that are left, and the elections that still want some."""

    def __init__(self, elections: Sequence[Rounds], budget: int) -> None:
        self._elections = elections
        self._left = budget
        self._first = budget // len(elections)
        self._new = list(range(len(elections)))
        self._open: set[int] = set()
        self.failures: dict[int, Exception] = {}

    async def begin(self) -> None:
        """Samples first rounds, until every election has one."""
        while self._new:
            await self._sample(self._new.pop(0), self._first)

    async def go_on(self) -> None:
        """Samples further rounds one after the other, until there is none to sample."""
        while self._left > 0 and (index := self._least_decided()) is not None:
            self._open.remove(index)
            await self._sample(index, self._left)

    async def _sample(self, index: int, limit: int) -> None:
        rounds = self._elections[index]
        count = min(rounds.next_size, limit)
        self._left -= count
        try:
            await rounds.sample(count)
        except Exception as error:  # reported in its place; the others go on
            self.failures[index] = error
            return
        if rounds.stopped is None:
            self._open.add(index)

    def _least_decided(self) -> int | None:
        """The open election that gets the next round."""
        waiting = sorted(self._open)
        elections = [self._elections[index] for index in waiting]
        standings = [Standing(each.candidates.attempted, each.terms.budget, each.stable) for each in elections]
        place = least_decided(standings)
        return None if place is None else waiting[place]


async def _by(workers: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())


async def _elected(rounds: Rounds) -> Elected | Exception:
    try:
        return await rounds.elected()
    except Exception as error:  # as above
        return error
