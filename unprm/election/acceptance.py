"""Whether an elected answer can be accepted at a given risk, by a calibration on questions whose answers are known.

An election's *certainty* is w · r in [0, 1]: w the share of the elected class in the sum of all rewards, r the highest
reward in it; without rewards its share of all candidates. An answer is accepted if its certainty reaches a threshold.

The threshold for a risk α and a confidence 1 - δ is found by Learn then Test (Angelopoulos et al., 2021,
arXiv 2110.01052) with fixed-sequence testing. Let n(λ) be the calibration questions with a certainty of at least λ, and
e(λ) those of them with a wrong answer. From the highest certainty down, λ stands as long as

    P(Bin(n(λ), α) ≤ e(λ)) ≤ δ

beginning with the first λ for which n(λ) is large enough to pass at all; the threshold is the last λ that stands. With
probability 1 - δ over the calibration questions, at most the share α of the accepted answers is then wrong on questions
exchangeable with them, provided that answers of lower certainty are not more often right.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from unprm.errors import RecordInvalid
from unprm.votes.registry import Strategy
from unprm.votes.vote import Values

CONFIDENCE = 0.9
"""Probability over the calibration questions that the risk is kept, unless the calibration says otherwise."""
Election = tuple[float, bool]
"""The certainty of an election, and whether its answer was right."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of an election's candidates without its truth. `candidates`: their number; `answered`: the share
    that states an answer; `classes`: the number of answers; `mean_reward`: None without rewards."""

    candidates: float
    answered: float
    classes: float
    mean_reward: float | None

    @classmethod
    def of(cls, classes: Sequence[int | None], rewards: Values | None) -> "Statistics":
        """`classes`, `rewards`: as in `decide`; at least one candidate."""
        answers = [each for each in classes if each is not None]
        known = [reward for reward in rewards or () if reward is not None]
        return cls(
            candidates=len(classes),
            answered=len(answers) / len(classes),
            classes=len(set(answers)),
            mean_reward=sum(known) / len(known) if known else None,
        )


@dataclass(frozen=True, slots=True)
class VoteCalibration:
    """Elections on questions with known answers. `pool`: their name; `date`: when it was made, as in 2026-01-31;
    `confidence`: that with which a risk is kept; `elections`: by vote; `ranges`: by field of `Statistics`, the lowest
    and highest value among them."""

    pool: str
    date: str
    confidence: float
    elections: Mapping[Strategy, Sequence[Election]]
    ranges: Mapping[str, tuple[float, float]]

    def threshold(self, strategy: Strategy, risk: float) -> float | None:
        """The lowest certainty at which an answer of this vote is accepted at a risk in (0, 1); None if none is.

        Raises `KeyError` for a vote that was not calibrated.
        """
        return threshold(self.elections[strategy], risk, self.confidence)

    def outside(self, statistics: Statistics) -> tuple[str, ...]:
        """The statistics that lie outside the range of the calibration questions."""
        values = asdict(statistics)
        return tuple(
            name
            for name, (low, high) in self.ranges.items()
            if values[name] is not None and not low <= values[name] <= high
        )

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self)) + "\n", "utf-8")


def read(path: Path) -> VoteCalibration:
    """A calibration that `training evaluate calibrate-votes` wrote. Raises `RecordInvalid` if it is none, `OSError` if
    the file can't be read."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(VoteCalibration).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RecordInvalid(
            str(path), 1, f"{place}: {first['msg']}; make it by `training evaluate calibrate-votes`"
        ) from error


def certainty(classes: Sequence[int | None], rewards: Values | None, members: Sequence[int]) -> float:
    """The certainty of an election. `classes`, `rewards`: as in `decide`; `members`: the indices of the elected class.

    Rewards of candidates without an answer don't count; if none is known, frequencies stand for them.
    """
    known = {k: rewards[k] or 0.0 for k, name in enumerate(classes) if name is not None} if rewards is not None else {}
    total = sum(known.values())
    if not total:
        return len(members) / len(classes)
    return sum(known[k] for k in members) / total * max(known[k] for k in members)


def threshold(elections: Iterable[Election], risk: float, confidence: float) -> float | None:
    """The threshold of this module's rule, None if no answer can be accepted."""
    delta = 1 - confidence
    count = wrong = 0
    found = None
    ordered = sorted(elections, key=lambda each: -each[0])
    for value, group in groupby(ordered, key=lambda each: each[0]):
        rights = [right for _, right in group]
        count, wrong = count + len(rights), wrong + rights.count(False)
        if (1 - risk) ** count > delta:
            continue  # too few to pass even without an error
        if _at_most(wrong, count, risk) > delta:
            break
        found = value
    return found


def _at_most(wrong: int, count: int, risk: float) -> float:
    """P(Bin(count, risk) ≤ wrong)."""
    return sum(math.comb(count, k) * risk**k * (1 - risk) ** (count - k) for k in range(wrong + 1))
