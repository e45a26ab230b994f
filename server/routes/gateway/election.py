"""The election of one answer: rounds of candidates until the vote is stable."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from unprm import pipeline
from unprm.answers.options import lists_options
from unprm.ballot import Ballot
from unprm.election.acceptance import ElectionRecord
from unprm.election.adaptive import stability
from unprm.election.decide import representative
from unprm.errors import DeadlineExceeded, NoAnswer, Unscorable, UpstreamFailed
from unprm.openai.models import Json
from unprm.pipeline import NoConfidence
from unprm.types import Extraction
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.wire import LONGEST_COMPARED, AnySolution, Unscored, VoteOut, VoteRequest

from ...models.model import Model
from ...scoring import RequestScorer
from ...tracing import report_evaluation
from .candidates import SampledCandidates
from .replies import SampledCompletions
from .report import (
    ElectionUsage,
    Progress,
    Report,
    ReportedUsage,
    Stopped,
    TextPiece,
    UnscoredCandidate,
    WrittenCandidate,
    notes,
)
from .schema import Election

PROBE = 2
"""Candidates that are sampled first where only answers can be voted on, to see whether there are any."""
_RESERVE = 0.1
"""Fraction of a request's time reserved for scoring and voting."""


class _AnyVoteRequest(VoteRequest, VoteTerms):
    """Candidates for any vote, which need a problem only if they are scored."""


_COMMON = _AnyVoteRequest.model_fields.keys() & Election.model_fields.keys()

ElectionUpdate = TextPiece | WrittenCandidate | Progress
"""What a stream tells of an election."""
Observer = Callable[[ElectionUpdate], None]
"""Is called with every candidate, as it is written and when it has arrived, if they are to be shown, and with the
progress after each of them, and after each vote but the last."""


def ignore(update: ElectionUpdate) -> None:
    """Observes nothing."""


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """A completion of each answer as the upstream sent it, the elected one first, then those of the other answers
    in the order of the vote; the tokens of all, with the model of the elected one; the report."""

    choices: list[Json]
    sampled: SampledCompletions
    report: Report


