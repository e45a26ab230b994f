"""The one way from a request's candidates to a response: they are split into steps, their answers extracted and
compared, scored if a vote needs that, and voted on.

A server and a program differ in how the work is done: by which `Scorer`.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self, TypeVar

from unprm import steps as step_text
from unprm.answers.equivalence import Comparison, Equivalence, Match, Pair
from unprm.answers.extraction import extract
from unprm.answers.kinds import KINDS, read_kind
from unprm.calibration import log_odds
from unprm.election.acceptance import Acceptance, VoteCalibration, acceptance
from unprm.election.decide import decide, needed_signal, of_answered
from unprm.errors import (
    BlankSolution,
    InvalidRequest,
    NoAnswer,
    NoLogProbs,
    NoVerdict,
    SolutionTooLong,
    TooManySteps,
    Unscorable,
)
from unprm.mini.domain import about
from unprm.types import (
    DEFAULT_STRATEGY,
    AnswerClass,
    ComparedAs,
    Encoded,
    Engine,
    Extraction,
    ModelDescription,
    Solution,
    StepScores,
    Usage,
)
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.votes.vote import Signal, Values
from unprm.wire import (
    LONGEST_COMPARED,
    MAX_SOLUTIONS,
    Candidates,
    CompareResponse,
    Demonstration,
    Grade,
    PairIn,
    RiskTerms,
    ScoredSolution,
    ScoreRequest,
    ScoreResponse,
    Unscored,
    VotedSolution,
    VoteOut,
    VoteResponse,
)

T = TypeVar("T")

Outcome = StepScores | Unscorable
"""What a solution scores, or why it can't be scored."""

_OF_CLASS = tuple(each.name for each in fields(AnswerClass))
_NO_PROBLEM = (
    "no answer has at least half of all candidates, so rewards decide: send the problem, or step_scores with every "
    "solution"
)


class NoConfidence(InvalidRequest):
    """A vote by confidence among solutions of which none with an answer has a confidence."""

    def __init__(self) -> None:
        super().__init__(
            "confidences decide this vote, and no solution with an answer has one: send `confidence` or "
            "`token_logprobs`",
            "/solutions",
        )


class Scorer:
    """Does the work of one request at once, by an engine in this process, or without any: then only scores that are
    sent count. A server has one that works in turns with those of other requests.

    `name`: of the model, or of several; empty if there is none. `max_steps`: of a solution. `calibration`: by which
    elected answers are accepted.
    """

    max_steps = sys.maxsize
    calibration: VoteCalibration | None = None

    def __init__(self, engine: Engine | None = None) -> None:
        self.name = "" if engine is None else engine.description.name
        self._engine, self._usage = engine, Usage()

    @property
    def demo(self) -> str | None:
        """The name of a demonstration among the models."""
        return self.name if self._engine is not None and self._engine.description.demo else None

    @property
    def usage(self) -> Usage:
        """What scoring has taken so far."""
        return self._usage

    async def read(self, function: Callable[[], T]) -> T:
        """The result of a function that reads all texts of the request."""
        return function()

    async def compare(self, answers: Sequence[str]) -> Comparison:
        """The classes of the answers."""
        return Equivalence().compare(answers)

    async def match(self, pairs: Sequence[Pair]) -> list[Match]:
        """Whether the answer of each pair, at most `MAX_SOLUTIONS` of them, is right."""
        return Equivalence().match(pairs)

    async def score(self, solutions: Mapping[int, Solution], strict: bool) -> Mapping[int, Outcome]:
        """The outcome of each solution, by its index, and in their order; nothing without a model. `strict`: if one of
        them can't be scored the request is refused, so the others need not be."""
        if self._engine is None:
            return {}
        found, usage = run(self._engine, encode(self._engine, solutions))
        self._usage += usage
        return found


async def score(request: Candidates, scorer: Scorer) -> ScoreResponse:
    """The step scores of every solution; the request has a problem, or all scores. Raises `Unscorable` if none can be
    scored and the request has no right answer, or one can't and it says to refuse, and the scorer's errors."""
    ballot = await _parsed(request, scorer)
    judged = request if isinstance(request, ScoreRequest) and request.right_answers is not None else None
    await _score(ballot, scorer, range(request.count) if judged is None else ())
    response = await scorer.read(partial(ballot.scored, scorer))
    if judged is not None:
        await _judge(judged, response, scorer)
    return response


