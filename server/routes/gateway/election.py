"""From a chat request to the elected completion: rounds of candidates until the vote is stable. An election goes on
while its answer is not accepted at the request's risk; several may share one budget."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter

from unprm import pipeline
from unprm.answers.options import lists_options
from unprm.ballot import Ballot, shortened
from unprm.concurrent import all_of
from unprm.election.acceptance import ElectionRecord
from unprm.election.adaptive import Standing, least_decided, stability
from unprm.election.decide import representative
from unprm.errors import DeadlineExceeded, NoAnswer, Overloaded, Unscorable, UpstreamFailed, UpstreamRefused
from unprm.openai.models import Json
from unprm.pipeline import NoConfidence
from unprm.types import Extraction
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.wire import LONGEST_COMPARED, AnySolution, Unscored, VoteOut, VoteRequest

from ...admission import Context
from ...models.model import Model
from ...observe import annotate_generation, evaluated
from ...scoring import RequestScorer
from ...service import Service
from .candidates import SampledCandidates, Source
from .parts import Parts
from .replies import Sampled
from .report import Attempt, ElectionUsage, Piece, Report, Sample, Stopped, Told, UnscoredCandidate, notes
from .schema import Election

IN_FLIGHT = 8
"""Maximum number of requests for which candidates are sampled at a time."""
PROBE = 2
"""Candidates that are sampled first where only answers can be voted on, to see whether there are any."""
_RESERVE = 0.1
"""Fraction of a request's time reserved for scoring and voting."""


class _AnyVoteRequest(VoteRequest, VoteTerms):
    """Candidates for any vote, which need a problem only if they are scored."""


