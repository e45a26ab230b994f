"""The election of one answer: rounds of candidates until the vote is stable; what follows if it is not accepted."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count

from unprm import pipeline
from unprm.election.adaptive import DRAWS, stability
from unprm.election.decide import representative
from unprm.errors import DeadlineExceeded, NoAnswer, Overloaded, Unscorable, UpstreamFailed, UpstreamRefused
from unprm.openai.completion import Completion, Samples, TokenUsage
from unprm.openai.models import Json
from unprm.pipeline import Ballot, NoConfidence
from unprm.votes.registry import Strategy
from unprm.wire import LONGEST_COMPARED, Election, Unscored

from ...models.model import Model
from ...scoring import RequestScorer
from ...tracing import annotate_generation, report_evaluation
from .plan import Source
from .reading import Readings
from .report import (
    Attempt,
    ElectionUsage,
    Progress,
    Report,
    SamplingCost,
    Stopped,
    TextPiece,
    UnscoredCandidate,
    WrittenCandidate,
    notes,
)
from .sampling import Round, Sampling

PROBE = 2
"""Candidates that are sampled first where only answers can be voted on, to see whether there are any."""
_RESERVE = 0.1
"""Fraction of a request's time reserved for scoring and voting."""


ElectionUpdate = TextPiece | WrittenCandidate | Progress
"""What a stream tells of an election."""
Observer = Callable[[ElectionUpdate], None]
"""Gets the progress after each candidate, and after each vote but the last; if the request shows samples, also pieces
of candidates while they are written, and finished candidates."""


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """`choices`: as many completions as the request asks for, of each answer in the order of the vote, the elected one
    first; `sampled`: what all candidates cost, with the model of the elected one."""

    choices: list[Completion]
    sampled: Samples
    report: Report


