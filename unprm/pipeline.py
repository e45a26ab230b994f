"""The one way from a request's candidates to a response: they are split, read, compared, scored if need be, voted on.

Each flow is a generator that yields `Compare`, `MatchPairs`, `Score` and `Select` to its driver: at once in a program,
in the caller's turns on a server. Texts are read inside the generator alone, so no driver can forget a turn.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from unprm import steps as step_text
from unprm import wire
from unprm.answers.equivalence import Match, Pair
from unprm.answers.extraction import extract
from unprm.answers.kinds import KINDS, pausing, read_kind
from unprm.answers.options import lists_options, stated_letters
from unprm.answers.weak import weak_reading
from unprm.calibration import log_odds
from unprm.checks import check
from unprm.election.acceptance import ElectionRecord, OnElection, VoteCalibration, on_election
from unprm.election.decide import decide, drop_unanswered, needed_signal
from unprm.election.selection import Question, Selected, contenders
from unprm.errors import (
    BlankSolution,
    InvalidRequest,
    NoAnswer,
    NoJudge,
    NoModel,
    NoVerdict,
    SolutionTooLong,
    TooManySteps,
    Unscorable,
    attempt,
)
from unprm.mini.domain import domain_notice, knows
from unprm.types import (
    DEFAULT_STRATEGY,
    ComparedAs,
    Encoded,
    Engine,
    Extraction,
    ModelDescription,
    Solution,
    StepScores,
    Usage,
)
from unprm.votes.registry import VOTES, Strategy
from unprm.votes.select import SelectTerms
from unprm.votes.vote import Signal, Values
from unprm.wire import (
    LONGEST_COMPARED,
    MAX_SOLUTIONS,
    Candidates,
    CompareResponse,
    Demonstration,
    Election,
    Grade,
    PairIn,
    RiskTerms,
    ScoredSolution,
    ScoreRequest,
    ScoreResponse,
    Selection,
    Unscored,
    VoteResponse,
)

T = TypeVar("T")

Outcome = StepScores | Unscorable
"""What a solution scores, or why it can't be scored."""


class Compare(NamedTuple):
    """Asks for the classes of answers: a `Comparison`."""

    answers: Sequence[str]


class MatchPairs(NamedTuple):
    """Asks whether the answer of each pair is right: a list of `Match`. At most `MAX_SOLUTIONS` pairs."""

    pairs: Sequence[Pair]


class Score(NamedTuple):
    """Asks for the outcome of each solution, by index, in their order. `strict`: one without scores refuses all."""

    solutions: Mapping[int, Solution]
    strict: bool


class Select(NamedTuple):
    """Asks which solution a language model prefers: a `Selected`."""

    question: Question


Work = Generator[Compare | MatchPairs | Score | Select | None, Any, T]
"""A request's work: a generator of questions, each sent its answer by a driver (`unprm.library.LocalScorer.finish`, or
the server's), as in httpx's `auth_flow`. Between two questions it reads texts of the caller's size, and yields None
after each: others may then have a turn, or the work may end."""


class Scorer:
    """Scores the solutions of one request. `name`: of the models, empty without any; `checks`: whether `unprm.checks`
    stands in for a model; `selects`: whether a language model compares solutions; `usage`: taken so far; `max_steps`:
    of a solution; `calibration`: judges elections at a risk; `note`: is called with the election of a vote; `tags`: the
    step tags of its models, at which texts are split; `demo`: the name of a demonstration among them; `threshold`:
    below which a step's score is an error by default."""

    name: str
    checks = False
    selects = False
    usage: Usage
    max_steps = sys.maxsize
    calibration: VoteCalibration | None = None
    note: Callable[[ElectionRecord], None] | None = None

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        """`engines`: of its models, by name, those that are loaded."""
        loaded = list(engines.values())
        self.tags = [engine.format.tag for engine in loaded if engine.format.tag is not None]
        self.demo = next((name for name, engine in engines.items() if engine.description.demo), None)
        self.threshold = loaded[0].description.calibration.threshold if len(loaded) == 1 else step_text.THRESHOLD

    def on_election(self, request: Candidates, strategies: Sequence[Strategy]) -> OnElection | None:
        """What is called with each election of these votes, if anything is. Raises `InvalidRequest` for a request that
        can't be followed up as it asks."""
        note = self.note if len(strategies) == 1 else None
        if note is None and not (isinstance(request, RiskTerms) and request.risk is not None):
            return None
        return on_election(self.calibration, request, strategies, self.name, note)


