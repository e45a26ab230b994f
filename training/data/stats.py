"""Cost and quality of annotated data: the paper's tables of cost and of data set statistics, and, for problems of the
embedded model's domain, how often the labels are right."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.table import Table

from training import resumable
from training.evaluate.metrics import percent
from training.resumable import Record
from unprm.mini.checker import first_error, labels
from unprm.mini.domain import parse


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a file of annotated solutions. `verified`: steps verified by rollouts. `samples`, `tokens`: rollouts
    drawn and their tokens, counted once per shared prefix. `tau_*`: the same for the questions alone."""

    solutions: int
    wrong: int
    unresolved: int
    verified: int
    samples: int
    tokens: int
    tau_samples: int
    tau_tokens: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Statistics of one sampling model: number of labelled solutions; mean number of verified steps of those that were
    searched (None if there are none); ranks of the steps found (None if the search has no ranks)."""

    model: str
    solutions: int
    verified: float | None
    ranks: "Ranks | None"


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of the steps found, in order of falling Δu: 0 is the step tried first (paper, section 6).

    `mean`: over the solutions that have a rank; `without`: share of the searched solutions without a rank, as no tried
    step was below τ; `with_last`: mean over all solutions where a step was tried, with the last rank tried in place of
    a missing one, as in the authors' program. None if there is no such solution.
    """

    COLUMNS: ClassVar = ("rank of the step found", "share without one", "mean rank with the last tried")

    mean: float | None
    without: float | None
    with_last: float | None

    def cells(self) -> tuple[str, ...]:
        """The values as text, in the order of `COLUMNS`."""
        return _shown(self.mean), "–" if self.without is None else percent(self.without), _shown(self.with_last)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Labels of the `wrong` solutions against the exact checker, as shares: `first`, the step found is the first wrong
    one; `at_or_after`, that or a later one; `steps`, right ones among the step labels; `resolved`, labelled at all."""

    COLUMNS: ClassVar = ("first error found", "at or after it", "step labels right", "labelled")

    wrong: int
    first: float
    at_or_after: float
    steps: float
    resolved: float

    def shares(self) -> tuple[float, ...]:
        """All shares, in the order of `COLUMNS`."""
        return self.first, self.at_or_after, self.steps, self.resolved


def unresolved_path(annotated: Path) -> Path:
    """Path of the file of the solutions that could not be labelled."""
    return annotated.with_suffix(".unresolved.jsonl")


def load(annotated: Path) -> list[Record]:
    """All solutions of a run, labelled and unresolved."""
    return [*resumable.read(annotated, "labels"), *resumable.read(unresolved_path(annotated))]


def costs(annotated: Path) -> Costs:
    """The costs of a run."""
    records = load(annotated)
    questions = list(resumable.read(annotated.with_suffix(".questions.jsonl")))
    shared = json.loads(resumable.config_path(annotated).read_text("utf-8"))["share_prefixes"]
    drawn: dict[object, Record] = {}
    for record in records:
        for tried in record["tried"]:
            prefix = tried["prefix"] if shared else (record["id"], tried["prefix"])
            drawn[prefix] = max(drawn.get(prefix, tried), tried, key=lambda trial: int(trial["samples"]))
    return Costs(
        solutions=len(records),
        wrong=sum(not record["correct"] for record in records),
        unresolved=sum("reason" in record for record in records),
        verified=sum(record["verified"] for record in records),
        samples=sum(tried["samples"] for tried in drawn.values()),
        tokens=sum(tried["tokens"] for tried in drawn.values()),
        tau_samples=sum(question["samples"] for question in questions),
        tau_tokens=sum(question["tokens"] for question in questions),
    )


def by_model(records: Iterable[Record]) -> list[ModelRow]:
    """The paper's table of the data set's statistics."""
    models: dict[str, list[Record]] = {}
    for record in records:
        models.setdefault(record["model"], []).append(record)
    return [
        ModelRow(
            model,
            sum("labels" in record for record in records),
            _mean([record["verified"] for record in records if "labels" in record and record["tried"]]),
            ranks(records),
        )
        for model, records in sorted(models.items())
    ]


def ranks(records: Iterable[Record]) -> Ranks | None:
    """Ranks of the steps found in a run's solutions, labelled and unresolved. None if no solution was searched in
    order of falling Δu."""
    searched = [record for record in records if "rank" in record]
    if not searched:
        return None
    found = [record["rank"] for record in searched if record["rank"] is not None]
    last = [len(record["tried"]) - 1 for record in searched if record["rank"] is None and record["tried"]]
    return Ranks(_mean(found), 1 - len(found) / len(searched), _mean(found + last))


def agreement(records: Sequence[Record]) -> Agreement | None:
    """Agreement of the labels of wrong solutions with the exact checker; None if there are no wrong solutions, or the
    problems are not of the embedded model's domain."""
    wrong = [record for record in records if not record["correct"]]
    try:
        problems = [parse(record["problem"]) for record in wrong]
    except ValueError:
        return None
    if not wrong:
        return None
    truth = [first_error(problem, record["steps"]) for problem, record in zip(problems, wrong, strict=True)]
    found = [record["labels"].index(False) if "labels" in record else None for record in wrong]
    pairs = list(zip(found, truth, strict=True))
    judged = [
        given == true
        for problem, record in zip(problems, wrong, strict=True)
        if "labels" in record
        for given, true in zip(record["labels"], labels(problem, record["steps"]), strict=True)
    ]
    return Agreement(
        wrong=len(wrong),
        first=_share(step is not None and step == true for step, true in pairs),
        at_or_after=_share(step is not None and true is not None and step >= true for step, true in pairs),
        steps=_share(judged),
        resolved=_share(step is not None for step in found),
    )