class RunningElection:
    """The election of one answer, in rounds of sampling and voting, scored by `models`; `waiting`: number of elections
    that need time after this one.

    After each round: `stopped`, the reason to sample no more, None without a reason; `stable`, the probability that the
    vote would not change if the whole budget was sampled.
    """

    def __init__(self, models: Sequence[Model], sampling: Sampling, observe: Observer | None, waiting: int) -> None:
        self.sampling, self._observe, self._waiting = sampling, observe, waiting
        self._plan, self._lease = sampling.plan, sampling.lease
        self._scorer = RequestScorer(sampling.service, models, sampling.lease)
        if self._plan.signal == "preference" and not self._scorer.selects:
            select, model = self._plan.sources[0].upstream.selector.select, self._plan.request.model
            self._scorer.compares = partial(select, lease=self._lease, model=model)
        self._readings = Readings(sampling.plan, self._scorer)
        self.stopped: Stopped | None = None
        self.stable = 0.0
        self._ballot: Ballot | None = None
        self._leader: str | None = None
        settings = self._plan.settings
        self._exhaust = False
        self._probes = (
            self._plan.signal == "none"
            and "round" not in settings.model_fields_set
            and sampling.budget > settings.round
        )

    async def run(self) -> ElectionResult:
        """Samples until the election stops.

        Raises the upstream's errors if there is no candidate at all, those of voting, and `UpstreamFailed` if rewards
        are to decide and none has text that can be scored.
        """
        while self.stopped is None:
            await self._sample()
        return await self._result()

    def exhaust(self) -> None:
        """Lets an election that has stopped go on until the budget is used up."""
        self._exhaust, self.stopped = True, None

    async def _sample(self) -> None:
        """One more round, and a vote."""
        lease, plan, attempted = self._lease, self._plan, self.sampling.attempted
        size = plan.settings.round
        if self._probes and attempted < size:
            size = size - attempted if attempted else PROBE
        size = min(size, self.sampling.budget - attempted)
        until, now = lease.deadline - _RESERVE * lease.seconds, asyncio.get_running_loop().time()
        try:
            share = now + (until - now) / (1 + self._waiting)
            early = plan.signal == "none" and plan.settings.risk is None and not self._exhaust
            note = self._observe and self._note_arrival
            await self.sampling.sample(size, share, note, self._until_final if early else None)
        except TimeoutError:
            raise DeadlineExceeded((1 - _RESERVE) * lease.seconds, lease.unheard) from None
        await self._read(self._readings, self.sampling.completions[len(self._readings) :])
        self.sampling.check_confidences()
        self._ballot = await self._vote(self._plan.strategy)
        if self._ballot is not None and self._observe is not None:
            leading = await lease.read(partial(self._ballot.decide, self._plan.strategy, LONGEST_COMPARED))
            self._leader = leading.answer
        await self._stop_if_decided()
        if self.stopped is None and self._observe is not None:
            self._observe(self._progress(len(self.sampling.completions)))

    def _note_arrival(self, update: WrittenCandidate | TextPiece) -> None:
        assert self._observe is not None, "else nobody is told"
        if self._plan.settings.show_samples:
            self._observe(update)
        if isinstance(update, WrittenCandidate):
            self._observe(self._progress(update.index + 1))

    def _progress(self, sampled: int) -> Progress:
        return Progress(sampled=sampled, budget=self.sampling.budget, answer=self._leader)

    async def _result(self) -> ElectionResult:
        """What the last vote elects."""
        sampling, plan, lease = self.sampling, self._plan, self._lease
        ballot, strategy = self._ballot, plan.strategy
        if ballot is None:  # there may be answers, but without what the vote needs: then their frequency decides
            ballot, strategy = await self._vote("majority"), "majority"
        if ballot is None:
            outcome, others = await self._without_answers(), list[int]()
            report_evaluation(plan.strategy, outcome.get("decided_by") or "none", outcome.get("reward"), lease)
        else:
            if plan.signal == "preference":
                await self._scorer.finish(pipeline.select(ballot, self._scorer))
            vote, outcome, others = await lease.read(partial(_outcome, ballot, strategy))
            strategy = vote.strategy
            sampling.service.metrics.count_vote(vote, lease)
        sampled = Samples()
        for source in plan.sources:
            sampled.count(source.sampled)
        origin = sampling.origins[outcome["solution_index"]]
        sampled.model = origin.sampled.model
        report = self._report(outcome, sampled, origin, by_frequency=ballot is not None and strategy != plan.strategy)
        shown = [report.solution_index, *others][: plan.request.n or 1]
        choices = await lease.read(lambda: list(map(sampling.choice, shown)))  # log-probabilities are long
        return ElectionResult(choices, sampled, report)

    def _report(self, outcome: Json, sampled: Samples, origin: Source, *, by_frequency: bool) -> Report:
        sampling, plan, completions = self.sampling, self._plan, self.sampling.completions
        if plan.settings.risk is not None:  # what was not voted on as calibrated is not accepted
            outcome["accept"] = outcome.get("accept") or False
        if plan.several:
            costs = {
                source.name: SamplingCost.of(source.sampled.model, len(source.sampled), source.sampled.usage)
                for source in plan.sources
                if source.requested
            }
            outcome |= {"upstream": origin.name, "models": costs}
        fields = outcome | {
            "model": self._scorer.name,
            "strategy": plan.strategy,
            "budget": sampling.budget,
            "sampled": len(completions),
            "saved": sampling.budget - sampling.attempted,
            "cut": sum(each.is_cut for each in completions),
            "rounds": sampling.rounds,
            "stopped": self.stopped or "budget",
            "stable": self.stable,
            "failures": sampling.failures,
            "breaches": self._readings.breaches or None,
            "usage": ElectionUsage(**asdict(self._lease.usage), upstream=sampled.usage.details),
            "solutions": list(map(WrittenCandidate.of, count(), completions)) if plan.settings.show_samples else None,
        }
        report = Report(**fields)
        limit = sampling.token_limit if report.cut else None
        report.notes = notes(report, plan, limit, by_frequency=by_frequency)
        return report

    async def _until_final(self, round: Round) -> None:
        """Returns once nothing that still comes can change a vote by frequency, so that the rest of the round need not
        be waited for: more than half of the budget state the same answer, word by word. Less ends no round, as it would
        prefer fast candidates."""
        counts, read, half = Counter(self._readings.stated), 0, self.sampling.budget / 2
        while len(round.arrived) == round.size or max(counts.values(), default=0) <= half:
            await round.came.wait()
            round.came.clear()
            if len(self._readings) + len(round.arrived) > half:
                for each in round.arrived[read:]:
                    alone = Readings(self._plan, self._scorer)
                    await self._read(alone, [each])
                    counts.update(alone.stated)
                    read += 1

    async def _read(self, readings: Readings, completions: Sequence[Completion]) -> None:
        """Adds candidates to `readings`, in turns of their size."""
        if completions:
            size = sum(completion.length for completion in completions)
            await self._scorer.finish(readings.add(completions), size)

    async def _prepare(self, strategy: Strategy, readings: Readings, *, alone: bool = False) -> Ballot:
        """The ballot on all candidates of `readings`; raises as `pipeline.prepare`."""
        settings, self._lease.solutions = self._plan.settings, len(readings)
        risk = settings.risk if strategy == self._plan.strategy else None
        ballot = await self._lease.read(partial(readings.ballot, risk))
        try:
            await self._scorer.finish(pipeline.prepare(ballot, [strategy], self._scorer, alone=alone))
        finally:
            readings.keep_scores(ballot)
        return ballot

    async def _vote(self, strategy: Strategy, readings: Readings | None = None) -> Ballot | None:
        """As `_prepare`, by default on all candidates so far; None if nothing can be voted on: no answers, or no
        rewards or confidences for them."""
        try:
            return await self._prepare(strategy, self._readings if readings is None else readings)
        except (NoAnswer, Unscorable, NoConfidence):
            return None

    async def _stop_if_decided(self) -> None:
        left = self.sampling.budget - self.sampling.attempted
        self.stable = 0.0 if self._ballot is None else await self._stability(self._ballot, left)
        if self.sampling.failing:
            self.stopped = "failures"
        elif left == 0:
            self.stopped = "budget"
        elif self._probes and self.sampling.attempted == PROBE:
            if self._ballot is None and await self._none_votes():
                self.stopped = "no_answer"
        elif self._plan.settings.stable is not None and self.stable >= self._plan.settings.stable and not self._exhaust:
            self.stopped = "stable"

    async def _none_votes(self) -> bool:
        """Whether no candidate was truncated, or has an answer even beside its equal: among more, others may be."""
        for each in self.sampling.completions:
            twice = Readings(self._plan, self._scorer)
            await self._read(twice, [each, each])
            if each.is_cut or await self._vote("majority", twice) is not None:
                return False
        return True

    async def _stability(self, ballot: Ballot, left: int) -> float:
        """The probability that the vote won't change when the candidates that are `left` have come."""
        plan, readings = self._plan, self._readings
        if left and readings.breaches and not readings.kept:
            return 0.0  # one that keeps the terms would win
        # the final number of candidates: these and those still to come; failed ones are not replaced
        strategy = ballot.rule(plan.strategy)
        whole, values = len(ballot.classes) + left, ballot.values(strategy)
        simulate = partial(stability, strategy, ballot.classes, values, whole, plan.settings)
        simulate = partial(simulate, bonds=readings.bonds, enough=plan.settings.stable or 0.0)
        return await self._lease.read(simulate, DRAWS * whole, small=-1)

    async def _without_answers(self) -> Json:
        """The outcome in the report if no candidate has an answer to vote for: the one with the highest reward, or
        confidence, is elected if the vote takes these."""
        plan, readings, count = self._plan, self._readings, len(self._readings)
        outcome: Json = {"solution_index": readings.first, "without_answer_count": count}
        signal, named = plan.signal, plan.settings.strategy is not None
        if signal == "none" or (count == 1 and not named):
            return outcome
        try:
            ballot = await self._prepare(plan.strategy, readings, alone=True)
        except (NoAnswer, NoConfidence):
            return outcome
        except Unscorable as error:
            if not named:
                return outcome
            raise UpstreamFailed(f"none of the {count} candidates has text that can be scored: {error}") from error
        if signal == "preference":
            await self._scorer.finish(pipeline.select(ballot, self._scorer))
        if (values := ballot.values(plan.strategy)) is None and signal == "preference":
            return outcome
        keepers = [index for index in range(count) if index not in readings.breaches]
        best = representative(keepers or range(count), values)
        return outcome | {
            "decided_by": "comparison" if signal == "preference" else signal,
            "solution_index": best,
            "reward": values[best] if signal == "reward" and values else None,
            "unscored": _unscored(ballot),
            "demonstration": ballot.demonstration,
        }


