"""A judge's self-test at the start: it must tell right steps from wrong ones, and give the same answer twice."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from unprm.engines.judge.engine import JudgeEngine
from unprm.errors import ModelInvalid
from unprm.steps import THRESHOLD
from unprm.types import Encoded, SelfTest, StepScores

logger = logging.getLogger(__name__)

TOLERANCE = 0.1
"""Largest difference between scores of the same step; servers that batch compute slightly differently each time."""
MISTAKES = 1
"""Maximum number of steps that a judge may misjudge."""


class Question(NamedTuple):
    """A problem, right steps before the last one, and a right and a wrong last step."""

    problem: str
    steps: tuple[str, ...]
    right: str
    wrong: str


QUESTIONS = (
    Question(
        "A baker has 24 rolls, sells 9 of them and bakes 15 more. How many rolls are there now?",
        ("After the sale there are 24 - 9 = 15 rolls.",),
        "Then there are 15 + 15 = 30 rolls.",
        "Then there are 15 + 15 = 25 rolls.",
    ),
    Question(
        "Tom reads 12 pages a day. How many days does he need for 180 pages?",
        (),
        "He needs 180 / 12 = 15 days.",
        "He needs 180 / 12 = 18 days.",
    ),
    Question(
        "There are 6 boxes with 8 pens each. 10 pens are given away. How many pens are left?",
        ("The boxes hold 6 * 8 = 48 pens.",),
        "So 48 - 10 = 38 pens are left.",
        "So 48 + 10 = 58 pens are left.",
    ),
    Question(
        "A train goes 150 km in 2 hours. How far does it go in 5 hours at the same speed?",
        ("Its speed is 150 / 2 = 75 km per hour.",),
        "In 5 hours it goes 75 * 5 = 375 km.",
        "In 5 hours it goes 75 + 5 = 80 km.",
    ),
)
"""Slips of arithmetic, and wrong operations whose arithmetic is right."""
FEW = 2
"""Questions to a judge that writes its checks, which are a hundred times as long as a verdict."""


def self_test(engine: JudgeEngine, *, sampled: bool, few: bool) -> SelfTest:
    """Scores last steps, and those of one question again in the other order. `sampled`: scores are means over samples,
    and differ; `few`: only `FEW` questions. Raises `ModelInvalid` if scores of a step differ or lack, or if more than
    `MISTAKES` lie on the wrong side of the threshold."""
    asked = [
        [engine.format.encode(question.problem, (*question.steps, last)) for last in (question.right, question.wrong)]
        for question in QUESTIONS[: FEW if few else None]
    ]
    scores = [_read(engine.score(pair)) for pair in asked]  # one after the other: each has the time of a batch
    rights, wrongs = ([pair[place] for pair in scores] for place in (0, 1))
    logger.info("self-test: right steps score %s, wrong ones %s", _listed(rights), _listed(wrongs))
    mistakes = sum(score < THRESHOLD for score in rights) + sum(score >= THRESHOLD for score in wrongs)
    if mistakes > MISTAKES:
        raise ModelInvalid(
            f"in the self-test right steps score {_listed(rights)} and wrong ones {_listed(wrongs)}; all but "
            f"{MISTAKES} must lie on their side of {THRESHOLD:g}: it is not a judge"
        )
    return _same_again(engine, asked[1], scores[1], 1.0 if sampled else TOLERANCE)


def _same_again(engine: JudgeEngine, pair: Sequence[Encoded], before: Sequence[float], tolerance: float) -> SelfTest:
    again = engine.score(pair[::-1])
    difference = max(abs(one - other) for one, other in zip(before, reversed(_read(again)), strict=True))
    if difference > tolerance:
        raise ModelInvalid(f"in the self-test scores of the same step differ by {difference:.2f}")
    cached = sum(scored.computed for scored in again) < sum(scored.tokens for scored in again)
    return SelfTest(difference, tolerance, cached=cached)


def _read(scores: Sequence[StepScores]) -> list[float]:
    if any(outcome.missing for outcome in scores):
        raise ModelInvalid(
            "in the self-test the judge gives no verdict that can be read; a reasoning model needs --judge-readout "
            "chain, and tokens enough for it (--judge-tokens)"
        )
    return [outcome.values[-1] for outcome in scores]


def _listed(scores: Sequence[float]) -> str:
    return ", ".join(f"{score:.2f}" for score in scores)
