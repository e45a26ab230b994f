"""From the candidates of a request, split into steps and with their answers, to the outcomes of votes as responses.

Pure: values in, responses out.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from unprm import steps as step_text
from unprm.answers.extraction import extract
from unprm.calibration import log_odds
from unprm.election.acceptance import Acceptance
from unprm.election.decide import decide, of_answered
from unprm.errors import BlankSolution, TooManySteps, Unscorable
from unprm.types import Interval, ModelDescription, Solution, Usage, VoteResult
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.votes.vote import Values
from unprm.wire import (
    LONGEST_COMPARED,
    CandidateOut,
    Candidates,
    CompareResponse,
    Demonstration,
    ScoredSolution,
    ScoreResponse,
    Unscored,
    VotedSolution,
    VoteOut,
    VoteResponse,
)


class ParsedCandidates(NamedTuple):
    """A request's solutions with their answers; `unscorable`: by index, why a solution can't have a reward."""

    solutions: list[Solution]
    unscorable: dict[int, Unscorable]

    @property
    def missing(self) -> dict[int, Solution]:
        """The solutions that a model has to score, by index."""
        return {
            index: solution
            for index, solution in enumerate(self.solutions)
            if solution.step_scores is None and index not in self.unscorable
        }

    @property
    def given(self) -> bool:
        """Whether the request came with the scores of all scorable solutions."""
        return not self.missing and any(solution.step_scores for solution in self.solutions)


def parse(request: Candidates, max_steps: int = sys.maxsize) -> ParsedCandidates:
    """The solutions, in the order of the request. Raises `InvalidRequest` as `Candidates.candidates`."""
    solutions, unscorable = [], {}
    for index, (solution, text) in enumerate(zip(request.candidates(max_steps), request.texts(), strict=True)):
        scores, answer = solution.step_scores, solution.answer
        if (error := why_unscorable(index, solution, max_steps)) is not None:
            unscorable[index], scores = error, None
        if answer is None:
            answer = extract(text, request.extraction)
        stated = answer is not None and answer.strip() != ""
        solutions.append(replace(solution, answer=answer if stated else None, step_scores=scores))
    return ParsedCandidates(solutions, unscorable)


def why_unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    """Why no model can score the solution, judged by its steps alone."""
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None


class Scores(NamedTuple):
    """`steps`: step scores of each solution, None for one without; None as a whole if no vote needed any. `unscorable`:
    by index, why a solution can have none. `demonstration`: what
    to know of them if a demonstration computed any. `intervals`: by index, those of the step scores that have them."""

    steps: Sequence[tuple[float, ...] | None] | None
    unscorable: Mapping[int, Unscorable]
    demonstration: Demonstration | None = None
    intervals: Mapping[int, tuple[Interval, ...]] = MappingProxyType({})

    def of(self, index: int) -> tuple[float, ...] | None:
        """Step scores of one solution."""
        return None if self.steps is None else self.steps[index]


def averaged(
    scores: Sequence[Sequence[tuple[float, ...]]], models: Sequence[ModelDescription]
) -> Sequence[tuple[float, ...]]:
    """For several models, the mean of their calibrated step scores; for one, its scores as they are."""
    if len(models) == 1:
        return scores[0]
    calibrations = [model.calibration for model in models]
    return [
        tuple(
            sum(calibrate(score) for calibrate, score in zip(calibrations, step, strict=True)) / len(calibrations)
            for step in zip(*solution, strict=True)
        )
        for solution in zip(*scores, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Ballot:
    """Solutions, their classes of equal answers, and their scores.

    `request`: the request they came in; its `aggregate` and `threshold` apply. `compared_as_text`: indices of the
    solutions whose answers could not be compared as mathematics in time. `acceptance`: how elected answers are judged;
    None if the request names no risk.
    """

    request: Candidates
    solutions: Sequence[Solution]
    classes: Sequence[int | None]
    scores: Scores
    compared_as_text: Sequence[int] = ()
    acceptance: Acceptance | None = None

    def values(self, strategy: Strategy) -> Values | None:
        """The rewards or confidences that the vote takes; None if it takes none or there are none."""
        return {"none": None, "reward": self.rewards, "confidence": self.confidences}[VOTES[strategy].signal]

    def outcome(self, strategy: Strategy, terms: VoteTerms, longest: int | None = None) -> VoteOut:
        """Takes a vote; raises `NoAnswer` if no solution has an answer. `longest`: maximum characters of an answer."""
        result = decide(strategy, self.classes, self.rewards, terms, self.confidences)
        candidates = _candidates(result, self.solutions, longest)
        judged: dict[str, Any] = {}
        if self.acceptance is not None and strategy in self.acceptance.strategies:
            judged = self.acceptance.judged(strategy, self.classes, self.rewards, terms, result.classes[0].members)
        return VoteOut(
            strategy=strategy,
            answer=candidates[0].answer,
            solution_index=result.solution_index,
            decided_by=result.decided_by,
            tie=bool(result.tied),
            tied_answers=[candidates[index].answer for index in result.tied],
            margin=result.margin,
            candidates=candidates,
            **judged,
        )

    def vote(self, strategy: Strategy, terms: VoteTerms, model: str, usage: Usage) -> VoteResponse:
        """The response to one vote."""
        response = VoteResponse(**dict(self.outcome(strategy, terms)), **self._voted(model, usage))
        if VOTES[strategy].signal == "confidence" and self.confidences is not None:
            for solution, confidence in zip(response.solutions, self.confidences, strict=True):
                solution.confidence = confidence
        return response

    def compare(self, terms: VoteTerms, model: str, usage: Usage) -> CompareResponse:
        """The response to all votes that can be taken: by answers and rewards, and by the confidences there are."""
        taken = [name for name, vote in VOTES.items() if vote.signal != "confidence" or self.confidences is not None]
        outcomes = {strategy: self.outcome(strategy, terms, LONGEST_COMPARED) for strategy in taken}
        agree = len({outcome.candidates[0].members[0] for outcome in outcomes.values()}) == 1
        return CompareResponse(strategies=outcomes, agree=agree, **self._voted(model, usage))

    @property
    def confidences(self) -> Values | None:
        """One per solution, None if it has none; None as a whole if none that has an answer has one."""
        values = [solution.confidence for solution in self.solutions]
        return values if of_answered(self.classes, values) else None

    @property
    def rewards(self) -> Values | None:
        """One per solution, in [0, 1], None if it can't be scored; None as a whole if no vote needed rewards."""
        if self.scores.steps is None:
            return None
        return [
            None if steps is None else step_text.reward(steps, self.request.aggregate) for steps in self.scores.steps
        ]

    @property
    def without_answer_count(self) -> int:
        """Number of solutions without an answer; they still count in N."""
        return sum(number is None for number in self.classes)

    def _voted(self, model: str, usage: Usage) -> dict[str, Any]:
        return {
            "solutions": [
                VotedSolution(**_result(self.request, index, solution, self.scores))
                for index, solution in enumerate(self.solutions)
            ],
            "unscored_count": len(self.scores.unscorable),
            "without_answer_count": self.without_answer_count,
            "compared_as_text": list(self.compared_as_text),
            "model": model,
            "demonstration": self.scores.demonstration,
            "usage": usage,
        }


