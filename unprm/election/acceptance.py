"""Whether an elected answer can be accepted at a given risk, by a calibration on questions whose answers are known.

An election's *certainty* is w · r in [0, 1]: w the share of the elected class in the sum of all rewards, r the highest
reward in it; without rewards its share of all candidates. An answer is accepted if its certainty reaches a threshold.

The threshold for a risk α and a confidence 1 - δ is found by Learn then Test (Angelopoulos et al., 2021,
arXiv 2110.01052) with fixed-sequence testing. Let n(λ) be the calibration questions with a certainty of at least λ, and
e(λ) those of them with a wrong answer. From the highest certainty down, λ stands as long as

    P(Bin(n(λ), α) ≤ e(λ)) ≤ δ

beginning with the first λ for which n(λ) is large enough to pass at all; the threshold is the last λ that stands. With
probability 1 - δ over the calibration questions, at most the share α of the accepted answers is then wrong on questions
exchangeable with them, provided that answers of lower certainty are not more often right: a vote is not calibrated if
its elections speak against that (see `disorder`). An answer whose candidates lie outside the range of the calibration's
is not accepted: nothing is known of it.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from unprm import validation_messages
from unprm.election.decide import needed_signal
from unprm.errors import InvalidRequest, RecordInvalid
from unprm.types import Aggregate, ComparedAs
from unprm.votes.registry import VOTES, Strategy
from unprm.votes.vote import Values
from unprm.wire import AppliedCalibration, Candidates, Election, RiskTerms, VoteCalibrationOut

CONFIDENCE = 0.9
"""Probability over the calibration questions that the risk is kept, unless the calibration says otherwise."""
DOUBT = 0.05
"""Probability at most with which a vote is not calibrated though its certainties are in order."""
STOPPING = ("stable", "round")
"""Settings of an election that may stop before its budget is used up."""
COMMAND = "unprm evaluate calibrate-votes"
"""Makes a calibration."""
JudgedElection = tuple[float, bool]
"""The certainty of an election, and whether its answer was right."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """An election's candidates: their number, the `share` of the most frequent answer, the `highest_reward`, if any."""

    candidates: float
    share: float
    highest_reward: float | None

    @classmethod
    def from_candidates(cls, classes: Sequence[int | None], rewards: Values | None) -> "Statistics":
        """`classes`, `rewards`: as in `decide`; at least one candidate."""
        answers = [name for name in classes if name is not None]
        return cls(
            candidates=len(classes),
            share=max(map(answers.count, answers), default=0) / len(classes),
            highest_reward=max((reward for reward in rewards or () if reward is not None), default=None),
        )


