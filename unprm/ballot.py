"""A request's solutions on their way to a response: their answers, classes and scores, and the votes on them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

from unprm import steps as step_text
from unprm.answers.extraction import extract
from unprm.answers.kinds import KINDS, read_kind
from unprm.answers.weak import weak_reading
from unprm.attempts import attempt
from unprm.calibration import log_odds
from unprm.election.acceptance import ElectionRecord, OnElection
from unprm.election.decide import decide, drop_unanswered, needed_signal
from unprm.errors import (
    BlankSolution,
    NoAnswer,
    TooManySteps,
    Unscorable,
)
from unprm.scorer import Outcome, Scorer
from unprm.types import (
    Extraction,
    Solution,
    StepScores,
)
from unprm.votes.registry import VOTES, Strategy
from unprm.votes.vote import Signal, Values
from unprm.wire import (
    LONGEST_COMPARED,
    Candidates,
    CompareResponse,
    Demonstration,
    Election,
    Score,
    ScoredSolution,
    ScoreRequest,
    ScoreResponse,
    Unscored,
    VoteResponse,
)

S = TypeVar("S", bound=Score)


def answer_of(sent: str | None, text: str, extraction: Extraction) -> str | None:
    """The answer that was sent, or else the text's; None if there is none, or a blank one."""
    answer = extract(text, extraction) if sent is None else sent
    return None if answer is None or not answer.strip() else answer


def weak_readings(texts: Mapping[int, str], problem: str = "") -> dict[int, str]:
    """The weak readings of the texts that have one."""
    readings = {index: attempt(partial(weak_reading, text, problem), None) for index, text in texts.items()}
    return {index: reading for index, reading in readings.items() if reading is not None}


def shortened(answer: str, longest: int | None) -> str:
    """The answer in at most so many characters, and an ellipsis if it has more; None for any number."""
    return answer if longest is None or len(answer) <= longest else answer[:longest] + "…"


def why_unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    """Why no model can score the solution, judged by its steps alone."""
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None


