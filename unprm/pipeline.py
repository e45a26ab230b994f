"""The one way from a request's candidates to a response: candidates are split into steps, their answers extracted and
compared, scored if a vote needs rewards, and voted on.

Each flow is a generator that yields `Compare`, `MatchPairs` and `Score`, and gets the result from its driver: at once
in a program, in the caller's turns on a server. Whatever has a caller's size runs inside the generator, so no driver
can forget a turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from unprm import steps as step_text
from unprm.answers.equivalence import Match, Pair
from unprm.answers.kinds import KINDS
from unprm.attempts import attempt
from unprm.ballot import Ballot, answer_of, weak_readings
from unprm.election.decide import needed_signal
from unprm.errors import (
    InvalidRequest,
    NoModel,
    Unscorable,
)
from unprm.mini.domain import domain_notice
from unprm.scorer import Compare, MatchPairs, Score, Scorer, Work
from unprm.types import (
    DEFAULT_STRATEGY,
    ComparedAs,
    Extraction,
    StepScores,
)
from unprm.votes.registry import VOTES, Strategy
from unprm.votes.vote import Signal
from unprm.wire import (
    MAX_SOLUTIONS,
    Candidates,
    CompareResponse,
    Grade,
    PairIn,
    ScoreRequest,
    ScoreResponse,
    VoteResponse,
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
    """The step scores of every solution; the request has a problem, or all scores. Raises `Unscorable` if none can be
    scored and the request has no right answer, or one can't and it says to refuse, and the scorer's errors."""
    if not scorer.name and not request.has_all_scores:
        raise NoModel
    ballot = _parse(request, scorer)
    golds = request.right_answers if isinstance(request, ScoreRequest) else None
    yield from _score(ballot, scorer, range(request.count) if golds is None else ())
    response = ballot.score_response(scorer)
    if isinstance(request, ScoreRequest) and golds is not None:
        yield from _add_verdicts(request, response, golds, ballot.weak_readings())
    return response


def vote(request: Candidates, strategy: Strategy | None, scorer: Scorer) -> Work[VoteResponse]:
    """The response to one vote, None for the default: that is by majority where rewards would be those of a
    demonstration outside its domain. Raises as `prepare_ballot`."""
    why = None
    if strategy is None:
        why = None if request.has_all_scores else why_majority(scorer, request.problem)
        strategy = DEFAULT_STRATEGY if why is None else "majority"
    ballot = yield from prepare_ballot(request, [strategy], scorer, alone=True)
    response = ballot.vote_response(strategy, scorer)
    response.why_majority = why
    return response


def compare(request: Candidates, scorer: Scorer) -> Work[CompareResponse]:
    """The response to all votes that can be taken on what the candidates have. Raises as `prepare_ballot`."""
    ballot = yield from prepare_ballot(request, [*VOTES], scorer)
    return ballot.compare_response(scorer)


def grade(pairs: Sequence[PairIn], extraction: Extraction) -> Work[list[Grade]]:
    """Whether each pair's answer is right, whatever the others say."""
    answers = [answer_of(pair.answer, pair.text or "", extraction) for pair in pairs]
    texts = {index: pair.text for index, pair in enumerate(pairs) if answers[index] is None and pair.text}
    weak = weak_readings(texts) if extraction == "auto" else {}
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
    """Adds to the response whether the answers are right, and the rewards that come of it. `weak`: readings of the
    solutions without an answer, by their indices, which count if they are right."""
    response.combination = request.combination
    verdicts = yield from _judge(_with([each.answer for each in response.solutions], weak), golds)
    for index, (each, verdict) in enumerate(zip(response.solutions, verdicts, strict=True)):
        if index in weak and verdict.correct:
            each.answer, each.read = weak[index], "weak"
        each.correct, each.compared_as_text = verdict
        each.combined_reward = step_text.combined(
            request.combination, verdict.correct, each.step_scores or (), each.reward, request.mean_weight
        )


def _judge(answers: Sequence[str | None], golds: Sequence[Sequence[str]]) -> Work[list[Match]]:
    """Whether each answer equals one of its right ones; None, no answer, does not. Every `MAX_SOLUTIONS` answers may
    take as long as those of a vote."""
    pairs = [Pair(answer, gold) for answer, gold in zip(answers, golds, strict=True) if answer is not None]
    matches: list[Match] = []
    for start in range(0, len(pairs), MAX_SOLUTIONS):
        matches += yield MatchPairs(pairs[start : start + MAX_SOLUTIONS])
    of_stated = iter(matches)
    return [Match(False, False) if answer is None else next(of_stated) for answer in answers]