async def vote(request: Candidates, strategy: Strategy | None, scorer: Scorer) -> VoteResponse:
    """The response to one vote, None for the default: that is by majority where rewards would be those of a
    demonstration outside its domain. Raises as `cast`."""
    why = None
    if strategy is None:
        why = None if request.scored else why_majority(scorer, request.problem)
        strategy = DEFAULT_STRATEGY if why is None else "majority"
    ballot = await cast(request, [strategy], scorer, alone=True)
    response = await scorer.read(partial(ballot.voted, strategy, scorer))
    response.why_majority = why
    return response


async def compare(request: Candidates, scorer: Scorer) -> CompareResponse:
    """The response to all votes. Raises as `cast`."""
    ballot = await cast(request, list(VOTES), scorer)
    return await scorer.read(partial(ballot.compared, scorer))


async def grade(pairs: Sequence[PairIn], extraction: Extraction, scorer: Scorer) -> list[Grade]:
    """Whether each pair's answer is right, whatever the others say; every `MAX_SOLUTIONS` pairs may take as long as the
    answers of a vote."""
    answers = await scorer.read(lambda: [answer_of(pair.answer, pair.text or "", extraction) for pair in pairs])
    stated = [Pair(answer, pair.golds) for answer, pair in zip(answers, pairs, strict=True) if answer is not None]
    matches: list[Match] = []
    for start in range(0, len(stated), MAX_SOLUTIONS):
        matches += await scorer.match(stated[start : start + MAX_SOLUTIONS])
    found = iter(matches)
    return [
        Grade(id=pair.id, answer=answer, **_graded(None if answer is None else next(found)))
        for pair, answer in zip(pairs, answers, strict=True)
    ]


async def _judge(request: ScoreRequest, response: ScoreResponse, scorer: Scorer) -> None:
    """Adds to the response whether the answers are right, and the rewards that come of it."""
    response.combination = request.combination
    pairs = zip(response.solutions, request.right_answers or (), strict=True)
    stated = [(each, Pair(each.answer, golds)) for each, golds in pairs if each.answer is not None]
    matches = await scorer.match([pair for _, pair in stated])
    verdicts = {id(each): match for (each, _), match in zip(stated, matches, strict=True)}
    for each in response.solutions:
        found = _graded(verdicts.get(id(each)))
        each.correct, each.compared_as_text = found["correct"], found["compared_as_text"]
        each.combined_reward = step_text.combined(
            request.combination, each.correct, each.step_scores or (), each.reward, request.mean_weight
        )


def answer_of(sent: str | None, text: str, extraction: Extraction) -> str | None:
    """The answer that was sent, or else the text's; None if there is none, or a blank one."""
    answer = extract(text, extraction) if sent is None else sent
    return None if answer is None or not answer.strip() else answer


def shortened(answer: str, longest: int) -> str:
    """The answer in at most so many characters, and an ellipsis if it has more."""
    return answer if len(answer) <= longest else answer[:longest] + "…"


def _graded(match: Match | None) -> dict[str, Any]:
    """The fields of a verdict on an answer; None if there is no answer."""
    if match is None:
        return {"correct": False, "compared_as_text": False}
    return {"correct": match.correct, "compared_as_text": match.as_text}


async def cast(request: Candidates, strategies: Sequence[Strategy], scorer: Scorer, *, alone: bool = False) -> "Ballot":
    """The ballot for these votes, scored if one of them needs it. `alone`: where nobody has an answer, candidates may
    stand for themselves, so that a reward or confidence elects one.

    Raises `NoAnswer`; `Unscorable` and `NoConfidence` if no solution with an answer has a reward or confidence, and a
    vote needs one; `InvalidRequest` without a problem to score by, and for a risk that no calibration fits; and the
    scorer's errors.
    """
    judged = None
    if isinstance(request, RiskTerms) and request.risk is not None:
        model = None if request.scored else scorer.name
        judged = acceptance(scorer.calibration, request.risk, strategies, request.terms, model, request.aggregate)
    ballot = await _parsed(request, scorer)
    ballot.acceptance = judged
    await _classify(ballot, scorer)
    if all(name is None for name in ballot.classes):
        signals = {VOTES[strategy].signal for strategy in strategies} if alone else set[Signal]()
        ballot.stand_alone(signals, bool(scorer.name))
    needed = {needed_signal(ballot.rule(strategy), ballot.classes, ballot.terms) for strategy in strategies}
    if "reward" in needed:
        await _score(ballot, scorer, [index for index, name in enumerate(ballot.classes) if name is not None])
    elif None in ballot.scores:  # what was sent for some says nothing
        ballot.scores = [each if isinstance(each, Unscorable) else None for each in ballot.scores]
    if needed == {"confidence"} and ballot.confidences is None:
        raise NoConfidence
    return ballot


