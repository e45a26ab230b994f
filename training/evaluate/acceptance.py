"""Calibrates when an elected answer is accepted at a given risk, from candidates whose answers are known."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from unprm.election.acceptance import CONFIDENCE, Election, Statistics, VoteCalibration, certainty, rewards_used
from unprm.election.decide import decide, needed_signal, of_answered
from unprm.errors import RecordInvalid
from unprm.types import Aggregate
from unprm.votes.registry import DEFAULTS, VOTES, Strategy

from . import judging
from .records import JudgedCandidates
from .right_votes import takeable


def calibrated(run: Path, date: str, model: str | None = None, aggregate: Aggregate | None = None) -> VoteCalibration:
    """The calibration of all votes that the candidates in a directory allow, which `evaluate best-of-n` wrote, named
    after it. `model`: the PRM, by default the one of the run; `aggregate`: how rewards come from step scores, by
    default their minimum. Questions without any answer are left out: nothing is elected there.

    Raises `RecordInvalid` as `read_judged`, for an aggregate of rewards given as numbers, and if no question has an
    answer.
    """
    questions = judging.read_judged(run)
    if all(question.scores is not None for question in questions):
        aggregate = aggregate or "min"
        questions = [question.rewarded(aggregate) for question in questions]
    elif aggregate is not None:
        reason = f"its rewards are numbers, not step scores: {aggregate} can't be taken of them"
        raise RecordInvalid(str(run), 0, reason)
    electable = [question for question in questions if any(name is not None for name in question.classes)]
    if not electable:
        raise RecordInvalid(str(run), 0, "no candidate of any question has an answer")
    made_by = json.loads((run / "candidates.config.json").read_text("utf-8"))["model"]
    statistics = [asdict(Statistics.of(question.classes, question.rewards)) for question in electable]
    known = {name: [row[name] for row in statistics if row[name] is not None] for name in statistics[0]}
    return VoteCalibration(
        pool=run.resolve().name,
        date=date,
        confidence=CONFIDENCE,
        model=model or (None if made_by == judging.GIVEN else made_by),
        aggregate=aggregate,
        terms=DEFAULTS.model_dump(),
        elections={strategy: elections(electable, strategy) for strategy in takeable(electable)},
        ranges={name: (min(values), max(values)) for name, values in known.items() if values},
    )


def elections(questions: Iterable[JudgedCandidates], strategy: Strategy) -> list[Election]:
    """The vote's elections: their certainty, and whether the answer is right. Questions are left out of which no
    candidate with an answer has the reward or confidence that the vote needs: a server elects nothing there."""
    made = []
    for question in questions:
        signal, values = needed_signal(strategy, question.classes), question.values(strategy)
        if signal != "none" and of_answered(question.classes, values) is None:
            continue
        rewards = rewards_used(strategy, question.classes, question.rewards, DEFAULTS)
        confidences = values if VOTES[strategy].signal == "confidence" else None
        result = decide(strategy, question.classes, rewards, confidences=confidences)
        value = certainty(question.classes, rewards, result.classes[0].members)
        made.append((value, question.correct[result.solution_index]))
    return made
