"""What a vote is made of; every file beside this one defines one, as its `VOTE`."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from unprm.types import AnswerGroup, DecidedBy

Signal = Literal["none", "reward", "confidence", "preference"]
"""What a vote takes of the candidates beside their answers: rewards of a PRM, confidences of their own model, or the
preference of a model that compares them."""

Values = Sequence[float | None]
"""One value per candidate, None for a candidate without one."""


TIE = 1e-9
"""Scores that differ by at most this are tied."""


class Terms(BaseModel):
    """The settings of a vote: fields with default, bounds and description. A name means the same in every vote."""

    model_config = ConfigDict(extra="forbid")


class Tally(NamedTuple):
    """The input of a vote. `total`: N, all candidates. `terms`: settings, of this vote and maybe others. `values`: of
    the vote's signal, None if it takes none, or frequency decides."""

    groups: Sequence[AnswerGroup]
    total: int
    terms: Any
    values: Values | None = None

    @property
    def counts(self) -> list[int]:
        return [group.count for group in self.groups]

    @property
    def grouped(self) -> list[list[float]]:
        """The values of each group's members, as far as there are any."""
        return [known(group.members, self.values or ()) for group in self.groups]


Rule = Callable[[Tally], Sequence[float | None]]
"""The score of each group, None where it can't be elected; the highest wins. WRF also notes normalized parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A vote: its rule and its words.

    `order`: votes are listed by it, then by name. `terms`: its settings; `grid`: values worth trying of each, the
    default first. `frequency_decides`: whether frequency alone decides, so that no signal is needed. `settled`: given
    the candidates so far and the number still to come, whether they provably can't change the winner; False where that
    is not easily seen. `decided_by`: what a result is called that frequency did not decide: `reward` if the highest
    single reward wins.

    `summary`: what it elects, without a full stop; `description`: how, in sentences; `score_name`: what its score is.
    `why_frequency` and `why_reward`: the page's reasons for a result that frequency, or a single reward, decided.
    """

    name: str
    order: int = 100
    signal: Signal
    decided_by: DecidedBy
    score: Rule
    frequency_decides: Callable[[Tally], bool] = lambda tally: False
    settled: Callable[[Tally, int], bool] = lambda tally, left: False
    terms: type[Terms] = Terms
    grid: Mapping[str, Sequence[float | str]] = field(default_factory=dict)
    title: str
    summary: str
    description: str
    score_name: str
    why_frequency: str = "no answer has more"
    why_reward: str = "The highest reward decides"

    @property
    def needs_problem(self) -> bool:
        """Whether two different answers always take rewards, so that a request has to say how to get them."""
        clear = Tally([AnswerGroup("", 99, [*range(99)]), AnswerGroup("", 1, [99])], 100, self.terms())
        return self.signal == "reward" and not self.frequency_decides(clear)


def by_frequency(tally: Tally) -> list[float | None]:
    return [float(count) for count in tally.counts]


def by_highest(tally: Tally) -> list[float | None]:
    """The highest value in each group, 0 in one without any."""
    return [None if tally.values is None else max(values, default=0.0) for values in tally.grouped]


def by_sum(tally: Tally) -> list[float | None]:
    """The sum of the values in each group; `math.fsum` makes it independent of the order of the candidates."""
    return [None if tally.values is None else math.fsum(values) for values in tally.grouped]


def known(members: Iterable[int], values: Values) -> list[float]:
    return [value for index in members if (value := values[index]) is not None] if values else []


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def two_highest(values: Sequence[float]) -> tuple[float, float]:
    """The two highest values; 0 for one that is missing."""
    first, second = sorted([*values, 0.0, 0.0], reverse=True)[:2]
    return first, second