def why_unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    """Why no model can score the solution, judged by its steps alone."""
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None


def why_majority(scorer: Scorer, problem: str | None) -> str | None:
    """Why a vote that nobody named is by majority, None if it isn't: the rewards would be those of a demonstration
    outside its domain."""
    if scorer.demo is None or about(scorer.demo, problem).in_domain:
        return None
    return f"rewards by {scorer.name}, a demonstration, mean nothing for this problem"


def refuse(outcomes: Iterable[object], place: str) -> None:
    """Raises the first error about a solution, if there is any; it points to `place`, where {} is its index."""
    for each in outcomes:
        if isinstance(each, Unscorable):
            each.pointer = place.format(each.index)
            raise each


async def _parsed(request: Candidates, scorer: Scorer) -> "Ballot":
    """Raises `Unscorable` if the request says to refuse."""
    ballot = await scorer.read(partial(Ballot.of, request, scorer.max_steps))
    if request.on_invalid == "refuse":
        refuse(ballot.scores, request.place)
    return ballot


async def _classify(ballot: "Ballot", scorer: Scorer) -> None:
    """Finds the classes of equal answers."""
    if ballot.request.extraction == "auto" and any(ballot.solutions[index].answer is None for index in ballot.texts):
        await scorer.read(ballot.read_unstated)
    solutions = ballot.solutions
    classes: list[int | None] = [None] * len(solutions)
    formal: dict[int, str] = {}
    verbatim: dict[tuple[ComparedAs, str], int] = {}
    for index, each in enumerate(solutions):
        if each.answer is None:
            continue
        if (key := KINDS[each.compared_as].key(each.answer)) is None:
            formal[index] = each.answer
        else:
            classes[index] = verbatim.setdefault((each.compared_as, key), len(solutions) + index)
    compared = await scorer.compare(list(formal.values()))
    for index, number in zip(formal, compared.classes, strict=True):
        classes[index] = number
    ballot.classes, ballot.compared_as_text = classes, [list(formal)[index] for index in compared.as_text]


async def _score(ballot: "Ballot", scorer: Scorer, electable: Sequence[int]) -> None:
    """Scores the solutions; the model runs only for those that came without scores.

    Raises `InvalidRequest` without a problem, and `Unscorable`, that of the first, if there are `electable` candidates
    (indices, ascending) of which none has scores, or if the request says to refuse.
    """
    request, scores = ballot.request, ballot.scores
    if scorer.name and None in scores:
        if None in request.asked:
            raise InvalidRequest(_NO_PROBLEM, "/problem")
        missing = {index: each for index, each in enumerate(ballot.solutions) if scores[index] is None}
        computed = await scorer.score(missing, request.on_invalid == "refuse")
        if request.on_invalid == "refuse":
            refuse(computed.values(), request.place)
        for index, outcome in computed.items():
            scores[index] = outcome
        problems = {missing[index].problem for index, each in computed.items() if isinstance(each, StepScores)}
        if scorer.demo is not None and problems:
            ballot.demonstration = await scorer.read(partial(about, scorer.demo, *problems))
    if electable and not any(isinstance(scores[index], StepScores) for index in electable):
        refuse([scores[electable[0]]], request.place)


