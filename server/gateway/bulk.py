"""Answers to many chat requests with one budget: candidates go where the vote is least decided."""

import asyncio
from collections.abc import Sequence

from server.gateway.election import Elected, Rounds
from unprm.votes.adaptive import Standing, least_decided

IN_FLIGHT = 8
"""Requests for which candidates are sampled at a time."""


async def elect_all(elections: Sequence[Rounds], budget: int) -> list[Elected | Exception]:
    """Elects an answer for each, with at most `budget` candidates for all together, at least one each.

    After a first round for each, every further one goes to the request whose vote would most probably change, until
    the budget is used up or every election has stopped. An election that fails has its error in place of an answer.
    """
    shared = _SharedBudget(elections, budget)
    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(shared.work())
    return [shared.failures.get(index) or await _elected(rounds) for index, rounds in enumerate(elections)]


class _SharedBudget:
    """The candidates that are left, and the elections that still want some."""

    def __init__(self, elections: Sequence[Rounds], budget: int) -> None:
        self._elections = elections
        self._left = budget
        self._first = budget // len(elections)
        self._open = set(range(len(elections)))
        self.failures: dict[int, Exception] = {}

    async def work(self) -> None:
        """Samples rounds one after the other, until there is none to sample."""
        while self._left > 0 and (index := self._least_decided()) is not None:
            self._open.remove(index)
            rounds = self._elections[index]
            count = min(rounds.next_size, self._left if rounds.candidates.rounds else self._first)
            self._left -= count
            try:
                await rounds.sample(count)
            except Exception as error:  # reported in its place; the others go on
                self.failures[index] = error
                continue
            if rounds.stopped is None:
                self._open.add(index)

    def _least_decided(self) -> int | None:
        """The open election that gets the next round: one without a candidate, if there is any."""
        waiting = sorted(self._open)
        elections = [self._elections[index] for index in waiting]
        standings = [Standing(each.candidates.attempted, each.terms.budget, each.confidence) for each in elections]
        place = least_decided(standings)
        return None if place is None else waiting[place]


async def _elected(rounds: Rounds) -> Elected | Exception:
    try:
        return await rounds.elected()
    except Exception as error:
        return error