def _outcome(ballot: Ballot, strategy: Strategy) -> tuple[Election, Json, list[int]]:
    """A vote, what the report has of it, and the candidate to show for each further answer."""
    vote, values = ballot.outcome(strategy, LONGEST_COMPARED), ballot.values(strategy)
    outcome = dict(vote) | {
        "share": vote.candidates[0].count / sum(each.count for each in vote.candidates),
        "reward": None if ballot.rewards is None else ballot.rewards[vote.solution_index],
        "unscored": _unscored(ballot),
        "without_answer_count": ballot.classes.count(None),
        "demonstration": ballot.demonstration,
        "compared_as_text": list(ballot.compared_as_text),
    }
    return vote, outcome, [representative(each.members, values) for each in vote.candidates[1:]]


def _unscored(ballot: Ballot) -> list[UnscoredCandidate]:
    scores = enumerate(ballot.scores)
    return [
        UnscoredCandidate(index=k, **dict(Unscored.from_error(each)))
        for k, each in scores
        if isinstance(each, Unscorable)
    ]


async def elect(begun: Sequence[Sampling], observe: Observer | None = None) -> ElectionResult:
    """The elected completion. If it is not accepted, `on_reject` says how far to go: to the rest of the budget, and to
    the further sources of `begun`, which are given for `escalate`, until one is. The last one stands, accepted or not;
    an upstream that fails, or takes more than its share of the time, has none.

    Raises as `RunningElection`, if all fail the last one's error.
    """
    attempts: list[Attempt] = []
    result: ElectionResult | None = None
    failures: list[str] = []
    first, plan = begun[0], begun[0].plan

    def observe_progress(update: ElectionUpdate) -> None:
        if observe is not None and isinstance(update, Progress):  # the numbers of candidates begin anew
            observe(update)

    with first.service.models.chosen(plan.settings.model, least=0) as models:
        for waiting, sampling in zip(reversed(range(len(begun))), begun, strict=True):
            observer = observe if sampling is first or observe is None else observe_progress
            election = RunningElection(models, sampling, observer, waiting)
            more = sampling is first and plan.settings.on_reject in ("sample_more", "escalate")
            try:
                while result is None or not result.report.accept:
                    before, usage = len(sampling.completions), sampling.usage
                    result = await election.run()
                    if plan.settings.on_reject is not None:
                        attempts.append(_attempt(result, sampling, before, usage))
                    if not more or election.stopped != "stable":
                        break
                    election.exhaust()
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                if result is None and not waiting:
                    raise
                failures.append(f"the upstream {sampling.name} gave no answer: {error}")
            if result is not None and result.report.accept:
                break
    assert result is not None, "else the last one's error was raised"
    result.report.notes += failures
    result.report.attempts = attempts or None
    annotate_generation(plan.request.model, result.sampled, first.lease.response_id)
    return result


def _attempt(result: ElectionResult, sampling: Sampling, before: int, usage: TokenUsage) -> Attempt:
    """What an election adds to the candidates `before` it, and their usage."""
    report, received = result.report, len(sampling.completions) - before
    more = {"upstream": sampling.name, "answer": report.answer, "accept": bool(report.accept)}
    return Attempt.of(result.sampled.model, received, sampling.usage - usage, **more)