@dataclass(slots=True)
class Ballot:
    """A request's solutions, their classes of equal answers, and what they score: as far as it was sent, computed, or
    can't be; None for a solution that no vote needs it of, or no model has scored yet.

    `terms`: the settings of the vote. `texts`: by index, those that answers are read from, without blank ones;
    `last_sentences`: the indices of those whose answers are the results of their last sentences. `demonstration`: what
    to know of the scores if a demonstration computed any. `compared_as_text`: indices of the solutions whose answers
    could not be compared as mathematics in time. `acceptance`: how elected answers are judged; None if the request
    names no risk.
    """

    request: Candidates
    terms: VoteTerms
    solutions: list[Solution]
    scores: list[Outcome | None]
    texts: dict[int, str] = field(default_factory=dict)
    last_sentences: Set[int] = frozenset()
    classes: Sequence[int | None] = ()
    demonstration: Demonstration | None = None
    compared_as_text: Sequence[int] = ()
    acceptance: Acceptance | None = None

    @classmethod
    def of(cls, request: Candidates, max_steps: int) -> Self:
        """The solutions and their answers, in the order of the request. Raises `InvalidRequest` as
        `Candidates.candidates`."""
        ballot = cls(request, request.terms, [], [])
        for index, (solution, text) in enumerate(zip(request.candidates(max_steps), request.texts(), strict=True)):
            if solution.answer is None and text.strip():
                ballot.texts[index] = text
            ballot.solutions.append(replace(solution, answer=answer_of(solution.answer, text, request.extraction)))
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
        if kind == "stated":
            self.last_sentences = {index for index, answer in read.items() if answer is not None}

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

    def outcome(self, strategy: Strategy, longest: int | None = None) -> VoteOut:
        """Takes a vote; raises `NoAnswer` if no solution has an answer. `longest`: maximum characters of an answer."""
        return VoteOut(**self._outcome(strategy, longest))

    def _outcome(self, strategy: Strategy, longest: int | None = None) -> dict[str, Any]:
        rewards = self.rewards
        result = decide(self.rule(strategy), self.classes, rewards, self.terms, self.confidences)
        judged: dict[str, Any] = {}
        compared_as = self.solutions[result.solution_index].compared_as
        if compared_as == "stated" and self.acceptance is not None and strategy in self.acceptance.strategies:
            members = result.classes[0].members
            judged = self.acceptance.judged(strategy, self.classes, rewards, self.terms, members)
        answers = [self.solutions[each.members[0]].answer or "" for each in result.classes]
        if longest is not None:
            answers = [shortened(answer, longest) for answer in answers]
        return judged | {
            "strategy": strategy,
            "answer": answers[0],
            "solution_index": result.solution_index,
            "decided_by": result.decided_by,
            "compared_as": compared_as,
            "read_from": None if self.last_sentences.isdisjoint(result.classes[0].members) else "last_sentence",
            "tie": bool(result.tied),
            "tied_answers": [answers[index] for index in result.tied],
            "margin": result.margin,
            "candidates": [
                {"answer": answer, "count": each.count, **{name: getattr(each, name) for name in _OF_CLASS}}
                for answer, each in zip(answers, result.classes, strict=True)
            ],
        }

    def scored(self, scorer: Scorer) -> ScoreResponse:
        """The response to a request for scores."""
        pairs = zip(self.solutions, self.scores, strict=True)
        placed = isinstance(self.request, ScoreRequest) and self.request.step_spans
        return ScoreResponse(
            model=scorer.name,
            demonstration=self.demonstration,
            aggregate=self.request.aggregate,
            solutions=[
                ScoredSolution(
                    steps=list(each.steps),
                    step_spans=list(each.spans) if placed and each.spans is not None else None,
                    last_tokens=None if each.last_tokens is None else list(each.last_tokens),
                    **_result(self.request, each, of),
                )
                for each, of in pairs
            ],
            usage=scorer.usage,
        )

    def voted(self, strategy: Strategy, scorer: Scorer) -> VoteResponse:
        """The response to one vote."""
        response = VoteResponse(**self._outcome(strategy), **self._voted(scorer))
        if VOTES[strategy].signal == "confidence" and self.confidences is not None:
            for solution, confidence in zip(response.solutions, self.confidences, strict=True):
                solution.confidence = confidence
        return response

    def compared(self, scorer: Scorer) -> CompareResponse:
        """The response to all votes that can be taken: by answers and rewards, and by the confidences there are."""
        taken = [name for name, vote in VOTES.items() if vote.signal != "confidence" or self.confidences is not None]
        outcomes = {strategy: self.outcome(strategy, LONGEST_COMPARED) for strategy in taken}
        agree = len({outcome.candidates[0].members[0] for outcome in outcomes.values()}) == 1
        return CompareResponse(strategies=outcomes, agree=agree, **self._voted(scorer))

    @property
    def confidences(self) -> Values | None:
        """One per solution, None if it has none; None as a whole if none that has an answer has one."""
        values = [solution.confidence for solution in self.solutions]
        return values if of_answered(self.classes, values) else None

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

    def _voted(self, scorer: Scorer) -> dict[str, Any]:
        return {
            "solutions": [
                VotedSolution(**_result(self.request, each, of))
                for each, of in zip(self.solutions, self.scores, strict=True)
            ],
            "unscored_count": sum(isinstance(each, Unscorable) for each in self.scores),
            "without_answer_count": self.without_answer_count,
            "compared_as_text": list(self.compared_as_text),
            "model": scorer.name,
            "demonstration": self.demonstration,
            "usage": scorer.usage,
        }