def prepare_ballot(
    request: Candidates, strategies: Sequence[Strategy], scorer: Scorer, *, alone: bool = False
) -> Work[Ballot]:
    """The ballot for these votes, scored if one of them needs it. `alone`: where nobody has an answer, candidates may
    stand for themselves, so that a reward or confidence elects one.

    Raises `NoAnswer`; `Unscorable` and `NoConfidence` if no solution with an answer has a reward or confidence, and a
    vote needs one; `InvalidRequest` without a problem to score by; and the scorer's errors.
    """
    on_election = scorer.on_election(request, strategies)
    ballot = _parse(request, scorer)
    ballot.on_election = on_election
    yield from _classify(ballot)
    if all(name is None for name in ballot.classes):
        signals = {VOTES[strategy].signal for strategy in strategies} if alone else set[Signal]()
        ballot.stand_alone(signals, bool(scorer.name))
    needed = {needed_signal(ballot.rule(strategy), ballot.classes, request) for strategy in strategies}
    if "reward" in needed:
        yield from _score(ballot, scorer, [index for index, name in enumerate(ballot.classes) if name is not None])
    elif None in ballot.scores:  # what was sent for some says nothing
        ballot.scores = [each if isinstance(each, Unscorable) else None for each in ballot.scores]
    if needed == {"confidence"} and ballot.confidences is None:
        raise NoConfidence
    return ballot


def why_majority(scorer: Scorer, problem: str | None) -> str | None:
    """Why a vote that nobody named is by majority, None if it isn't: there would be no rewards, or those of a
    demonstration outside its domain."""
    if not scorer.name:
        return "no model is served, which would give rewards"
    if scorer.demo is None or domain_notice(scorer.demo, problem).in_domain:
        return None
    return f"rewards by {scorer.name}, a demonstration, mean nothing for this problem"


def raise_first_unscorable(outcomes: Iterable[object], place: str) -> None:
    """Raises the first error about a solution, if there is any; it points to `place`, where {} is its index."""
    for each in outcomes:
        if isinstance(each, Unscorable):
            each.pointer = place.format(each.index)
            raise each


def _parse(request: Candidates, scorer: Scorer) -> Ballot:
    """Raises `Unscorable` if the request says to refuse."""
    ballot = Ballot.of(request, scorer.max_steps)
    if request.on_invalid == "refuse":
        raise_first_unscorable(ballot.scores, request.place)
    return ballot


def _classify(ballot: Ballot) -> Work[None]:
    """Finds the classes of equal answers."""
    if ballot.request.extraction == "auto" and any(ballot.solutions[index].answer is None for index in ballot.texts):
        ballot.read_unstated()
        if readings := ballot.weak_readings():
            compared = yield Compare([*ballot.stated, *readings.values()])
            ballot.count_witnessed(readings, compared.classes)
    solutions = ballot.solutions
    classes: list[int | None] = [None] * len(solutions)
    formal: dict[int, str] = {}
    verbatim: dict[tuple[ComparedAs, str], int] = {}
    for index, each in enumerate(solutions):
        if each.answer is None:
            continue
        if (key := attempt(partial(KINDS[each.compared_as].key, each.answer), None)) is None:
            formal[index] = each.answer
        else:
            classes[index] = verbatim.setdefault((each.compared_as, key), len(solutions) + index)
    compared = yield Compare(list(formal.values()))
    for index, number in zip(formal, compared.classes, strict=True):
        classes[index] = number
    ballot.classes, ballot.compared_as_text = classes, [list(formal)[index] for index in compared.as_text]


def _score(ballot: Ballot, scorer: Scorer, electable: Sequence[int]) -> Work[None]:
    """Scores the solutions; the model runs only for those that came without scores.

    Raises `InvalidRequest` without a problem, and `Unscorable`, that of the first, if there are `electable` candidates
    (indices, ascending) of which none has scores, or if the request says to refuse.
    """
    request, scores = ballot.request, ballot.scores
    if scorer.name and None in scores:
        if None in request.candidate_problems:
            raise InvalidRequest(_NO_PROBLEM, "/problem")
        missing = {index: each for index, each in enumerate(ballot.solutions) if scores[index] is None}
        computed = yield Score(missing, request.on_invalid == "refuse")
        if request.on_invalid == "refuse":
            raise_first_unscorable(computed.values(), request.place)
        for index in missing:
            scores[index] = computed.get(index)
        problems = {missing[index].problem for index, each in computed.items() if isinstance(each, StepScores)}
        if scorer.demo is not None and problems:
            ballot.demonstration = domain_notice(scorer.demo, *problems)
    if electable and not any(isinstance(scores[index], StepScores) for index in electable):
        raise_first_unscorable([scores[electable[0]]], request.place)
