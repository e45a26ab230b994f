"""Elections held to their end: of one answer, which go on while it is not accepted at the request's risk, or of many
with one budget."""

from collections.abc import Sequence
from typing import Literal

from unprm.concurrent import all_of
from unprm.election.adaptive import Standing, least_decided
from unprm.errors import DeadlineExceeded, Overloaded, UpstreamFailed, UpstreamRefused

from ...admission import Context
from ...service import Service
from .candidates import Candidates
from .election import Elected, Observer, Progress, Rounds, Terms
from .report import Attempt, Sample

IN_FLIGHT = 8
"""Maximum number of requests for which candidates are sampled at a time."""


async def elect(
    service: Service,
    candidates: Candidates,
    second: Candidates | None,
    terms: Terms,
    context: Context,
    observe: Observer = lambda step: None,
) -> Elected:
    """The elected completion. If it is not accepted, `on_reject` says how far to go: to the rest of the budget, and
    from there to the `second` upstream's candidates, given for `escalate`. The last one stands, accepted or not.

    Raises as `Rounds`; but where the second upstream fails, the first one's answer stands.
    """
    attempts: list[Attempt] = []
    with service.models.chosen(terms.request.model) as models:
        rounds = Rounds(service, models, candidates, terms, context, observe)
        elected = await _attempt(rounds, "first", attempts)
        further = terms.request.on_reject in ("sample_more", "escalate")
        if further and not elected.report.accept and rounds.stopped == "stable":
            rounds.exhaust()
            elected = await _attempt(rounds, "first", attempts)
        if second is not None and not elected.report.accept:

            def follow(step: Sample | Progress) -> None:
                if isinstance(step, Progress):  # the numbers of candidates begin anew
                    observe(step)

            try:
                later = await _attempt(Rounds(service, models, second, terms, context, follow), "second", attempts)
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                elected.report.notes.append(f"the second upstream gave no answer: {error}")
            else:
                later.sampled.add_tokens(elected.sampled)
                elected = later
    if terms.request.on_reject is not None:
        elected.report.attempts = attempts
    return elected


async def _attempt(rounds: Rounds, upstream: Literal["first", "second"], attempts: list[Attempt]) -> Elected:
    """Samples until the election stops; adds what that took."""
    sampled = rounds.candidates.sampled
    count, before = len(sampled), sampled.usage
    elected = await rounds.run()
    after = sampled.usage
    attempts.append(
        Attempt(
            upstream=upstream,
            model=sampled.model,
            sampled=len(sampled) - count,
            prompt_tokens=after["prompt_tokens"] - before["prompt_tokens"],
            completion_tokens=after["completion_tokens"] - before["completion_tokens"],
            answer=elected.report.answer,
            accept=bool(elected.report.accept),
        )
    )
    return elected


async def elect_all(elections: Sequence[Rounds], budget: int) -> list[Elected | Exception]:
    """Elects an answer for each, with at most `budget` candidates for all together, at least one each.

    After a first round for each, every further one goes to the request whose vote would most probably change, until
    the budget is used up or every election has stopped. An election that fails has its error in place of an answer.
    """
    left, share = budget, budget // len(elections)
    new, going = list(range(len(elections))), set[int]()
    failures: dict[int, Exception] = {}

    async def sample(index: int, limit: int) -> None:
        nonlocal left
        rounds = elections[index]
        count, before = min(rounds.next_size, limit), rounds.candidates.attempted
        left -= count
        try:
            await rounds.sample(count)
        except Exception as error:  # reported in its place; the others go on
            failures[index] = error
            return
        left += count - (rounds.candidates.attempted - before)  # those that were not waited for
        if rounds.stopped is None:
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
    results: list[Elected | Exception] = []
    for index, rounds in enumerate(elections):
        try:
            results.append(failures.get(index) or await rounds.elected())
        except Exception as error:  # as above
            results.append(error)
    return results


def _least_decided(elections: Sequence[Rounds], indices: set[int]) -> int | None:
    """The index of the election that gets the next round."""
    waiting = sorted(indices)
    chosen = [elections[index] for index in waiting]
    place = least_decided([Standing(each.candidates.attempted, each.terms.budget, each.stable) for each in chosen])
    return None if place is None else waiting[place]
