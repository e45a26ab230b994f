"""Calibrates when an elected answer is accepted at a given risk, from candidates whose answers are known."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from statistics import mode
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from unprm.election.acceptance import (
    CONFIDENCE,
    ElectionRecord,
    JudgedElection,
    Statistics,
    VoteCalibration,
    certainty,
    rewards_used,
)
from unprm.election.adaptive import sampled
from unprm.election.decide import decide, drop_unanswered, needed_signal
from unprm.errors import RecordInvalid
from unprm.types import Aggregate
from unprm.votes.registry import DEFAULTS, VOTES, Strategy

from .. import resumable
from . import judging
from .best_of_n import takeable
from .judging import JudgedCandidates


def calibrated(
    run: Path,
    date: str,
    model: str | None = None,
    aggregate: Aggregate | None = None,
    stopping: Mapping[str, Any] = MappingProxyType({}),
) -> VoteCalibration:
    """The calibration of all votes that the candidates in a directory allow, which `evaluate best-of-n` wrote, named
    after it. `model`: the PRM, by default the one of the run; `aggregate`: how rewards come from step scores, by
    default their minimum; `stopping`: `stable` and `round` of a gateway that samples the candidates, in their order,
    only until a vote is stable. Questions without any stated answer are left out, as a server's votes on them are.

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
    electable = [each for each in questions if each.stated and any(name is not None for name in each.classes)]
    if not electable:
        raise RecordInvalid(str(run), 0, "no candidate of any question states an answer")
    stopping = stopping or {}
    stopped = {
        strategy: [_stopped(each, strategy, **stopping) for each in electable] for strategy in takeable(electable)
    }
    made_by = resumable.config_of(run / "candidates.jsonl")["model"]
    return VoteCalibration(
        pool=run.resolve().name,
        date=date,
        confidence=CONFIDENCE,
        model=model or (None if made_by == judging.GIVEN else made_by),
        aggregate=aggregate,
        terms={**DEFAULTS.model_dump(), **stopping},
        elections={strategy: elections(questions, strategy) for strategy, questions in stopped.items()},
        ranges=_ranges(Statistics.from_candidates(each.classes, each.rewards) for each in chain(*stopped.values())),
    )


def _stopped(
    question: JudgedCandidates, strategy: Strategy, stable: float | None = None, round: int = 1
) -> JudgedCandidates:
    """The candidates that are sampled before the vote is stable; all if `stable` is None."""
    if stable is None:
        return question
    values = None if VOTES[strategy].signal == "none" else question.values(strategy)
    first = slice(sampled(strategy, question.classes, values, stable, round))
    names = ("classes", "correct", "rewards", "scores", "confidences")
    return replace(question, **{name: (kept := getattr(question, name)) and kept[first] for name in names})


def recalibrated(journal: Path, date: str, callers: Sequence[str] = ()) -> tuple[VoteCalibration, Counter[str], int]:
    """The calibration of the votes in a server's journal whose answers were judged by these callers, by default by all;
    how many of them each caller judged; and how many are left out, since their model or settings are not those of the
    most. Raises `RecordInvalid` if there are none."""
    try:
        with closing(sqlite3.connect(f"{journal.resolve().as_uri()}?mode=ro", uri=True)) as database:
            query = "SELECT caller, election, correct FROM requests WHERE correct IS NOT NULL ORDER BY id"
            rows = [row for row in database.execute(query) if not callers or row[0] in callers]
    except sqlite3.Error as error:
        raise RecordInvalid(str(journal), 0, f"it is not an unprm journal ({error})") from None
    made = [(caller, TypeAdapter(ElectionRecord).validate_json(text), bool(correct)) for caller, text, correct in rows]
    stated = [each for each in made if each[1].compared_as == "stated"]
    if not stated:
        whose = " by these callers" if callers else ""
        raise RecordInvalid(
            str(journal), 0, f"no vote on stated answers in it was judged{whose}: its callers do so by POST /feedback"
        )
    given: dict[str, list[Any]] = {}
    for _, record, _ in stated:
        for name, value in record.settings.items():
            given.setdefault(name, []).append(value)
    names = {name: mode(values) for name, values in given.items()}
    alike = [each for each in stated if each[1].settings.items() <= names.items()]
    by_vote: dict[Strategy, list[JudgedElection]] = {}
    for _, record, correct in alike:
        by_vote.setdefault(record.strategy, []).append((record.certainty, correct))
    calibration = VoteCalibration(
        pool=journal.name,
        date=date,
        confidence=CONFIDENCE,
        model=names.pop("model", None),
        aggregate=names.pop("aggregate", None),
        terms=names,
        elections=by_vote,
        ranges=_ranges([record.statistics for _, record, _ in alike]),
    )
    return calibration, Counter(caller for caller, _, _ in alike), len(made) - len(alike)


def _ranges(statistics: Iterable[Statistics]) -> dict[str, tuple[float, float]]:
    rows = list(map(asdict, statistics))
    known = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {name: (min(values), max(values)) for name, values in known.items() if values}


def elections(questions: Iterable[JudgedCandidates], strategy: Strategy) -> list[JudgedElection]:
    """The vote's elections: their certainty, and whether the answer is right. Questions are left out of which no
    candidate with an answer has the reward or confidence that the vote needs: a server elects nothing there."""
    made = []
    for question in questions:
        signal, values = needed_signal(strategy, question.classes), question.values(strategy)
        if signal != "none" and drop_unanswered(question.classes, values) is None:
            continue
        rewards = rewards_used(strategy, question.classes, question.rewards, DEFAULTS)
        confidences = values if VOTES[strategy].signal == "confidence" else None
        result = decide(strategy, question.classes, rewards, values=confidences)
        value = certainty(question.classes, rewards, result.candidates[0].members)
        made.append((value, question.correct[result.solution_index]))
    return made
