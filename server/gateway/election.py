"""From a chat request to the elected completion: rounds of candidates until the vote is stable."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server import voting
from server.gateway.candidates import Candidates
from server.gateway.schema import Report, Stopped, UnscoredCandidate
from server.gateway.upstream import Sampled, UpstreamFailed
from server.http.context import Context
from server.models.model import Model
from server.service import Service
from unprm.errors import DeadlineExceeded, NoAnswer, Unscorable
from unprm.openai_api import Json
from unprm.types import DecidedBy, Strategy, Usage
from unprm.votes.adaptive import stability
from unprm.votes.ballot import Ballot, usage_out
from unprm.votes.confidence import confidence_of
from unprm.votes.rules import RULES
from unprm.wire import CompareRequest, Unscored, VoteTerms

_RESERVE = 0.1
"""Fraction of a request's time reserved for scoring and voting."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of an election, from a request and the server's settings; `scoring`: fields of `ScoreRequest`."""

    problem: str
    strategy: Strategy
    budget: int
    confidence: float
    round: int
    vote: VoteTerms
    model: str | None
    scoring: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """After a round: the candidates so far, and the leading answer, None if there is none."""

    sampled: int
    budget: int
    answer: str | None


@dataclass(frozen=True, slots=True)
class Elected:
    """The elected completion as the upstream sent it; all completions with their tokens; the report."""

    choice: Json
    sampled: Sampled
    report: Report


async def elect(
    service: Service, candidates: Candidates, terms: Terms, context: Context
) -> AsyncIterator[Progress | Elected]:
    """Yields the progress after each round, and last the elected completion.

    Raises the upstream's errors if there is no candidate at all, and those of voting.
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
            leader = None if ballot is None else ballot.outcome(terms.strategy, terms.vote).answer
            yield Progress(len(candidates.sampled.choices), terms.budget, leader)
        if ballot is None:
            won = await _without_answers(service, candidates, terms, context)
            usage += context.usage
        else:
            won = _by_vote(service, ballot, terms)
    context.usage = usage
    report = Report(
        model=voting.name(models),
        strategy=terms.strategy,
        budget=terms.budget,
        sampled=len(candidates.sampled.choices),
        saved=terms.budget - candidates.attempted,
        rounds=candidates.rounds,
        stopped=stopped,
        confidence=confidence,
        failures=candidates.failures,
        usage=usage_out(usage),
        **won,
    )
    yield Elected(candidates.choice(report.solution_index), candidates.sampled, report)


async def _ballot(
    service: Service, models: Sequence[Model], candidates: Candidates, terms: Terms, context: Context
) -> Ballot | None:
    """The ballot of all candidates so far; None if none of them has an answer, or none the scores that it needs."""
    context.usage = Usage()
    try:
        return await voting.ballot(service, models, _request(candidates, terms), [terms.strategy], context)
    except (NoAnswer, Unscorable):
        return None


async def _sample(candidates: Candidates, terms: Terms, context: Context) -> None:
    assert context.deadline is not None, "every request that works has one"
    until = context.deadline - _RESERVE * context.seconds
    try:
        await candidates.sample(min(terms.round, terms.budget - candidates.attempted), until)
    except TimeoutError:
        raise DeadlineExceeded(context.seconds) from None


def _request(candidates: Candidates, terms: Terms) -> CompareRequest:
    settings = {name: getattr(terms.vote, name) for name in VoteTerms.model_fields}
    return CompareRequest(
        problem=terms.problem, solutions=candidates.solutions(), model=terms.model, **settings, **terms.scoring
    )


async def _stopped(ballot: Ballot | None, candidates: Candidates, terms: Terms) -> tuple[Stopped | None, float]:
    """Why sampling stops, None if it goes on; and the probability that the vote would not change."""
    left = terms.budget - candidates.attempted
    confidence = 0.0
    if ballot is not None:
        # the final number of candidates: these and those still to come; failed ones are not replaced
        whole = len(ballot.classes) + left
        confidence = await asyncio.to_thread(
            stability, terms.strategy, ballot.classes, ballot.values(terms.strategy), whole, terms.vote
        )
    if candidates.failing:
        return "failures", confidence
    if left == 0:
        return "budget", confidence
    if confidence >= terms.confidence:
        return "certain" if confidence == 1.0 else "confident", confidence
    return None, confidence


def _by_vote(service: Service, ballot: Ballot, terms: Terms) -> dict[str, Any]:
    vote = ballot.outcome(terms.strategy, terms.vote)
    service.metrics.voted(vote)
    return {
        "answer": vote.answer,
        "decided_by": vote.decided_by,
        "tie": vote.tie,
        "margin": vote.margin,
        "solution_index": vote.solution_index,
        "reward": None if ballot.rewards is None else ballot.rewards[vote.solution_index],
        "candidates": vote.candidates,
        "unscored": _unscored({index: Unscored.of(error) for index, error in ballot.scores.unscorable.items()}),
        "without_answer_count": ballot.without_answer_count,
        "compared_as_text": list(ballot.compared_as_text),
    }


async def _without_answers(service: Service, candidates: Candidates, terms: Terms, context: Context) -> dict[str, Any]:
    """No candidate has an answer to vote for: the one with the highest reward, or confidence, is elected."""
    context.usage = Usage()
    count = len(candidates.sampled.choices)
    request = _request(candidates, terms)
    rewards: dict[int, float] = {}
    unscored: dict[int, Unscored] = {}
    if RULES[terms.strategy].signal == "confidence":
        values = [confidence_of(solution, terms.strategy, terms.vote) for solution in request.candidates()]
        best = max(range(count), key=lambda index: (values[index] or 0.0, -index))
        decided_by: DecidedBy = "confidence"
    else:
        try:
            scored = await voting.score_steps(service, request, context)
        except Unscorable as error:
            raise UpstreamFailed(f"none of the {count} candidates has text that can be scored: {error}") from error
        rewards = {index: item.reward for index, item in enumerate(scored.solutions) if item.reward is not None}
        unscored = {index: item.unscored for index, item in enumerate(scored.solutions) if item.unscored}
        best = max(rewards, key=lambda index: (rewards[index], -index))
        decided_by = "reward"
    return {
        "answer": None,
        "decided_by": decided_by,
        "tie": False,
        "margin": None,
        "solution_index": best,
        "reward": rewards.get(best),
        "candidates": [],
        "unscored": _unscored(unscored),
        "without_answer_count": count,
        "compared_as_text": [],
    }


def _unscored(reasons: Mapping[int, Unscored]) -> list[UnscoredCandidate]:
    return [UnscoredCandidate(index=index, **dict(reason)) for index, reason in reasons.items()]