def score_response(
    request: Candidates, solutions: Sequence[Solution], scores: Scores, model: str, usage: Usage
) -> ScoreResponse:
    """The response to a request for scores."""
    return ScoreResponse(
        model=model,
        demonstration=scores.demonstration,
        aggregate=request.aggregate,
        solutions=[
            ScoredSolution(steps=list(solution.steps), **_result(request, index, solution, scores))
            for index, solution in enumerate(solutions)
        ],
        usage=usage,
    )


def _result(request: Candidates, index: int, solution: Solution, scores: Scores) -> dict[str, Any]:
    """The fields that every response has for a solution."""
    steps, error, intervals = scores.of(index), scores.unscorable.get(index), scores.intervals.get(index)
    threshold = step_text.THRESHOLD if request.threshold is None else request.threshold
    return {
        "id": solution.id,
        "answer": solution.answer,
        "step_scores": None if steps is None else list(steps),
        "reward": None if steps is None else step_text.reward(steps, request.aggregate),
        "first_error": None if steps is None else step_text.first_error(steps, threshold),
        "step_intervals": intervals and list(intervals),
        "step_log_odds": None if steps is None or not request.log_odds else list(map(log_odds, steps)),
        "unscored": None if error is None else Unscored.of(error),
        "message_scores": None
        if steps is None or solution.messages is None
        else dict(zip(map(str, solution.messages), steps, strict=True)),
        "cut": {str(index): cut for index, cut in solution.cut.items()} or None,
    }


def _candidates(result: VoteResult, solutions: Sequence[Solution], longest: int | None) -> list[CandidateOut]:
    return [
        CandidateOut(answer=_cut(solutions[each.members[0]].answer or "", longest), count=each.count, **asdict(each))
        for each in result.classes
    ]


def _cut(answer: str, longest: int | None) -> str:
    return answer if longest is None or len(answer) <= longest else answer[:longest] + "…"