def encode(
    engine: Engine, solutions: Mapping[int, Solution], scope: str = "", too_long: dict[str, int] | None = None
) -> dict[int, Encoded | Unscorable]:
    """The model input of each solution, or the error for a solution beyond the model's window, not encoded if its
    characters alone say so. `scope`: of `Encoded`. `too_long`: gets tokens of problems that alone are beyond the
    window."""
    format, limit = engine.format, engine.description.max_tokens
    too_long = {} if too_long is None else too_long
    inputs: dict[int, Encoded | Unscorable] = {}
    for index, solution in solutions.items():
        least = too_long.get(solution.problem, -(-solution_length(solution) // format.longest_token))
        if least > limit:
            inputs[index] = SolutionTooLong(index, least, limit, exact=False)
            continue
        if solution.prompt is not None:
            item = format.at_tags(format.tokenize(solution.prompt))
        else:
            item = format.encode(solution.problem, solution.steps)
        if len(item.ids) <= limit:
            inputs[index] = replace(item, scope=scope, evidence=solution.evidence)
            continue
        inputs[index] = SolutionTooLong(index, len(item.ids), limit)
        if len(solution.problem) > limit and (alone := len(format.encode(solution.problem, ("1",)).ids)) > limit:
            too_long[solution.problem] = alone
    return inputs


def solution_length(solution: Solution) -> int:
    """Characters of problem plus solution; or those of a prompt, or its token ids."""
    return sum(map(len, (solution.problem, *solution.steps, solution.prompt.content if solution.prompt else "")))


def run(engine: Engine, inputs: Mapping[int, Encoded | Unscorable]) -> tuple[dict[int, Outcome], Usage]:
    """What each solution scores, from its model input, in one batch, and what that took."""
    readable = {index: item for index, item in inputs.items() if isinstance(item, Encoded)}
    scores = engine.score(list(readable.values()))
    return outcomes(inputs, dict(zip(readable, scores, strict=True))), Usage.from_scores(scores)


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
                for step in zip(*(scored.values for scored in solution), strict=True)
            ),
            missing=max(scored.missing for scored in solution),
        )
        for solution in zip(*scores, strict=True)
    ]


S = TypeVar("S", bound=wire.Score)

_SHOWN = 0.0005
"""A lead below this is 0.000 where it is shown, and so told as a tie."""
_UNSUPPORTED = "every solution with the elected answer has a marked error; solution {}, with another answer, has none"


def answer_of(sent: str | None, text: str, extraction: Extraction) -> str | None:
    """The answer that was sent, or else the text's; None if there is none, or a blank one."""
    answer = extract(text, extraction) if sent is None else sent
    return None if answer is None or not answer.strip() else answer


def weak_readings(texts: Mapping[int, tuple[str, str]]) -> Work[dict[int, str]]:
    readings = yield from pausing(attempt(partial(weak_reading, *each), None) for each in texts.values())
    return {index: reading for index, reading in zip(texts, readings, strict=True) if reading is not None}


def why_unscorable(index: int, solution: Solution, max_steps: int) -> Unscorable | None:
    if not solution.steps:
        return BlankSolution(index)
    return TooManySteps(index, max_steps) if len(solution.steps) > max_steps else None