@dataclass(frozen=True, slots=True)
class ElectionTerms:
    """How an answer is elected: what the request says, and what the server decides where it says nothing.

    `question`: what is asked last; `problem`: what a PRM reads, None for a vote without rewards; `sources`: of the
    candidates; `why_majority`: why a vote that nobody named is by majority. `by_logprobs`: rewards are made of the
    log-probabilities of tokens. `several`: whether the server has several upstreams.
    """

    request: Election
    question: str
    problem: str | None
    strategy: Strategy
    sources: Sequence[Source]
    stable: float
    why_majority: str | None = None
    by_logprobs: bool = False
    several: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The candidates so far, and the answer that led after the latest vote, None if there is none."""

    sampled: int
    budget: int
    answer: str | None


Step = Piece | Sample | Progress
"""What a stream tells of an election."""
Observer = Callable[[Step], None]
"""Is called with every candidate, as it is written and when it has arrived, if they are to be shown, and with the
progress after each of them, and after each vote but the last."""


@dataclass(frozen=True, slots=True)
class Elected:
    """A completion of each answer as the upstream sent it, the elected one first, then those of the other answers
    in the order of the vote; the tokens of all, with the model of the elected one; the report."""

    choices: list[Json]
    sampled: Sampled
    report: Report


class Rounds:
    """The election of one answer, in rounds of sampling and voting; `models`: those that score, by their names;
    `waiting`: other elections that need time after this one.

    After each round: `stopped`, why no more candidates are needed, None if they are; `stable`, the probability that
    the vote would not change if all were sampled.
    """

    def __init__(
        self,
        service: Service,
        models: Sequence[Model],
        candidates: SampledCandidates,
        terms: ElectionTerms,
        context: Context,
        observe: Observer = lambda step: None,
        waiting: int = 0,
    ) -> None:
        self._waiting = waiting
        self._metrics, self._context, self._observe = service.metrics, context, observe
        self._scorer = RequestScorer(service, models, context)
        self.candidates, self.terms = candidates, terms
        self.stopped: Stopped | None = None
        self.stable = 0.0
        self._ballot: Ballot | None = None
        self._leader: str | None = None
        self._question_decides = "extraction" not in terms.request.model_fields_set
        self._extraction: Extraction | None = None if self._question_decides else terms.request.extraction
        self._exhaust = False
        self._probes = (
            VOTES[terms.strategy].signal == "none"
            and "round" not in terms.request.model_fields_set
            and candidates.budget > terms.request.round
        )

    @property
    def next_size(self) -> int:
        """Number of candidates that the next round samples."""
        attempted, size = self.candidates.attempted, self.terms.request.round
        if self._probes and attempted < size:
            size = size - attempted if attempted else PROBE
        return min(size, self.candidates.budget - attempted)

    async def run(self) -> Elected:
        """Samples until the election stops; the elected completion. Raises as `sample` and `elected`."""
        while self.stopped is None:
            await self.sample(self.next_size)
        return await self.elected()

    def exhaust(self) -> None:
        """Lets an election that has stopped go on until the budget is used up."""
        self._exhaust, self.stopped = True, None

    async def sample(self, count: int) -> None:
        """One more round, of `count` candidates, and a vote.

        Raises the upstream's errors if there is no candidate at all, and those of voting.
        """
        context = self._context
        assert context.claims.deadline is not None, "every request that works has one"
        until, now = context.claims.deadline - _RESERVE * context.claims.seconds, asyncio.get_running_loop().time()
        try:
            share = now + (until - now) / (1 + self._waiting)
            await self.candidates.sample(count, share, self._arrived, self._enough)
        except TimeoutError:
            raise DeadlineExceeded((1 - _RESERVE) * context.claims.seconds) from None
        self._ballot = await self._vote(self.terms.strategy)
        if self._ballot is not None:
            self._leader = self._ballot.outcome(self.terms.strategy, LONGEST_COMPARED).answer
        await self._judge()
        if self.stopped is None:
            self._observe(Progress(len(self.candidates.sampled.choices), self.candidates.budget, self._leader))

    def _arrived(self, step: Sample | Piece) -> None:
        if self.terms.request.candidates:
            self._observe(step)
        if isinstance(step, Sample):
            self._observe(Progress(step.index + 1, self.candidates.budget, self._leader))

    async def elected(self) -> Elected:
        """The completion that the last vote elects. Raises `UpstreamFailed` if rewards are to decide and none has text
        that can be scored."""
        candidates, terms, parts = self.candidates, self.terms, None
        ballot, strategy = self._ballot, terms.strategy
        if ballot is None:  # there may be answers, but without what the vote needs: then their frequency decides
            ballot, strategy = await self._vote("majority"), "majority"
        if ballot is None:
            won, others = await self._without_answers(), list[int]()
            evaluated(terms.strategy, won.get("decided_by") or "none", won.get("reward"), self._context)
        else:
            vote = ballot.outcome(strategy, LONGEST_COMPARED)
            self._metrics.voted(vote, self._context)
            won, values = _won(ballot, vote), ballot.values(strategy)
            others = [representative(each.members, values) for each in vote.candidates]
            if (parts := await self._scorer.read(partial(candidates.by_parts, vote))) is not None:
                won |= _won_by_parts(parts, vote, ballot, others[parts.place])
            del others[0 if parts is None else parts.place]
            request, scored_by = terms.request, (self._scorer.name, terms.request.aggregate)
            held = ElectionRecord.of(vote, len(ballot.classes), ballot.rewards, request, *scored_by)
            answer = None if parts is None else parts.answer
            self._context.election = replace(held, answer=answer or ballot.solutions[won["solution_index"]].answer)
        if terms.request.risk is not None:  # what was not voted on as calibrated is not accepted
            won["accept"] = won.get("accept") or False
        spent, origin = Sampled(), candidates.origin(won["solution_index"])
        for source in terms.sources:
            spent.add(source.sampled)
        spent.model = origin.sampled.model
        told = Told.model_validate(spent.details) if spent.details else None
        if terms.several:
            asked = filter(attrgetter("asked"), terms.sources)
            won |= {"upstream": origin.name, "models": {source.name: source.spent for source in asked}}
        won |= {
            "model": self._scorer.name,
            "strategy": terms.strategy,
            "budget": candidates.budget,
            "sampled": len(candidates.sampled.choices),
            "saved": candidates.budget - candidates.attempted,
            "cut": candidates.cut,
            "rounds": candidates.rounds,
            "stopped": self.stopped or "budget",
            "stable": self.stable,
            "failures": candidates.failures,
            "usage": ElectionUsage(**asdict(self._context.usage), upstream=told),
            "solutions": candidates.samples if terms.request.candidates else None,
        }
        report = Report(**won)
        report.notes = notes(
            report,
            candidates.token_limit,
            why_majority=terms.why_majority,
            by_letters=self._question_decides and self._extraction == "choice",
            by_frequency=ballot is not None and strategy != terms.strategy,
        )
        choices = [candidates.choice(index) for index in (report.solution_index, *others)]
        if parts is not None and parts.choice is not None:
            choices[0] = parts.choice
        return Elected(choices, spent, report)

    async def _enough(self, choices: Sequence[Json]) -> bool:
        """Whether the vote on these completions is stable, so that no others need be waited for; False for a vote that
        needs more than answers: scoring some would delay the rest."""
        terms = self.terms
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
        made = partial(self._request, solutions or self.candidates.solutions)
        request = await self._scorer.read(made)
        self._context.solutions = request.count
        if strategy != self.terms.strategy:
            request.risk = None
        try:
            return await pipeline.cast(request, [strategy], self._scorer)
        except (NoAnswer, Unscorable, NoConfidence):
            return None

    async def _judge(self) -> None:
        """Decides whether sampling stops."""
        left = self.candidates.budget - self.candidates.attempted
        self.stable = 0.0 if self._ballot is None else await self._stability(self._ballot, left)
        if self.candidates.failing:
            self.stopped = "failures"
        elif left == 0:
            self.stopped = "budget"
        elif self._probes and self._ballot is None and self.candidates.attempted == PROBE and not self.candidates.cut:
            self.stopped = "no_answer"
        elif self.stable >= self.terms.stable and not self._exhaust:
            self.stopped = "stable"

    async def _stability(self, ballot: Ballot, left: int) -> float:
        """The probability that the vote won't change when the candidates that are `left` have come."""
        # the final number of candidates: these and those still to come; failed ones are not replaced
        strategy, whole = self.terms.strategy, len(ballot.classes) + left
        values = ballot.values(strategy)
        return await asyncio.to_thread(stability, strategy, ballot.classes, values, whole, self.terms.request)

    async def _without_answers(self) -> Json:
        """The outcome in the report if no candidate has an answer to vote for: the one with the highest reward, or
        confidence, is elected if the vote takes these."""
        terms, count = self.terms, len(self.candidates.sampled.choices)
        found: Json = {
            "solution_index": self.candidates.first_whole,
            "without_answer_count": count,
            "compared_as": "none",
        }
        signal, named = VOTES[terms.strategy].signal, terms.request.strategy is not None
        if signal == "none" or (count == 1 and not named):
            return found
        request = await self._scorer.read(partial(self._request, self.candidates.solutions))
        values: list[float | None] = [getattr(solution, "confidence", None) for solution in request.solutions]
        if signal == "reward":
            try:
                scored = await pipeline.score(request, self._scorer)
            except Unscorable as error:
                if not named:
                    return found
                raise UpstreamFailed(f"none of the {count} candidates has text that can be scored: {error}") from error
            values = [solution.reward for solution in scored.solutions]
            found["unscored"] = _unscored(enumerate(each.unscored for each in scored.solutions))
            found["demonstration"] = scored.demonstration
        best = representative(range(count), values)
        reward = values[best] if signal == "reward" else None
        return found | {"decided_by": signal, "solution_index": best, "reward": reward}

    def _request(self, solutions: Callable[[Extraction], list[AnySolution]]) -> _AnyVoteRequest:
        terms = self.terms
        if self._extraction is None:
            self._extraction = "choice" if lists_options(terms.question) else "auto"
        election = terms.request
        settings = {name: getattr(election, name) for name in VoteTerms.model_fields}
        return _AnyVoteRequest(
            problem=terms.problem,
            solutions=solutions(self._extraction),
            model=election.model,
            extraction=self._extraction,
            aggregate=election.aggregate,
            split=election.split,
            risk=election.risk,
            **settings,
        )