def _result(request: Candidates, solution: Solution, outcome: Outcome | None) -> dict[str, Any]:
    """The fields that every response has for a solution."""
    fields = {
        "id": solution.id,
        "answer": solution.answer,
        "unscored": Unscored.of(outcome) if isinstance(outcome, Unscorable) else None,
        "cut": {str(index): cut for index, cut in solution.cut.items()} or None,
    }
    if not isinstance(outcome, StepScores):
        return fields | dict.fromkeys(("step_scores", "reward", "first_error"))
    values, messages, intervals = outcome.values, solution.messages, outcome.intervals
    threshold = step_text.THRESHOLD if request.threshold is None else request.threshold
    return fields | {
        "step_scores": list(values),
        "reward": step_text.reward(values, request.aggregate),
        "first_error": step_text.first_error(values, threshold),
        "step_intervals": intervals and list(intervals),
        "step_log_odds": list(map(log_odds, values)) if request.log_odds else None,
        "message_scores": None if messages is None else dict(zip(map(str, messages), values, strict=True)),
    }


# what a model in this process computes


def encode(engine: Engine, solutions: Mapping[int, Solution], scope: str = "") -> dict[int, Encoded | Unscorable]:
    """The model input of each solution, by its index; the error for one beyond the model's window, or without the
    log-probabilities that the model scores by. `scope`: as of `Encoded`."""
    limit = engine.description.max_tokens
    inputs: dict[int, Encoded | Unscorable] = {}
    for index, solution in solutions.items():
        if solution.prompt is not None:
            item = engine.format.at_tags(engine.format.tokenize(solution.prompt))
        else:
            item = engine.format.encode(solution.problem, solution.steps)
        if engine.description.by_logprobs:
            if solution.logprobs is None or not all(solution.logprobs):
                inputs[index] = NoLogProbs(index)
                continue
            item = replace(item, logprobs=solution.logprobs)
        too_long = SolutionTooLong(index, len(item.ids), limit) if len(item.ids) > limit else None
        inputs[index] = too_long or replace(item, scope=scope, evidence=solution.evidence)
    return inputs


def run(engine: Engine, inputs: Mapping[int, Encoded | Unscorable]) -> tuple[dict[int, Outcome], Usage]:
    """What each solution scores, from its model input, in one batch, and what that took."""
    readable = {index: item for index, item in inputs.items() if isinstance(item, Encoded)}
    scores = engine.score(list(readable.values()))
    return outcomes(inputs, dict(zip(readable, scores, strict=True))), Usage.of(scores)


def outcomes(inputs: Mapping[int, Encoded | Unscorable], scores: Mapping[int, StepScores]) -> dict[int, Outcome]:
    """The scores of each solution, or why it has none: it has no model input, or a judge gave no verdict on a step."""
    found: dict[int, Outcome] = {}
    for index, item in inputs.items():
        if isinstance(item, Unscorable):
            found[index] = item
        elif (each := scores[index]).missing:
            found[index] = NoVerdict(index, each.missing, len(each.values))
        else:
            found[index] = each
    return found


def averaged(scores: Sequence[Sequence[StepScores]], models: Sequence[ModelDescription]) -> list[StepScores]:
    """The mean of several models' calibrated step scores of each solution."""
    calibrations = [model.calibration for model in models]
    return [
        StepScores(
            tuple(
                sum(calibrate(value) for calibrate, value in zip(calibrations, step, strict=True)) / len(models)
                for step in zip(*(each.values for each in solution), strict=True)
            ),
            missing=max(each.missing for each in solution),
        )
        for solution in zip(*scores, strict=True)
    ]
