"""Calibrates when an elected answer is accepted at a given risk, from candidates whose answers are known."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from unprm.election.acceptance import CONFIDENCE, Election, Statistics, VoteCalibration, certainty
from unprm.election.decide import decide, needed_signal
from unprm.errors import RecordInvalid
from unprm.votes.registry import Strategy

from .records import JudgedCandidates
from .right_votes import takeable


def calibrate(
    questions: Sequence[JudgedCandidates], pool: str, date: str, confidence: float = CONFIDENCE
) -> VoteCalibration:
    """The calibration of all votes that these candidates allow; `pool` names them. Questions without any answer are
    left out: nothing is elected there. Raises `RecordInvalid` if no question has one."""
    electable = [question for question in questions if any(name is not None for name in question.classes)]
    if not electable:
        raise RecordInvalid(pool, 0, "no candidate of any question has an answer")
    found = [asdict(Statistics.of(question.classes, question.rewards)) for question in electable]
    known = {name: [row[name] for row in found if row[name] is not None] for name in found[0]}
    return VoteCalibration(
        pool=pool,
        date=date,
        confidence=confidence,
        elections={strategy: elections(electable, strategy) for strategy in takeable(electable)},
        ranges={name: (min(values), max(values)) for name, values in known.items() if values},
    )


def elections(questions: Iterable[JudgedCandidates], strategy: Strategy) -> list[Election]:
    """The vote's elections: their certainty, and whether the answer is right. Rewards count where the vote needs them,
    since a server computes them only there."""
    made = []
    for question in questions:
        signal = needed_signal(strategy, question.classes)
        rewards = question.rewards if signal == "reward" else None
        confidences = question.values(strategy) if signal == "confidence" else None
        result = decide(strategy, question.classes, rewards, confidences=confidences)
        value = certainty(question.classes, rewards, result.classes[0].members)
        made.append((value, question.correct[result.solution_index]))
    return made
