"""From a chat request to the elected completion: rounds of candidates, until the vote stays as it is."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from server import voting
from server.ballot import Ballot, usage_out
from server.context import Context
from server.gateway.candidates import Candidates
from server.gateway.schema import Json, Report, Stopped
from server.gateway.upstream import Sampled, UpstreamFailed
from server.model import Model
from server.service import Service
from unprm.adaptive import stability
from unprm.errors import DeadlineExceeded, NoAnswer, SolutionTooLong, TooManySteps
from unprm.types import Aggregate, Strategy, Usage
from unprm.wire import ScoreRequest, VoteRequest

_RESERVE = 0.1
"""Share of a request's time that is kept for scoring and voting."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a request and the server's settings come to."""

    problem: str
    strategy: Strategy
    budget: int
    confidence: float
    round: int
    alpha: float
    aggregate: Aggregate
    model: str | None


@dataclass(frozen=True, slots=True)
class Progress:
    """After a round: candidates so far, and the answer that leads, None if there is none."""

    sampled: int
    budget: int
    answer: str | None


@dataclass(frozen=True, slots=True)
class Elected:
    """The completion that was elected, as the upstream told it; what all of them took; how it came about."""

    choice: Json
    sampled: Sampled
    report: Report


async def elect(
    service: Service, candidates: Candidates, terms: Terms, context: Context
) -> AsyncIterator[Progress | Elected]:
    """What is known after each round, and last the elected completion.

    Raises what the upstream does if no candidate came at all, and what voting does.
    """
    usage = Usage()
    with service.models.chosen(terms.model) as models:
        while True:
            await _sample(candidates, terms, context)
            ballot = await _ballot(service, models, candidates, terms, context)
            usage += context.usage
            stopped, confidence = await _stopped(ballot, candidates, terms)
            if stopped is not None:
                break
            leader = None if ballot is None else ballot.outcome(terms.strategy, terms.alpha).answer
            yield Progress(len(candidates.sampled.choices), terms.budget, leader)
        if ballot is None:
            won = await _by_reward(service, candidates, terms, context)
            usage += context.usage
        else:
            won = _by_vote(service, ballot, candidates, terms)
    context.usage, context.solutions = usage, len(candidates.valid)
    report = Report(
        model=voting.name(models),
        strategy=terms.strategy,
        budget=terms.budget,
        sampled=len(candidates.sampled.choices),
        saved=terms.budget - candidates.asked,
        rounds=candidates.rounds,
        stopped=stopped,
        confidence=confidence,
        left_out=candidates.left_out,
        failures=candidates.failures,
        usage=usage_out(usage),
        **won,
    )
    yield Elected(candidates.sampled.choices[report.solution_index], candidates.sampled, report)


async def _ballot(
    service: Service, models: Sequence[Model], candidates: Candidates, terms: Terms, context: Context
) -> Ballot | None:
    """The vote on all candidates so far that the PRM can read; None if none of them has an answer."""
    context.usage = Usage()
    while candidates.valid:
        request = VoteRequest(solutions=candidates.texts(), **_asked(terms))
        try:
            return await voting.ballot(service, models, request, [terms.strategy], context)
        except (SolutionTooLong, TooManySteps) as error:
            candidates.leave_out(error)
        except NoAnswer:
            break
    return None


async def _sample(candidates: Candidates, terms: Terms, context: Context) -> None:
    assert context.deadline is not None, "every request that works has one"
    until = context.deadline - _RESERVE * context.seconds
    try:
        await candidates.sample(min(terms.round, terms.budget - candidates.asked), until)
    except TimeoutError:
        raise DeadlineExceeded(context.seconds) from None


def _asked(terms: Terms) -> dict[str, Any]:
    return {"problem": terms.problem, "aggregate": terms.aggregate, "model": terms.model}


async def _stopped(ballot: Ballot | None, candidates: Candidates, terms: Terms) -> tuple[Stopped | None, float]:
    """Why no more is sampled, None if more is; and the probability that the vote would stay as it is."""
    left = terms.budget - candidates.asked
    confidence = 0.0
    if ballot is not None:
        # as if those that failed or were left out had come: the budget is what is still to come beyond these
        whole = len(ballot.classes) + left
        told = terms.strategy, ballot.classes, ballot.rewards, whole, terms.alpha
        confidence = await asyncio.to_thread(stability, *told)
    if candidates.failing:
        return "failures", confidence
    if left == 0:
        return "budget", confidence
    if confidence >= terms.confidence:
        return "certain" if confidence == 1.0 else "confident", confidence
    return None, confidence


def _by_vote(service: Service, ballot: Ballot, candidates: Candidates, terms: Terms) -> dict[str, Any]:
    vote = ballot.outcome(terms.strategy, terms.alpha)
    service.metrics.voted(vote)
    rewards, numbers = ballot.rewards, candidates.valid
    return {
        "answer": vote.answer,
        "decided_by": vote.decided_by,
        "tie": vote.tie,
        "margin": vote.margin,
        "solution_index": numbers[vote.solution_index],
        "reward": None if rewards is None else rewards[vote.solution_index],
        "candidates": [
            own.model_copy(update={"members": [numbers[index] for index in own.members]}) for own in vote.candidates
        ],
    }


async def _by_reward(service: Service, candidates: Candidates, terms: Terms, context: Context) -> dict[str, Any]:
    """No candidate has an answer to vote for: the one with the highest reward is elected."""
    context.usage = Usage()
    if not candidates.valid:
        raise UpstreamFailed(f"none of the {len(candidates.sampled.choices)} candidates has text that can be scored")
    request = ScoreRequest(solutions=candidates.texts(), **_asked(terms))
    scored = await voting.score(service, request, context)
    rewards = [own.reward for own in scored.solutions]
    best = max(range(len(rewards)), key=lambda index: (rewards[index], -index))
    return {
        "answer": None,
        "decided_by": "reward",
        "tie": False,
        "margin": None,
        "solution_index": candidates.valid[best],
        "reward": rewards[best],
        "candidates": [],
    }