@dataclass(frozen=True, eq=False)  # by identity, so that thresholds are kept
class VoteCalibration:
    """Elections on questions with known answers. `confidence`: with which a risk is kept; `model`: of the rewards, None
    if they were given; `aggregate`: None if they did not come from step scores; `terms`: the votes' settings;
    `elections`: by vote; `ranges`: lowest and highest value of each field of `Statistics`."""

    pool: str
    date: str
    confidence: float
    model: str | None
    aggregate: Aggregate | None
    terms: Mapping[str, Any]
    elections: Mapping[Strategy, Sequence[JudgedElection]]
    ranges: Mapping[str, tuple[float, float]]

    @lru_cache(maxsize=1024)  # noqa: B019 - a calibration lives as long as its server
    def threshold(self, strategy: Strategy, risk: float) -> float | None:
        """The lowest certainty at which answers are accepted at a risk in (0, 1); None if none is. Raises `KeyError`
        for a vote that was not calibrated."""
        return threshold(self.elections[strategy], risk, self.confidence)

    @lru_cache(maxsize=64)  # noqa: B019 - as above
    def disorder(self, strategy: Strategy) -> str | None:
        return disorder(self.elections[strategy])

    def outside(self, statistics: Statistics) -> list[str]:
        values = asdict(statistics)
        return [
            name
            for name, (low, high) in self.ranges.items()
            if values[name] is not None and not low <= values[name] <= high
        ]

    def mismatch(self, strategy: Strategy, terms: BaseModel, model: str | None, aggregate: Aggregate) -> str | None:
        """Why the calibration does not hold for a vote, in words; None if it does. `model`: the PRM that scores, None
        if scores were sent."""
        if strategy not in self.elections:
            return f"is of {', '.join(self.elections)}, and the vote is {strategy}"
        if (reason := self.disorder(strategy)) is not None:
            return f"can't be relied on for {strategy}: {reason}"
        known = {**self.terms, "aggregate": self.aggregate, "model": self.model or "given rewards"}
        settings = _settings(strategy, terms, model=model, aggregate=aggregate)
        if (stops := _stops(settings)) != (calibrated := _stops(self.terms)):
            return f"is of votes that {calibrated}, and the vote is one of those that {stops}"
        for name, sent in settings.items():
            unknown = (name == "model" and sent is None) or (name == "aggregate" and self.aggregate is None)
            if sent != known.get(name) and not unknown:
                return f"is of {name} {known.get(name)}, and the vote has {sent}"
        return None

    @property
    def about(self) -> VoteCalibrationOut:
        problems = max(map(len, self.elections.values()))
        return VoteCalibrationOut(
            pool=self.pool, problems=problems, date=self.date, confidence=self.confidence, model=self.model
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n", "utf-8")


@dataclass(frozen=True, slots=True)
class ElectionRecord:
    """What is kept of an election until its answer is known to be right. `settings`: what a calibration must have in
    common; `accept`, `risk`: None without a risk; `answer`: None where texts are not kept."""

    strategy: Strategy
    compared_as: ComparedAs
    certainty: float
    statistics: Statistics
    settings: dict[str, Any]
    accept: bool | None
    risk: float | None
    answer: str | None

    @classmethod
    def from_election(
        cls, election: Election, answer: str, classes: Sequence[int | None], rewards: Values | None, terms: BaseModel
    ) -> "ElectionRecord":
        """`answer`: the elected one, whole; `classes`, `rewards`: as in `decide`."""
        used = rewards_used(election.strategy, classes, rewards, terms)
        value = certainty(classes, used, election.candidates[0].members)
        statistics = Statistics.from_candidates(classes, used)
        return cls(election.strategy, election.compared_as, value, statistics, {}, None, None, answer)


OnElection = Callable[[ElectionRecord], dict[str, Any]]
"""Is called with an election that was held, and gives further fields of its outcome."""


class Acceptance(NamedTuple):
    """A calibration at a risk, for the votes that it fits."""

    calibration: VoteCalibration
    risk: float
    strategies: Collection[Strategy]

    def judged(self, record: ElectionRecord) -> dict[str, Any]:
        """`accept` and `calibration` of an election's outcome; nothing for one that was not calibrated."""
        if record.compared_as != "stated" or record.strategy not in self.strategies:
            return {}
        lowest = self.calibration.threshold(record.strategy, self.risk)
        outside = self.calibration.outside(record.statistics)
        applied = AppliedCalibration(
            **dict(self.calibration.about),
            strategy=record.strategy,
            risk=self.risk,
            certainty=record.certainty,
            threshold=lowest,
            within=not outside,
            outside=outside,
        )
        return {"accept": lowest is not None and record.certainty >= lowest and not outside, "calibration": applied}


def on_election(
    calibration: VoteCalibration | None,
    request: Candidates,
    strategies: Sequence[Strategy],
    model: str,
    note: Callable[[ElectionRecord], None] | None = None,
) -> OnElection | None:
    """What follows an election: it is judged at the request's risk, and noted; None if neither. `model`: the PRM that
    scores. Raises `InvalidRequest` as `acceptance`."""
    risk = request.risk if isinstance(request, RiskTerms) else None
    scored_by: dict[str, Any] = {"model": None if request.has_all_scores else model, "aggregate": request.aggregate}
    judge = None if risk is None else acceptance(calibration, risk, strategies, request, **scored_by)
    if judge is None and note is None:
        return None

    def follow(record: ElectionRecord) -> dict[str, Any]:
        fields = {} if judge is None else judge.judged(record)
        if note is not None:
            settings = _settings(record.strategy, request, **scored_by)
            note(replace(record, settings=settings, accept=fields.get("accept"), risk=risk if fields else None))
        return fields

    return follow


def acceptance(
    calibration: VoteCalibration | None,
    risk: float,
    strategies: Sequence[Strategy],
    terms: BaseModel,
    model: str | None,
    aggregate: Aggregate,
    pointer: str = "/risk",
) -> Acceptance:
    """How answers of these votes are judged. Raises `InvalidRequest` without a calibration that fits a vote."""
    if calibration is None:
        raise InvalidRequest(
            f"risk needs a calibration of votes, and none is loaded: make one by `{COMMAND}` and serve it with "
            "--vote-calibration FILE",
            pointer,
        )
    reasons = {strategy: calibration.mismatch(strategy, terms, model, aggregate) for strategy in strategies}
    fitting = [strategy for strategy, reason in reasons.items() if reason is None]
    if not fitting:
        raise InvalidRequest(f"the calibration {next(iter(reasons.values()))}", pointer)
    return Acceptance(calibration, risk, fitting)


def read(path: Path) -> VoteCalibration:
    """A calibration that `unprm evaluate calibrate-votes` wrote. Raises `RecordInvalid` and `OSError`."""
    try:
        return TypeAdapter(VoteCalibration).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RecordInvalid(
            str(path), 1, f"{place}: {validation_messages.message([first])}; make it by `{COMMAND}`"
        ) from error


def _settings(strategy: Strategy, terms: BaseModel, **scored_by: str | None) -> dict[str, Any]:
    """The settings that a vote takes; if it takes rewards, also what these are `scored_by`."""
    settings = {name: getattr(terms, name) for name in VOTES[strategy].terms.model_fields}
    stops = getattr(terms, "stable", None) is not None
    settings |= {name: getattr(terms, name) if stops else None for name in STOPPING}
    return settings | scored_by if VOTES[strategy].signal == "reward" else settings


def _stops(settings: Mapping[str, Any]) -> str:
    if settings.get("stable") is None:
        return "take all candidates"
    return f"stop early (stable {settings['stable']:g}, round {settings['round']})"


def fewest(risk: float, confidence: float) -> int:
    """The fewest questions, all of them right, by which any answer can be accepted."""
    return math.ceil(math.log(1 - confidence) / math.log1p(-risk))


def rewards_used(
    strategy: Strategy, classes: Sequence[int | None], rewards: Values | None, terms: BaseModel
) -> Values | None:
    """The rewards if the vote needs them, else None: a server computes them only then."""
    return rewards if needed_signal(strategy, classes, terms) == "reward" else None


def certainty(classes: Sequence[int | None], rewards: Values | None, members: Sequence[int]) -> float:
    """The certainty of an election, by frequencies if no candidate with an answer has a reward. `members`: of the
    elected class."""
    known = {k: rewards[k] or 0.0 for k, name in enumerate(classes) if name is not None} if rewards is not None else {}
    total = sum(known.values())
    if not total:
        return len(members) / len(classes)
    return sum(known[k] for k in members) / total * max(known[k] for k in members)


def threshold(elections: Iterable[JudgedElection], risk: float, confidence: float) -> float | None:
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


def error_interval(wrong: int, count: int) -> tuple[float, float]:
    """The exact 95 % interval (Clopper and Pearson) of a share of which `wrong` of `count` were found, in [0, 1]."""

    def highest(found: int) -> float:
        """The share at which at most so many are found with a probability of 2.5 %, which falls with it."""
        low, high = found / count, 1.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if _at_most(found, count, middle) > 0.025 else (low, middle)
        return high

    return 1 - highest(count - wrong), highest(wrong)


def disorder(elections: Iterable[JudgedElection]) -> str | None:
    """How elections speak against the condition of this module's rule, in words; None if they don't: quarters by
    certainty are compared by Fisher's exact test, one-sided, at `DOUBT` over all pairs."""
    quarters: list[list[bool]] = [[]]
    ordered = sorted(elections, key=lambda each: -each[0])
    for _, group in groupby(ordered, key=lambda each: each[0]):
        if 4 * sum(map(len, quarters)) >= len(quarters) * len(ordered):
            quarters.append([])
        quarters[-1] += [right for _, right in group]
    pairs = list(combinations(quarters, 2))
    for higher, lower in pairs:
        if len(pairs) * _as_right_by_chance(higher, lower) <= DOUBT:
            shares = [f"{100 * group.count(True) / len(group):.0f} % of {len(group)}" for group in (lower, higher)]
            return f"its answers of lower certainty are more often right ({shares[0]}, against {shares[1]} above them)"
    return None


def _as_right_by_chance(higher: Sequence[bool], lower: Sequence[bool]) -> float:
    """The probability that at least as many are right in the lower group if all are as likely to be."""
    right, found = [*higher, *lower].count(True), lower.count(True)
    return math.fsum(
        math.exp(
            _log_choose(len(lower), k)
            + _log_choose(len(higher), right - k)
            - _log_choose(len(lower) + len(higher), right)
        )
        for k in range(max(found, right - len(higher)), min(right, len(lower)) + 1)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _at_most(wrong: int, count: int, risk: float) -> float:
    """P(Bin(count, risk) ≤ wrong); its terms by logarithms, since binomial coefficients outgrow floats."""
    log_wrong, log_right, total = math.log(risk), math.log1p(-risk), 0.0
    for k in range(wrong, -1, -1):
        term = math.exp(_log_choose(count, k) + k * log_wrong + (count - k) * log_right)
        total += term
        if k <= risk * count and term <= total * 1e-17:
            break  # those below are smaller still
    return total