async def elect(
    service: Service,
    candidates: SampledCandidates,
    further: Sequence[SampledCandidates],
    terms: ElectionTerms,
    context: Context,
    observe: Observer = lambda step: None,
) -> Elected:
    """The elected completion. If it is not accepted, `on_reject` says how far to go: to the rest of the budget, and
    from there to the `further` candidates, which are given for `escalate`, until one is. The last one stands, accepted
    or not; an upstream that fails, or takes more than its share of the time, has none.

    Raises as `Rounds`, if all fail the last one's error.
    """
    attempts: list[Attempt] = []
    elected: Elected | None = None
    failed: list[str] = []

    def follow(step: Step) -> None:
        if isinstance(step, Progress):  # the numbers of candidates begin anew
            observe(step)

    with service.models.chosen(terms.request.model) as models:
        for waiting, each in zip(range(len(further), -1, -1), (candidates, *further), strict=True):
            told_of = observe if each is candidates else follow
            rounds = Rounds(service, models, each, terms, context, told_of, waiting)
            try:
                elected = await _attempt(rounds, attempts)
                more = each is candidates and terms.request.on_reject in ("sample_more", "escalate")
                if more and not elected.report.accept and rounds.stopped == "stable":
                    rounds.exhaust()
                    elected = await _attempt(rounds, attempts)
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                if elected is None and not waiting:
                    raise
                failed.append(f"the upstream {_names(each)} gave no answer: {error}")
            if elected is not None and elected.report.accept:
                break
    assert elected is not None, "else the last one's error was raised"
    elected.report.notes += failed
    if terms.request.on_reject is not None:
        elected.report.attempts = attempts
    told = elected.sampled
    annotate_generation(candidates.model, told.model, context.response_id, told.prompt_tokens, told.completion_tokens)
    return elected