class RunningElection:
    """The election of one answer, in rounds of sampling and voting; `models`: those that score, by their names;
    `waiting`: other elections that need time after this one.

    After each round: `stopped`, why no more candidates are needed, None if they are; `stable`, the probability that
    the vote would not change if all were sampled.
    """

    def __init__(
        self, models: Sequence[Model], candidates: SampledCandidates, observe: Observer = ignore, waiting: int = 0
    ) -> None:
        self.candidates, self._observe, self._waiting = candidates, observe, waiting
        self._terms, self._context = candidates.terms, candidates.context
        self._scorer = RequestScorer(candidates.service, models, candidates.context)
        self.stopped: Stopped | None = None
        self.stable = 0.0
        self._ballot: Ballot | None = None
        self._leader: str | None = None
        settings = self._terms.settings
        self._question_decides = "extraction" not in settings.model_fields_set
        self._extraction: Extraction | None = None if self._question_decides else settings.extraction
        self._exhaust = False
        self._probes = (
            VOTES[self._terms.strategy].signal == "none"
            and "round" not in settings.model_fields_set
            and candidates.budget > settings.round
        )

    @property
    def next_size(self) -> int:
        attempted, size = self.candidates.attempted, self._terms.settings.round
        if self._probes and attempted < size:
            size = size - attempted if attempted else PROBE
        return min(size, self.candidates.budget - attempted)

    async def run(self) -> ElectionResult:
        """Samples until the election stops. Raises as `sample` and `result`."""
        while self.stopped is None:
            await self.sample(self.next_size)
        return await self.result()

    def exhaust(self) -> None:
        """Lets an election that has stopped go on until the budget is used up."""
        self._exhaust, self.stopped = True, None

    async def sample(self, count: int) -> None:
        """One more round, of `count` candidates, and a vote.

        Raises the upstream's errors if there is no candidate at all, and those of voting.
        """
        claims = self._context.claims
        assert claims.deadline is not None, "every request that works has one"
        until, now = claims.deadline - _RESERVE * claims.seconds, asyncio.get_running_loop().time()
        try:
            share = now + (until - now) / (1 + self._waiting)
            await self.candidates.sample(count, share, self._note_arrival, self._is_enough)
        except TimeoutError:
            raise DeadlineExceeded((1 - _RESERVE) * claims.seconds) from None
        self._ballot = await self._vote(self._terms.strategy)
        if self._ballot is not None:
            self._leader = self._ballot.outcome(self._terms.strategy, LONGEST_COMPARED).answer
        await self._stop_if_decided()
        if self.stopped is None:
            self._observe_progress(len(self.candidates.sampled))

    def _note_arrival(self, update: WrittenCandidate | TextPiece) -> None:
        if self._terms.settings.candidates:
            self._observe(update)
        if isinstance(update, WrittenCandidate):
            self._observe_progress(update.index + 1)

    def _observe_progress(self, sampled: int) -> None:
        self._observe(Progress(sampled=sampled, budget=self.candidates.budget, answer=self._leader))

    async def result(self) -> ElectionResult:
        """What the last vote elects. Raises `UpstreamFailed` if rewards are to decide and none has text that can be
        scored."""
        candidates, terms, settings, context = self.candidates, self._terms, self._terms.settings, self._context
        ballot, strategy = self._ballot, terms.strategy
        if ballot is None:  # there may be answers, but without what the vote needs: then their frequency decides
            ballot, strategy = await self._vote("majority"), "majority"
        if ballot is None:
            outcome, others = await self._without_answers(), list[int]()
            report_evaluation(terms.strategy, outcome.get("decided_by") or "none", outcome.get("reward"), context)
        else:
            vote = ballot.outcome(strategy, LONGEST_COMPARED)
            candidates.service.metrics.count_vote(vote, context)
            outcome, values = _outcome(ballot, vote), ballot.values(strategy)
            others = [representative(each.members, values) for each in vote.candidates]
            del others[0]
            scored_by = self._scorer.name, settings.aggregate
            record = ElectionRecord.of(vote, len(ballot.classes), ballot.rewards, settings, *scored_by)
            context.election = replace(record, answer=ballot.solutions[vote.solution_index].answer)
        sampled = SampledCompletions()
        for source in terms.sources:
            sampled.add(source.sampled)
        sampled.model = candidates.origins[outcome["solution_index"]].sampled.model
        report = self._report(outcome, sampled, by_frequency=ballot is not None and strategy != terms.strategy)
        choices = [candidates.choice(index) for index in (report.solution_index, *others)]
        return ElectionResult(choices, sampled, report)

    def _report(self, outcome: Json, sampled: SampledCompletions, *, by_frequency: bool) -> Report:
        candidates, terms = self.candidates, self._terms
        if terms.settings.risk is not None:  # what was not voted on as calibrated is not accepted
            outcome["accept"] = outcome.get("accept") or False
        if terms.several:
            costs = {source.name: source.cost for source in terms.sources if source.requested}
            outcome |= {"upstream": candidates.origins[outcome["solution_index"]].name, "models": costs}
        reported = ReportedUsage.model_validate(sampled.details) if sampled.details else None
        fields = outcome | {
            "model": self._scorer.name,
            "strategy": terms.strategy,
            "budget": candidates.budget,
            "sampled": len(candidates.sampled),
            "saved": candidates.budget - candidates.attempted,
            "cut": candidates.cut,
            "rounds": candidates.rounds,
            "stopped": self.stopped or "budget",
            "stable": self.stable,
            "failures": candidates.failures,
            "usage": ElectionUsage(**asdict(self._context.usage), upstream=reported),
            "solutions": candidates.written if terms.settings.candidates else None,
        }
        report = Report(**fields)
        report.notes = notes(
            report,
            candidates.token_limit,
            why_majority=terms.why_majority,
            by_letters=self._question_decides and self._extraction == "choice",
            by_frequency=by_frequency,
            by_pointers=bool(terms.settings.vote_on),
        )
        return report

    async def _is_enough(self, choices: Sequence[Json]) -> bool:
        """Whether the vote on these completions is stable, so that no others need be waited for; False for a vote that
        needs more than answers: scoring some would delay the rest."""
        terms = self._terms
        if VOTES[terms.strategy].signal != "none" or self._exhaust:
            return False
        ballot = await self._vote(terms.strategy, partial(self.candidates.provisional, choices))
        left = self.candidates.budget - self.candidates.attempted - (len(choices) - len(self.candidates.sampled))
        return ballot is not None and await self._stability(ballot, left) >= terms.stable

    async def _vote(
        self, strategy: Strategy, solutions: Callable[[Extraction], list[AnySolution]] | None = None
    ) -> Ballot | None:
        """The ballot of all candidates so far, or of these; None if none of them has an answer, or none that has one
        the reward or confidence that the vote needs."""
        request = await self._scorer.read(partial(self._request, solutions or self.candidates.solutions))
        self._context.solutions = request.count
        if strategy != self._terms.strategy:
            request.risk = None
        try:
            return await self._scorer.finish(pipeline.cast(request, [strategy], self._scorer))
        except (NoAnswer, Unscorable, NoConfidence):
            return None

    async def _stop_if_decided(self) -> None:
        left = self.candidates.budget - self.candidates.attempted
        self.stable = 0.0 if self._ballot is None else await self._stability(self._ballot, left)
        if self.candidates.failing:
            self.stopped = "failures"
        elif left == 0:
            self.stopped = "budget"
        elif self._probes and self._ballot is None and self.candidates.attempted == PROBE and await self._none_votes():
            self.stopped = "no_answer"
        elif self.stable >= self._terms.stable and not self._exhaust:
            self.stopped = "stable"

    async def _none_votes(self) -> bool:
        """Whether no candidate was truncated, or has an answer even alone: among more, others may be of its kind."""
        alone = [partial(self.candidates.provisional, [choice]) for choice in self.candidates.sampled.choices]
        return not self.candidates.cut and not any([await self._vote("majority", each) for each in alone])

    async def _stability(self, ballot: Ballot, left: int) -> float:
        """The probability that the vote won't change when the candidates that are `left` have come."""
        # the final number of candidates: these and those still to come; failed ones are not replaced
        strategy, whole = self._terms.strategy, len(ballot.classes) + left
        values = ballot.values(strategy)
        return await asyncio.to_thread(stability, strategy, ballot.classes, values, whole, self._terms.settings)

    async def _without_answers(self) -> Json:
        """The outcome in the report if no candidate has an answer to vote for: the one with the highest reward, or
        confidence, is elected if the vote takes these."""
        terms, count = self._terms, len(self.candidates.sampled)
        whole = self.candidates.first_whole
        outcome: Json = {"solution_index": whole, "without_answer_count": count, "compared_as": "none"}
        signal, named = VOTES[terms.strategy].signal, terms.settings.strategy is not None
        if signal == "none" or (count == 1 and not named):
            return outcome
        request = await self._scorer.read(partial(self._request, self.candidates.solutions))
        values: list[float | None] = [getattr(solution, "confidence", None) for solution in request.solutions]
        if signal == "reward":
            try:
                scored = await self._scorer.finish(pipeline.score(request, self._scorer))
            except Unscorable as error:
                if not named:
                    return outcome
                raise UpstreamFailed(f"none of the {count} candidates has text that can be scored: {error}") from error
            values = [solution.reward for solution in scored.solutions]
            outcome["unscored"] = _unscored(enumerate(each.unscored for each in scored.solutions))
            outcome["demonstration"] = scored.demonstration
        best = representative(range(count), values)
        reward = values[best] if signal == "reward" else None
        return outcome | {"decided_by": signal, "solution_index": best, "reward": reward}

    def _request(self, solutions: Callable[[Extraction], list[AnySolution]]) -> _AnyVoteRequest:
        terms = self._terms
        if self._extraction is None:
            self._extraction = "choice" if lists_options(terms.question) else "auto"
        fields = {name: getattr(terms.settings, name) for name in _COMMON}
        fields |= {"problem": terms.problem, "extraction": self._extraction, "solutions": solutions(self._extraction)}
        return _AnyVoteRequest(**fields)


def _outcome(ballot: Ballot, vote: VoteOut) -> Json:
    return dict(vote) | {
        "share": vote.candidates[0].count / sum(each.count for each in vote.candidates),
        "reward": None if ballot.rewards is None else ballot.rewards[vote.solution_index],
        "unscored": _unscored(
            (index, Unscored.of(each)) for index, each in enumerate(ballot.scores) if isinstance(each, Unscorable)
        ),
        "without_answer_count": ballot.without_answer_count,
        "demonstration": ballot.demonstration,
        "compared_as_text": list(ballot.compared_as_text),
    }


def _unscored(reasons: Iterable[tuple[int, Unscored | None]]) -> list[UnscoredCandidate]:
    return [UnscoredCandidate(index=index, **dict(reason)) for index, reason in reasons if reason is not None]
