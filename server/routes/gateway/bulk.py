"""Many elections that share one budget of candidates."""

from collections.abc import Sequence

from unprm.concurrent import all_of
from unprm.election.adaptive import Standing, least_decided

from .election import ElectionResult, RunningElection

IN_FLIGHT = 8
"""Maximum number of requests for which candidates are sampled at a time."""


async def elect_all(elections: Sequence[RunningElection], budget: int) -> list[ElectionResult | Exception]:
    """Elects an answer for each, with at most `budget` candidates for all together, at least one each.

    After a first round for each, every further one goes to the request whose vote would most probably change, until
    the budget is used up or every election has stopped. An election that fails has its error in place of an answer.
    """
    left, share = budget, budget // len(elections)
    new, going = list(range(len(elections))), set[int]()
    failures: dict[int, Exception] = {}

    async def sample(index: int, limit: int) -> None:
        nonlocal left
        election = elections[index]
        count, before = min(election.next_size, limit), election.candidates.attempted
        left -= count
        try:
            await election.sample(count)
        except Exception as error:  # reported in its place; the others go on
            failures[index] = error
            return
        left += count - (election.candidates.attempted - before)  # those that were not waited for
        if election.stopped is None:
            going.add(index)

    async def sample_first() -> None:
        while new:
            await sample(new.pop(0), share)

    async def sample_least_decided() -> None:
        while left > 0 and (index := _least_decided(elections, going)) is not None:
            going.remove(index)
            await sample(index, left)

    await all_of(sample_first() for _ in range(IN_FLIGHT))
    # were all sampled at a time, none would be chosen
    await all_of(sample_least_decided() for _ in range(max(1, min(IN_FLIGHT, len(elections) // 2))))
    results: list[ElectionResult | Exception] = []
    for index, election in enumerate(elections):
        try:
            results.append(failures.get(index) or await election.result())
        except Exception as error:  # as above
            results.append(error)
    return results


def _least_decided(elections: Sequence[RunningElection], indices: set[int]) -> int | None:
    waiting = sorted(indices)
    chosen = [elections[index] for index in waiting]
    place = least_decided([Standing(each.candidates.attempted, each.candidates.budget, each.stable) for each in chosen])
    return None if place is None else waiting[place]