async def _attempt(rounds: Rounds, attempts: list[Attempt]) -> Elected:
    """Samples until the election stops; adds what that took."""
    sampled = rounds.candidates.sampled
    count, before = len(sampled), sampled.spent
    elected = await rounds.run()
    told = {
        "upstream": _names(rounds.candidates),
        "model": elected.sampled.model,
        "sampled": len(sampled) - count,
        "answer": elected.report.answer,
        "accept": bool(elected.report.accept),
    }
    spent = {name: value - before.get(name, 0) for name, value in sampled.spent.items()}
    attempts.append(Attempt.model_validate(told | spent))
    return elected


def _names(candidates: SampledCandidates) -> str:
    return "+".join(source.name for source in candidates.sources)


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
    place = least_decided([Standing(each.candidates.attempted, each.candidates.budget, each.stable) for each in chosen])
    return None if place is None else waiting[place]


def _won(ballot: Ballot, vote: VoteOut) -> Json:
    """The outcome of a vote in the report."""
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


def _won_by_parts(parts: Parts, vote: VoteOut, ballot: Ballot, index: int) -> Json:
    """What the report has of an answer that is elected by its parts. `index`: of the candidate that is the nearest."""
    nearest, written = vote.candidates[parts.place], parts.report.written
    return {
        "answer": shortened(parts.answer or nearest.answer, LONGEST_COMPARED),
        "solution_index": index,
        "decided_by": "majority",
        "share": nearest.count / sum(each.count for each in vote.candidates) if written else 0.0,
        "reward": ballot.rewards[index] if ballot.rewards is not None and written else None,
        "tie": False,
        "margin": None,
        "by_parts": parts.report,
    }


def _unscored(reasons: Iterable[tuple[int, Unscored | None]]) -> list[UnscoredCandidate]:
    return [UnscoredCandidate(index=index, **dict(reason)) for index, reason in reasons if reason is not None]