def same_outcome(records: Iterable[Record], others: Iterable[Record]) -> float:
    """Share of the wrong solutions that two runs label the same, or that both leave without labels."""
    first, second = ({r["id"]: r.get("labels") for r in run if not r["correct"]} for run in (records, others))
    return _share(second.get(name) == labels for name, labels in first.items())


def tables(annotated: Sequence[Path]) -> list[Table]:
    """The tables of several runs, one row (or one per sampling model) each."""
    cost = Table(title="cost of annotation")
    for name in ("run", "solutions", "wrong", "unresolved", "verified steps", "samples", "tokens", "for τ"):
        cost.add_column(name, justify="left" if name == "run" else "right")
    models = Table(title="labelled solutions by sampling model")
    for name in ("run", "model", "solutions", "verified steps", *Ranks.COLUMNS):
        models.add_column(name, justify="left" if name in ("run", "model") else "right")
    truth = Table(title="labels of wrong solutions against the exact checker")
    for name in ("run", "wrong", *Agreement.COLUMNS):
        truth.add_column(name, justify="left" if name == "run" else "right")
    for path in annotated:
        records, spent = load(path), costs(path)
        numbers = (
            spent.solutions,
            spent.wrong,
            spent.unresolved,
            spent.verified,
            spent.samples,
            spent.tokens,
            spent.tau_samples,
        )
        cost.add_row(path.stem, *(f"{number:,}" for number in numbers))
        for row in by_model(records):
            cells = row.ranks.cells() if row.ranks else ["–"] * len(Ranks.COLUMNS)
            models.add_row(path.stem, row.model, f"{row.solutions:,}", _shown(row.verified), *cells)
        if agreed := agreement(records):
            truth.add_row(path.stem, f"{agreed.wrong:,}", *map(percent, agreed.shares()))
    return [table for table in (cost, models, truth) if table.row_count]


def _share(outcomes: Iterable[bool]) -> float:
    counted = list(outcomes)
    return sum(counted) / len(counted) if counted else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