@dataclass(slots=True)
class Ballot:
    """A request's solutions, their classes of equal answers, and what they score: as far as it was sent, computed, or
    can't be; None for a solution that no vote needs it of, or no model has scored yet.

    `texts`: by index, those that answers are read from, without blank ones. `weak`: indices of the solutions whose
    answers are weak readings with a witness. `demonstration`: what to know of the scores if a demonstration computed
    any. `compared_as_text`: indices of the solutions whose answers could not be compared as mathematics in time.
    `on_election`: is called with each election.
    """

    request: Candidates
    solutions: list[Solution]
    scores: list[Outcome | None]
    texts: dict[int, str] = field(default_factory=dict)
    weak: set[int] = field(default_factory=set)
    classes: Sequence[int | None] = ()
    demonstration: Demonstration | None = None
    compared_as_text: Sequence[int] = ()
    on_election: OnElection | None = None

    @classmethod
    def of(cls, request: Candidates, max_steps: int) -> Self:
        """The solutions and their answers, in the order of the request. Raises `InvalidRequest` as
        `Candidates.candidates`."""
        ballot = cls(request, [], [])
        for index, solution in enumerate(request.candidates(max_steps)):
            if solution.answer is None and solution.text.strip():
                ballot.texts[index] = solution.text
            answer = answer_of(solution.answer, solution.text, request.extraction)
            ballot.solutions.append(replace(solution, answer=answer))
            given = None if solution.step_scores is None else StepScores(solution.step_scores)
            ballot.scores.append(why_unscorable(index, solution, max_steps) or given)
        return ballot

    def read_unstated(self) -> None:
        """Reads what states no answer, if it is of a kind that can be voted on; then stated answers are compared like
        the others."""
        replies = sum(len(each.steps) > 0 for each in self.solutions)
        stated = [self.solutions[index].answer is not None for index in self.texts]
        if (found := read_kind(list(self.texts.values()), stated, replies)) is None:
            return
        kind, answers = found
        read = dict(zip(self.texts, answers, strict=True))
        for index, each in enumerate(self.solutions):
            if each.answer is None or (KINDS[kind].joined and each.compared_as == "stated"):
                answer = each.answer or read.get(index)
                self.solutions[index] = replace(each, answer=answer, compared_as=kind)

    def weak_readings(self) -> dict[int, str]:
        """What each solution without an answer may mean by its last numbers or words, by its index."""
        if self.request.extraction != "auto":
            return {}
        unstated = {index: text for index, text in self.texts.items() if self.solutions[index].answer is None}
        return weak_readings(unstated, self.request.problem or "")

    def count_witnessed(self, readings: Mapping[int, str], classes: Sequence[int]) -> None:
        """Makes answers of the weak readings that equal another solution's answer or reading. `classes`: those of
        `stated`, then those of `readings`."""
        solutions_of = Counter(classes)
        for (index, reading), name in zip(readings.items(), classes[len(self.stated) :], strict=True):
            if solutions_of[name] > 1:
                self.solutions[index] = replace(self.solutions[index], answer=reading)
                self.weak.add(index)

    @property
    def stated(self) -> list[str]:
        """The answers that are compared as mathematics."""
        return [each.answer for each in self.solutions if each.answer is not None and each.compared_as == "stated"]

    def stand_alone(self, signals: Collection[Signal], has_model: bool) -> None:
        """Lets every candidate stand for itself, since none has an answer: trajectories always, solutions if rewards or
        confidences, whichever of these `signals` a vote takes, can elect one. Raises `NoAnswer` if they can't."""
        noun, scores = "solution" if self.request.trajectories is None else "trajectory", self.scores
        if noun == "solution":
            scored = any(isinstance(each, StepScores) for each in scores) or (has_model and self.request.problem)
            confident = any(each.confidence is not None for each in self.solutions)
            if not (("reward" in signals and scored) or ("confidence" in signals and confident)):
                raise NoAnswer(len(scores))
        self.classes = list(range(len(scores)))
        alone = partial(replace, compared_as="none")
        self.solutions = [alone(each, answer=f"{noun} {k}") for k, each in enumerate(self.solutions)]

    def rule(self, strategy: Strategy) -> Strategy:
        """The vote that is taken: among solutions that stand for themselves, the highest reward for all by rewards."""
        alone = self.request.trajectories is None and all(each.compared_as == "none" for each in self.solutions)
        return "prm" if alone and VOTES[strategy].signal == "reward" else strategy

    def values(self, strategy: Strategy) -> Values | None:
        """The rewards or confidences that the vote takes; None if it takes none or there are none."""
        return {"none": None, "reward": self.rewards, "confidence": self.confidences}[VOTES[strategy].signal]

    def outcome(self, strategy: Strategy, longest: int | None = None) -> Election:
        """Takes a vote; raises `NoAnswer` if no solution has an answer. `longest`: maximum characters of an answer."""
        election = self._decide(strategy, longest)
        members = election.candidates[0].members
        election.strategy, election.compared_as = strategy, self.solutions[election.solution_index].compared_as
        if self.weak.issuperset(members):
            election.read_from = "weak"
        if self.on_election is None:
            return election
        elected = self.solutions[members[0]].answer or ""
        record = ElectionRecord.of(election, elected, self.classes, self.rewards, self.request)
        return election.model_copy(update=self.on_election(record))

    def leader(self, strategy: Strategy, longest: int) -> str:
        """The answer that a vote on the candidates so far elects, in at most so many characters; raises `NoAnswer`."""
        return self._decide(strategy, longest).answer

    def _decide(self, strategy: Strategy, longest: int | None) -> Election:
        answers = [shortened(each.answer or "", longest) for each in self.solutions]
        return decide(self.rule(strategy), self.classes, self.rewards, self.request, self.confidences, answers)

    def score_response(self, scorer: Scorer) -> ScoreResponse:
        placed = isinstance(self.request, ScoreRequest) and self.request.step_spans
        solutions = [
            self._scored(
                ScoredSolution,
                index,
                steps=each.steps,
                step_spans=each.spans if placed else None,
                last_tokens=each.last_tokens,
            )
            for index, each in enumerate(self.solutions)
        ]
        return ScoreResponse(
            model=scorer.name,
            demonstration=self.demonstration,
            aggregate=self.request.aggregate,
            solutions=solutions,
            usage=scorer.usage,
        )

    def vote_response(self, strategy: Strategy, scorer: Scorer) -> VoteResponse:
        by_confidence = VOTES[strategy].signal == "confidence" and self.confidences is not None
        return VoteResponse(**dict(self.outcome(strategy)), **self._candidates(scorer, by_confidence))

    def compare_response(self, scorer: Scorer) -> CompareResponse:
        """The response to all votes, without those by confidence if there are no confidences, and without those that
        rewards would decide if there are no rewards."""
        lacking = {"confidence"} if self.confidences is None else set[Signal]()
        rewarded = self.rewards is not None and drop_unanswered(self.classes, self.rewards) is not None
        outcomes = {
            name: self.outcome(name, LONGEST_COMPARED)
            for name, vote in VOTES.items()
            if vote.signal not in lacking and (rewarded or needed_signal(name, self.classes, self.request) != "reward")
        }
        agree = len({outcome.candidates[0].members[0] for outcome in outcomes.values()}) == 1
        return CompareResponse(strategies=outcomes, agree=agree, **self._candidates(scorer))

    @property
    def confidences(self) -> Values | None:
        """One per solution, None if it has none; None as a whole if none that has an answer has one."""
        values = [solution.confidence for solution in self.solutions]
        return values if drop_unanswered(self.classes, values) else None

    @property
    def rewards(self) -> Values | None:
        """One per solution, in [0, 1], None if it can't be scored; None as a whole if no vote needed rewards."""
        if not any(isinstance(each, StepScores) for each in self.scores):
            return None
        return [
            step_text.reward(each.values, self.request.aggregate) if isinstance(each, StepScores) else None
            for each in self.scores
        ]

    @property
    def without_answer_count(self) -> int:
        """Number of solutions without an answer; they still count in N."""
        return sum(number is None for number in self.classes)

    def _candidates(self, scorer: Scorer, by_confidence: bool = False) -> dict[str, Any]:
        return {
            "solutions": [
                self._scored(Score, index, confidence=each.confidence if by_confidence else None)
                for index, each in enumerate(self.solutions)
            ],
            "unscored_count": sum(isinstance(each, Unscorable) for each in self.scores),
            "without_answer_count": self.without_answer_count,
            "compared_as_text": self.compared_as_text,
            "model": scorer.name,
            "demonstration": self.demonstration,
            "usage": scorer.usage,
        }

    def _scored(self, form: type[S], index: int, **more: Any) -> S:
        """What a solution scores, in a response of this form, which may have `more` fields."""
        request, solution, outcome = self.request, self.solutions[index], self.scores[index]
        values = outcome.values if isinstance(outcome, StepScores) else None
        threshold = step_text.THRESHOLD if request.threshold is None else request.threshold
        scores = dict(zip(map(str, solution.messages or ()), values or (), strict=False))
        return form(
            id=solution.id,
            answer=solution.answer,
            read=None if solution.answer is None else "weak" if index in self.weak else "stated",
            reward=None if values is None else step_text.reward(values, request.aggregate),
            step_scores=None if values is None else list(values),
            first_error=None if values is None else step_text.first_error(values, threshold),
            unscored=Unscored.of(outcome) if isinstance(outcome, Unscorable) else None,
            step_log_odds=list(map(log_odds, values)) if values is not None and request.log_odds else None,
            message_scores=scores if values is not None and solution.messages is not None else None,
            cut={str(index): cut for index, cut in solution.cut.items()} or None,
            **more,
        )
