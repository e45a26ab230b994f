"""What votes are taken on, and their outcomes as the contract tells them. Pure: values in, responses out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unprm import steps as step_text
from unprm import votes
from unprm.calibration import Calibration, log_odds
from unprm.types import Solution, Strategy, Usage, VoteResult
from unprm.wire import (
    CandidateOut,
    CompareResponse,
    ScoredSolution,
    ScoreRequest,
    ScoreResponse,
    UsageOut,
    VotedSolution,
    VoteOut,
    VoteResponse,
)

StepScores = Sequence[tuple[float, ...]]


def averaged(scores: Sequence[StepScores], calibrations: Sequence[Calibration]) -> StepScores:
    """Of several models: the mean of their calibrated step scores. Of one: its own, as they are."""
    if len(scores) == 1:
        return scores[0]
    return [
        tuple(
            sum(calibrate(score) for calibrate, score in zip(calibrations, step, strict=True)) / len(calibrations)
            for step in zip(*own, strict=True)
        )
        for own in zip(*scores, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Ballot:
    """Solutions, their classes of equal answers, and their step scores, None if no vote needed them.

    `request` is what they came in; its `aggregate` and `threshold` apply.
    """

    request: ScoreRequest
    solutions: Sequence[Solution]
    classes: Sequence[int | None]
    scores: StepScores | None

    def outcome(self, strategy: Strategy, alpha: float) -> VoteOut:
        """Takes a vote; raises `NoAnswer` if nothing can win it."""
        result = votes.decide(strategy, self.classes, self.rewards, alpha)
        candidates = _candidates(result, self.solutions)
        return VoteOut(
            strategy=strategy,
            answer=candidates[0].answer,
            solution_index=result.solution_index,
            decided_by=result.decided_by,
            tie=bool(result.tied),
            tied_answers=[candidates[index].answer for index in result.tied],
            margin=result.margin,
            candidates=candidates,
        )

    def vote(self, strategy: Strategy, alpha: float, model: str, usage: Usage) -> VoteResponse:
        """The response to one vote."""
        return VoteResponse(
            **dict(self.outcome(strategy, alpha)),
            solutions=self._voted(),
            model=model,
            usage=usage_out(usage),
        )

    def compare(self, alpha: float, model: str, usage: Usage) -> CompareResponse:
        """The response to all votes."""
        outcomes = {strategy: self.outcome(strategy, alpha) for strategy in votes.STRATEGIES}
        return CompareResponse(
            strategies=outcomes,
            agree=len({outcome.answer for outcome in outcomes.values()}) == 1,
            solutions=self._voted(),
            model=model,
            usage=usage_out(usage),
        )

    @property
    def rewards(self) -> list[float] | None:
        """One per solution, in [0, 1]; None if no vote needed them."""
        if self.scores is None:
            return None
        return [step_text.reward(own, self.request.aggregate) for own in self.scores]

    def _voted(self) -> list[VotedSolution]:
        if self.scores is None:
            return [_unscored(solution) for solution in self.solutions]
        pairs = zip(self.solutions, self.scores, strict=True)
        return [VotedSolution(**_told(self.request, solution, own)) for solution, own in pairs]


def score_response(
    request: ScoreRequest, solutions: Sequence[Solution], scores: StepScores, model: str, usage: Usage
) -> ScoreResponse:
    """The response to a request for scores."""
    return ScoreResponse(
        model=model,
        aggregate=request.aggregate,
        solutions=_scored(request, solutions, scores),
        usage=usage_out(usage),
    )


def _scored(request: ScoreRequest, solutions: Sequence[Solution], scores: StepScores) -> list[ScoredSolution]:
    return [
        ScoredSolution(steps=list(solution.steps), **_told(request, solution, own))
        for solution, own in zip(solutions, scores, strict=True)
    ]


def _told(request: ScoreRequest, solution: Solution, scores: tuple[float, ...]) -> dict[str, Any]:
    """What every response tells of a scored solution."""
    return {
        "id": solution.id,
        "step_scores": list(scores),
        "reward": step_text.reward(scores, request.aggregate),
        "first_error": step_text.first_error(scores, request.threshold),
        "answer": solution.answer,
        "step_log_odds": list(map(log_odds, scores)) if request.log_odds else None,
    }


def _unscored(solution: Solution) -> VotedSolution:
    return VotedSolution(id=solution.id, answer=solution.answer, reward=None, step_scores=None, first_error=None)


def _candidates(result: VoteResult, solutions: Sequence[Solution]) -> list[CandidateOut]:
    return [
        CandidateOut(
            answer=solutions[candidate.members[0]].answer or "",
            count=candidate.count,
            members=list(candidate.members),
            mean_reward=candidate.mean_reward,
            max_reward=candidate.max_reward,
            normalized_reward=candidate.normalized_reward,
            normalized_frequency=candidate.normalized_frequency,
            score=candidate.score,
        )
        for candidate in result.candidates
    ]


def usage_out(usage: Usage) -> UsageOut:
    """As the contract tells it."""
    return UsageOut(tokens=usage.tokens, computed_tokens=usage.computed_tokens, cached_tokens=usage.cached_tokens)