@dataclass(slots=True)
class Ballot:
    """A request's solutions, their classes of equal answers, and their outcomes, None for a solution that no vote
    needs.

    `selected`: what a model's comparison came to, None before it; `compared`: the solutions that it was shown.
    `texts`: by index, non-blank texts that answers are read from. `weak`: solutions whose answers are weak readings
    with a witness. `marks`: by index, those of `unprm.checks` on the steps, None where a model scores. `demonstration`:
    a notice about the scores. `compared_as_text`: solutions whose answers were not compared in time.
    """

    request: Candidates
    solutions: list[Solution]
    scores: list[Outcome | None]
    texts: dict[int, str] = field(default_factory=dict)
    weak: set[int] = field(default_factory=set)
    classes: Sequence[int | None] = ()
    marks: Mapping[int, Sequence[float | None]] | None = None
    demonstration: Demonstration | None = None
    compared_as_text: Sequence[int] = ()
    on_election: OnElection | None = None
    scorer: Scorer | None = None
    selected: Selected | None = None
    compared: Sequence[int] = ()

    @classmethod
    def from_request(cls, request: Candidates, scorer: Scorer) -> Work[Self]:
        """The solutions and their answers, in order. Raises `InvalidRequest`, and `Unscorable` if the request says
        so."""
        ballot = cls(request, [], [], scorer=scorer)
        yield from ballot.add(request, scorer)
        if request.on_invalid == "refuse":
            raise_first_unscorable(ballot.scores, request.place)
        return ballot

    def add(self, request: Candidates, scorer: Scorer) -> Work[None]:
        """Reads the solutions of a request with the same settings, after those before."""
        for index, solution in enumerate(request.candidates(scorer.max_steps, scorer.tags), len(self.solutions)):
            if solution.answer is None and solution.text.strip():
                self.texts[index] = solution.text
            answer = answer_of(solution.answer, solution.text, request.extraction)
            self.solutions.append(replace(solution, answer=answer))
            given = None if solution.step_scores is None else StepScores(solution.step_scores)
            self.scores.append(why_unscorable(index, solution, scorer.max_steps) or given)
            yield None

    def check_steps(self, scorer: Scorer) -> Work[None]:
        """Marks the steps of solutions without scores, if no model scores them: a demonstration only knows its own
        domain."""
        missing = {index: self.solutions[index] for index, outcome in enumerate(self.scores) if outcome is None}
        notice = None if scorer.demo is None or not missing else domain_notice(scorer.demo, missing.values())
        if (scorer.checks and missing) or (notice is not None and not notice.in_domain):
            self.demonstration = notice
            marks = ([attempt(partial(check, step), None) for step in each.steps] for each in missing.values())
            self.marks = dict(zip(missing, (yield from pausing(marks)), strict=True))

    def read_letters(self) -> Work[None]:
        """Reads the letters of options if the problem lists options and most texts choose one, as the gateway does."""
        if "extraction" in self.request.model_fields_set or not lists_options(self.request.problem or ""):
            return
        stated = ((self.solutions[index].answer, text) for index, text in self.texts.items())
        read = (stated_letters(answer) if answer else extract(text, "choice") for answer, text in stated)
        letters = dict(zip(self.texts, (yield from pausing(read)), strict=True))
        if 2 * sum(each is not None for each in letters.values()) > len(self.texts):
            for index, letter in letters.items():
                self.solutions[index] = replace(self.solutions[index], answer=letter or self.solutions[index].answer)

    def read_unstated(self) -> Work[None]:
        """Reads texts without a stated answer by the kind of most replies, if there is one; among short texts, also by
        weak readings that equal another's answer."""
        replies = sum(len(solution.steps) > 0 for solution in self.solutions)
        stated = [self.solutions[index].answer is not None for index in self.texts]
        found = yield from read_kind(list(self.texts.values()), stated, replies)
        if found is None:
            return
        kind, answers = found
        read = dict(zip(self.texts, answers, strict=True))
        for index, solution in enumerate(self.solutions):
            if solution.answer is None or (KINDS[kind].joined and solution.compared_as == "stated"):
                answer = solution.answer or read.get(index)
                self.solutions[index] = replace(solution, answer=answer, compared_as=kind)
        if KINDS[kind].joined:
            key = KINDS[kind].key
            said = {key(solution.answer) for solution in self.solutions if solution.answer is not None} - {None}
            for index, reading in (yield from self.weak_readings()).items():
                if key(reading) in said:
                    self.solutions[index] = replace(self.solutions[index], answer=reading)
                    self.weak.add(index)

    def weak_readings(self) -> Work[dict[int, str]]:
        """What each solution without an answer may mean by its last numbers or words, by its index."""
        if self.request.extraction != "auto":
            return {}
        texts = ((index, text, self.solutions[index]) for index, text in self.texts.items())
        unstated = {index: (text, each.problem) for index, text, each in texts if each.answer is None}
        return (yield from weak_readings(unstated))

    def count_witnessed(self, readings: Mapping[int, str], classes: Sequence[int]) -> None:
        """Takes weak readings that equal another answer or reading. `classes`: of `stated`, then of `readings`."""
        solutions_of = Counter(classes)
        for (index, reading), name in zip(readings.items(), classes[len(self.stated) :], strict=True):
            if solutions_of[name] > 1:
                self.solutions[index] = replace(self.solutions[index], answer=reading)
                self.weak.add(index)

    @property
    def stated(self) -> list[str]:
        """The answers that are compared as mathematics."""
        return [
            solution.answer
            for solution in self.solutions
            if solution.answer is not None and solution.compared_as == "stated"
        ]

    def stand_alone(self, signals: Collection[Signal], has_model: bool) -> None:
        """Lets every candidate stand for itself: trajectories, or solutions of which rewards or confidences, the
        `signals` of the votes, can elect one. Raises `NoAnswer`."""
        noun, scores = "solution" if self.request.trajectories is None else "trajectory", self.scores
        if noun == "solution":
            scored = any(isinstance(outcome, StepScores) for outcome in scores) or (has_model and self.request.problem)
            confident = any(solution.confidence is not None for solution in self.solutions)
            scored, confident = scored and "reward" in signals, confident and "confidence" in signals
            if not (scored or confident or "preference" in signals):
                raise NoAnswer(len(scores))
        self.classes = list(range(len(scores)))
        alone = partial(replace, compared_as="none")
        self.solutions = [alone(solution, answer=f"{noun} {k}") for k, solution in enumerate(self.solutions)]

    def rule(self, strategy: Strategy) -> Strategy:
        """The vote that is taken. For all by rewards: the majority, where steps are only checked; the highest reward,
        among solutions that stand for themselves. For a comparison, the majority where there was none."""
        if VOTES[strategy].signal == "preference":
            return "majority" if self.preferences is None else strategy
        if self.marks is not None and VOTES[strategy].signal == "reward" and not self._has_rewards:
            return "majority"
        alone = self.request.trajectories is None and all(solution.compared_as == "none" for solution in self.solutions)
        return "prm" if alone and VOTES[strategy].signal == "reward" else strategy

    def values(self, strategy: Strategy) -> Values | None:
        """The rewards or confidences that the vote takes; None if it takes none or there are none."""
        values = {"reward": self.rewards, "confidence": self.confidences, "preference": self.preferences}
        return values.get(VOTES[strategy].signal)

    def decide(self, strategy: Strategy, longest: int | None = None) -> Election:
        """Takes a vote. `longest`: maximum characters of an answer in the outcome, without an ellipsis. Raises
        `NoAnswer`."""
        answers = [solution.answer or "" for solution in self.solutions]
        if longest is not None:
            answers = [answer if len(answer) <= longest else answer[:longest] + "…" for answer in answers]
        rule = self.rule(strategy)
        election = decide(rule, self.classes, self.rewards, self.request, self.values(rule), answers, self.flawed)
        elected, *others = election.candidates
        election.strategy = strategy if self.marks is None else rule
        if VOTES[strategy].signal == "preference" and self.selected is not None:
            told = self.selected
            election.strategy = strategy
            election.selection = Selection(calls=told.calls, tokens=told.usage.tokens, why=told.why)
            if told.failed:
                election.notes = [f"the comparison failed, and the majority decided: {told.why}"]
        election.compared_as = self.solutions[election.solution_index].compared_as
        if self.weak.issuperset(elected.members):
            election.read_from = "weak"
        if election.margin is not None and election.margin < _SHOWN:
            scored = [(group.score, group.answer) for group in election.candidates if group.score is not None]
            top = max(scored)[0]
            election.tie, election.tied_answers = True, [answer for score, answer in scored if top - score < _SHOWN]
        supported = [self._is_sound(index) for index in elected.members]
        better = [index for group in others for index in group.members if self._is_sound(index)]
        election.supported = True if True in supported else False if False in supported else None
        if election.supported is False and better:
            election.notes = [*election.notes, _UNSUPPORTED.format(better[0])]
        return election

    @property
    def flawed(self) -> set[int]:
        """Solutions of which `unprm.checks` marks a step as wrong."""
        return {index for index, marks in (self.marks or {}).items() if 0.0 in marks}

    def _is_sound(self, index: int) -> bool | None:
        """Whether no step of a solution is marked as wrong; None if no step has a score."""
        values, wrong = self._marked(index)
        return None if all(value is None for value in values or ()) else wrong is None

    def _marked(self, index: int) -> tuple[Sequence[float | None] | None, int | None]:
        """The step scores of a solution, or the marks in their place, and the index of the first error."""
        outcome, threshold = self.scores[index], self.request.threshold
        values = outcome.values if isinstance(outcome, StepScores) else (self.marks or {}).get(index)
        if threshold is None:
            threshold = step_text.THRESHOLD if self.scorer is None else self.scorer.threshold
        return values, step_text.first_error(values or (), threshold)

    def outcome(self, strategy: Strategy, longest: int | None = None) -> Election:
        election = self.decide(strategy, longest)
        if self.on_election is None:
            return election
        elected = self.solutions[election.candidates[0].members[0]].answer or ""
        record = ElectionRecord.from_election(election, elected, self.classes, self.rewards, self.request)
        if VOTES[strategy].signal == "preference":
            record = replace(record, strategy=self.rule(strategy))
        return election.model_copy(update=self.on_election(record))

    def score_response(self, scorer: Scorer) -> ScoreResponse:
        placed = isinstance(self.request, ScoreRequest) and self.request.step_spans
        solutions = [
            self._scored(
                ScoredSolution,
                index,
                steps=solution.steps,
                step_spans=solution.spans if placed else None,
                last_tokens=solution.last_tokens,
            )
            for index, solution in enumerate(self.solutions)
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
        """The response to all votes that can be taken on the rewards and confidences there are."""
        values: dict[Signal, object] = {"confidence": self.confidences, "preference": self.selected}
        lacking = {signal for signal, known in values.items() if known is None}
        rewarded = self._has_rewards
        needed = {name: needed_signal(self.rule(name), self.classes, self.request) for name in VOTES}
        outcomes = {
            name: self.outcome(name, LONGEST_COMPARED)
            for name, vote in VOTES.items()
            if vote.signal not in lacking and (rewarded or needed[name] != "reward")
        }
        agree = len({outcome.candidates[0].members[0] for outcome in outcomes.values()}) == 1
        return CompareResponse(strategies=outcomes, agree=agree, **self._candidates(scorer))

    @property
    def preferences(self) -> Values | None:
        """One per solution that a model compared with others; None as a whole without such a comparison."""
        if self.selected is None or self.selected.preferences is None:
            return None
        preferred = dict(zip(self.compared, self.selected.preferences, strict=True))
        return [preferred.get(index) for index in range(len(self.solutions))]

    @property
    def confidences(self) -> Values | None:
        """One per solution, None if it has none; None as a whole if none that has an answer has one."""
        values = [solution.confidence for solution in self.solutions]
        return values if drop_unanswered(self.classes, values) else None

    @property
    def rewards(self) -> Values | None:
        """One per solution, in [0, 1], None if it can't be scored; None as a whole if no vote needed rewards."""
        if not any(isinstance(outcome, StepScores) for outcome in self.scores):
            return None
        return [
            step_text.reward(outcome.values, self.request.aggregate) if isinstance(outcome, StepScores) else None
            for outcome in self.scores
        ]

    @property
    def _has_rewards(self) -> bool:
        """Whether a solution with an answer has a reward."""
        return self.rewards is not None and drop_unanswered(self.classes, self.rewards) is not None

    def _candidates(self, scorer: Scorer, by_confidence: bool = False) -> dict[str, Any]:
        return {
            "solutions": [
                self._scored(wire.Score, index, confidence=solution.confidence if by_confidence else None)
                for index, solution in enumerate(self.solutions)
            ],
            "unscored_count": sum(isinstance(outcome, Unscorable) for outcome in self.scores),
            "without_answer_count": self.classes.count(None),
            "compared_as_text": self.compared_as_text,
            "model": scorer.name,
            "demonstration": self.demonstration,
            "usage": scorer.usage,
        }

    def _scored(self, form: type[S], index: int, **more: Any) -> S:
        """What a solution scores, in a response of this form, which may have `more` fields."""
        request, solution, outcome = self.request, self.solutions[index], self.scores[index]
        values = outcome.values if isinstance(outcome, StepScores) else None
        shown, wrong = self._marked(index)
        scores = dict(zip(map(str, solution.messages or ()), shown or (), strict=False))
        return form(
            id=solution.id,
            answer=solution.answer,
            read=None if solution.answer is None else "weak" if index in self.weak else "stated",
            reward=None if values is None else step_text.reward(values, request.aggregate),
            step_scores=None if shown is None else list(shown),
            first_error=wrong,
            unscored=Unscored.from_error(outcome) if isinstance(outcome, Unscorable) else None,
            step_log_odds=list(map(log_odds, values)) if values is not None and request.log_odds else None,
            message_scores=scores if shown is not None and solution.messages is not None else None,
            cut={str(index): cut for index, cut in solution.cut.items()} or None,
            **more,
        )


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


def score(request: Candidates, scorer: Scorer) -> Work[ScoreResponse]:
    """The step scores of every solution. Raises `Unscorable` if none has scores and the request no right answer, or as
    the request says, and the scorer's errors."""
    if not scorer.name and not request.has_all_scores:
        raise NoModel
    ballot = yield from Ballot.from_request(request, scorer)
    yield from ballot.check_steps(scorer)
    golds = request.right_answers if isinstance(request, ScoreRequest) else None
    yield from _score(ballot, scorer, range(request.count) if golds is None else ())
    response = ballot.score_response(scorer)
    if isinstance(request, ScoreRequest) and golds is not None:
        yield from _add_verdicts(request, response, golds, (yield from ballot.weak_readings()))
    return response


def vote(request: Candidates, strategy: Strategy | None, scorer: Scorer) -> Work[VoteResponse]:
    """The response to one vote, None for the default. Raises as `prepare_ballot`."""
    why = None
    if strategy is None:
        why = None if request.has_all_scores else why_majority(scorer, request.problem)
        strategy = DEFAULT_STRATEGY if why is None else "majority"
    ballot = yield from prepare_ballot(request, [strategy], scorer, alone=True)
    if VOTES[strategy].signal == "preference":
        yield from select(ballot, scorer)
    response = ballot.vote_response(strategy, scorer)
    response.why_majority = why if response.strategy == strategy else why_majority(scorer, None)
    return response


def compare(request: Candidates, scorer: Scorer) -> Work[CompareResponse]:
    ballot = yield from prepare_ballot(request, [*VOTES], scorer)
    if scorer.selects:
        yield from select(ballot, scorer)
    return ballot.compare_response(scorer)


def select(ballot: Ballot, scorer: Scorer) -> Work[None]:
    """Lets a model compare a ballot's answers, unless there is one alone, or the request asks for it only where the
    majority is unsettled, and it is settled. Raises `NoJudge` without such a model, `InvalidRequest` without a
    problem."""
    request, terms = ballot.request, SelectTerms.model_validate(ballot.request, from_attributes=True)
    why = None
    if len({name for name in ballot.classes if name is not None}) < 2:
        why = "there is no other answer"
    elif terms.select_if == "unsettled":
        why = _why_settled(ballot, scorer, terms.settled_margin)
    if why is not None:
        ballot.selected = Selected(why=why)
        return
    if not scorer.selects:
        raise NoJudge
    if not request.problem:
        raise InvalidRequest("the problem is needed to compare solutions of it", "/problem")
    # not those computed for another vote, so that the outcome is the same without it
    ballot.compared = contenders(ballot.classes, ballot.rewards if request.has_all_scores else None)
    shown = [ballot.solutions[index] for index in ballot.compared]
    texts = ["\n\n".join(each.steps) or each.text for each in shown]
    agent = request.trajectories is not None
    ballot.selected = yield Select(Question(request.problem, texts, terms.repeats, terms.pairwise, agent))


def _why_settled(ballot: Ballot, scorer: Scorer, margin: float) -> str | None:
    """Why the majority needs no comparison: its answer is accepted at the request's risk, or without one its lead is
    large; None if it does."""
    free = ballot.decide("majority")
    follow = on_election(scorer.calibration, ballot.request, ["majority"], scorer.name)
    if follow is not None:
        record = ElectionRecord.from_election(free, "", ballot.classes, None, ballot.request)
        return "the majority's answer is accepted at this risk" if follow(record).get("accept") else None
    first, second = free.candidates[:2]
    lead = (first.count - second.count) / len(ballot.classes)
    return f"the majority leads by {lead:.2f} of the candidates" if lead >= margin else None


def grade(pairs: Sequence[PairIn], extraction: Extraction) -> Work[list[Grade]]:
    answers = yield from pausing(answer_of(pair.answer, pair.text or "", extraction) for pair in pairs)
    texts = {k: (pair.text, pair.problem or "") for k, pair in enumerate(pairs) if answers[k] is None and pair.text}
    weak = (yield from weak_readings(texts)) if extraction == "auto" else {}
    verdicts = yield from _judge(_with(answers, weak), [pair.golds for pair in pairs])
    right = {index: reading for index, reading in weak.items() if verdicts[index].correct}
    return [
        Grade(
            id=pair.id,
            answer=answer,
            correct=verdict.correct,
            compared_as_text=verdict.as_text,
            weak=index in right,
        )
        for index, (pair, answer, verdict) in enumerate(zip(pairs, _with(answers, right), verdicts, strict=True))
    ]


def _with(answers: Sequence[str | None], readings: Mapping[int, str]) -> list[str | None]:
    """The answers, and in place of those that are missing, the readings by their indices."""
    return [readings.get(index, answer) for index, answer in enumerate(answers)]


def _add_verdicts(
    request: ScoreRequest, response: ScoreResponse, golds: Sequence[Sequence[str]], weak: Mapping[int, str]
) -> Work[None]:
    """Adds whether answers are right, and combined rewards. `weak`: readings by index, which count if right."""
    response.combination = request.combination
    verdicts = yield from _judge(_with([solution.answer for solution in response.solutions], weak), golds)
    for index, (solution, verdict) in enumerate(zip(response.solutions, verdicts, strict=True)):
        if index in weak and verdict.correct:
            solution.answer, solution.read = weak[index], "weak"
        solution.correct, solution.compared_as_text = verdict
        scores = [score for score in solution.step_scores or () if score is not None and solution.reward is not None]
        solution.combined_reward = step_text.combined(
            request.combination, verdict.correct, scores, solution.reward, request.mean_weight
        )


def _judge(answers: Sequence[str | None], golds: Sequence[Sequence[str]]) -> Work[list[Match]]:
    """Whether each answer equals one of its golds, `MAX_SOLUTIONS` at a time, as bounded as a vote's. None is wrong."""
    pairs = [Pair(answer, gold) for answer, gold in zip(answers, golds, strict=True) if answer is not None]
    matches: list[Match] = []
    for start in range(0, len(pairs), MAX_SOLUTIONS):
        matches += yield MatchPairs(pairs[start : start + MAX_SOLUTIONS])
    of_stated = iter(matches)
    return [Match(False, False) if answer is None else next(of_stated) for answer in answers]


def prepare_ballot(
    request: Candidates, strategies: Sequence[Strategy], scorer: Scorer, *, alone: bool = False
) -> Work[Ballot]:
    """The ballot for these votes, as `prepare`; raises as that and `Ballot.from_request`."""
    ballot = yield from Ballot.from_request(request, scorer)
    yield from prepare(ballot, strategies, scorer, alone=alone)
    return ballot


def prepare(ballot: Ballot, strategies: Sequence[Strategy], scorer: Scorer, *, alone: bool = False) -> Work[None]:
    """Finds the classes of a ballot's answers, and its scores if a vote needs rewards. `alone`: without answers,
    candidates may stand for themselves.

    Raises `NoAnswer`, `Unscorable` and `NoConfidence` if nobody with an answer has what a vote needs, `InvalidRequest`
    without a problem to score by, and the scorer's errors.
    """
    request = ballot.request
    free = ["majority" if VOTES[strategy].signal == "preference" else strategy for strategy in strategies]
    ballot.on_election = scorer.on_election(request, free)
    yield from ballot.check_steps(scorer)
    yield from _classify(ballot)
    if all(name is None for name in ballot.classes):
        signals = {VOTES[strategy].signal for strategy in strategies} if alone else set[Signal]()
        signals -= set() if scorer.selects else {"preference"}
        ballot.stand_alone(signals, bool(scorer.name) and ballot.marks is None)
    needed = {needed_signal(ballot.rule(strategy), ballot.classes, request) for strategy in strategies}
    if "reward" in needed:
        yield from _score(ballot, scorer, [index for index, name in enumerate(ballot.classes) if name is not None])
    elif None in ballot.scores:  # what was sent for some says nothing
        ballot.scores = [outcome if isinstance(outcome, Unscorable) else None for outcome in ballot.scores]
    if needed == {"confidence"} and ballot.confidences is None:
        raise NoConfidence


def why_majority(scorer: Scorer, problem: str | None) -> str | None:
    """Why there are no rewards to vote by, whatever the solutions are: no model is served, or a demonstration that does
    not know the problem."""
    if not scorer.name or scorer.checks:
        return "no model is served, which would give rewards"
    if scorer.demo is None or knows(problem or ""):
        return None
    return f"rewards by {scorer.name}, a demonstration, mean nothing outside its domain"


def raise_first_unscorable(outcomes: Iterable[object], place: str) -> None:
    """Raises the first error about a solution, if there is any; it points to `place`, where {} is its index."""
    for outcome in outcomes:
        if isinstance(outcome, Unscorable):
            outcome.pointer = place.format(outcome.index)
            raise outcome


def _classify(ballot: Ballot) -> Work[None]:
    yield from ballot.read_letters()
    if ballot.request.extraction == "auto" and any(ballot.solutions[index].answer is None for index in ballot.texts):
        yield from ballot.read_unstated()
        if readings := (yield from ballot.weak_readings()):
            compared = yield Compare([*ballot.stated, *readings.values()])
            ballot.count_witnessed(readings, compared.classes)
    solutions = ballot.solutions
    classes: list[int | None] = [None] * len(solutions)
    formal: dict[int, str] = {}
    verbatim: dict[tuple[ComparedAs, str], int] = {}
    for index, solution in enumerate(solutions):
        if solution.answer is None:
            continue
        key = None
        if solution.compared_as != "stated":
            key = attempt(partial(KINDS[solution.compared_as].key, solution.answer), None)
        if key is None:
            formal[index] = solution.answer
        else:
            classes[index] = verbatim.setdefault((solution.compared_as, key), len(solutions) + index)
    compared = yield Compare(list(formal.values()))
    for index, number in zip(formal, compared.classes, strict=True):
        classes[index] = number
    ballot.classes, ballot.compared_as_text = classes, [list(formal)[index] for index in compared.as_text]


def _score(ballot: Ballot, scorer: Scorer, electable: Sequence[int]) -> Work[None]:
    """Scores the solutions that came without scores.

    Raises `InvalidRequest` without a problem, and `Unscorable` if no `electable` candidate (indices, ascending) has
    scores, or as the request says.
    """
    request, scores = ballot.request, ballot.scores
    if scorer.name and None in scores and ballot.marks is None:
        if None in request.candidate_problems:
            raise InvalidRequest(_NO_PROBLEM, "/problem")
        missing = {index: solution for index, solution in enumerate(ballot.solutions) if scores[index] is None}
        computed = yield Score(missing, request.on_invalid == "refuse")
        if request.on_invalid == "refuse":
            raise_first_unscorable(computed.values(), request.place)
        for index in missing:
            scores[index] = computed.get(index)
        scored = [missing[index] for index, outcome in computed.items() if isinstance(outcome, StepScores)]
        if scorer.demo is not None and scored:
            ballot.demonstration = domain_notice(scorer.demo, scored)
    if electable and ballot.marks is None and not any(isinstance(scores[index], StepScores) for index in electable):
        raise_first_unscorable([scores[electable[0]]], request.place)
