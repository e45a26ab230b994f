"""PRMBench: which steps does a PRM call wrong, by kind of error?

A step is called right if its score is above 0.5. PRMScore is the mean of two F1, of finding right steps and of
finding wrong ones, over all steps of a category, or of all categories. Multi-solutions have no wrong step, so their
PRMScore is the first F1 alone (Song et al., "PRMBench", 2025, and its authors' program). As in that program:

- A number of a wrong step that is beyond the last step is without effect; the solution counts all the same.
- Of several solutions with one id the first counts.
- Solutions that can't be scored don't count.
- Numbers at the beginning of steps (`3. `) are removed. That program also removes `2.` from `2.5`.

Blank steps, 15 of 83,456, are neither scored nor counted. The original solutions are not scored: they serve for the
similarity of scores, which is no part of PRMScore.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field
from rich.console import Console

from unprm.errors import RecordInvalid

from .. import resumable, sources
from ..schema import NonEmpty, Scores
from .metrics import Numbers, Share, in_markdown, read_published, weights
from .scorers import Scorer, score_benchmark

Category = Literal[
    "redundency",
    "circular",
    "counterfactual",
    "step_contradiction",
    "domain_inconsistency",
    "confidence",
    "missing_condition",
    "deception",
    "multi_solutions",
]
"""PRMBench's kinds of errors, as its files spell them."""
CATEGORIES: tuple[Category, ...] = get_args(Category)
WITHOUT_ERRORS = "multi_solutions"
ABBREVIATED = dict(zip(CATEGORIES, ("NR", "NCL", "ES", "SC", "DC", "CI", "PS", "DR", "MS"), strict=True))
"""The authors' names of what resists an error of the category: non-redundancy, non-circular logic, …"""
GROUPS = {"simplicity": CATEGORIES[:2], "soundness": CATEGORIES[2:6], "sensitivity": CATEGORIES[6:]}
THRESHOLD = 0.5
PUBLISHED = read_published("prmbench")
"""PRMScore in percent, overall, by category and by group (the authors' repository, January 2025). There a step is right
for Skywork's PRMs if the score falls by less than 0.05 from the step before."""
_NUMBER = re.compile(r"^(?:Step\s*)?\d+\.\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PrmBenchSolution:
    """A modified solution in PRMBench's layout. `error_steps`: numbers of the wrong steps, from 1."""

    idx: NonEmpty
    category: Annotated[Category, Field(alias="classification")]
    problem: Annotated[NonEmpty, Field(alias="modified_question")]
    process: Annotated[tuple[str, ...], Field(alias="modified_process")]
    error_steps: tuple[Annotated[int, Field(ge=1, strict=True)], ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("modified_process: every step is blank, or there is none")

    @property
    def question(self) -> str:
        """The question that the solution is for; solutions of several categories have the same."""
        return self.idx.removeprefix(f"{self.category}_")

    @property
    def id(self) -> str:
        """Unique in the benchmark, but for solutions that its authors' program leaves out."""
        return f"{self.category}_{self.question}"

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that are not blank, without their numbers (`3. `, `Step 3. `)."""
        return tuple(_NUMBER.sub("", step.strip()) for step in self.process if step.strip())

    @property
    def labels(self) -> tuple[bool, ...]:
        return tuple(k not in self.error_steps for k, step in enumerate(self.process, 1) if step.strip())


Benchmark = Mapping[str, Sequence[PrmBenchSolution]]
"""Solutions by category, only of categories that have any."""


def load_prmbench(source: str) -> Benchmark:
    """The benchmark in a file, in the files of a directory, or in the hub's data set of that name. Raises
    `RecordInvalid` for an invalid record, or if there is none."""
    solutions: dict[str, PrmBenchSolution] = {}
    for solution in sources.read(source, PrmBenchSolution):
        solutions.setdefault(solution.id, solution)
    if not solutions:
        raise RecordInvalid(source, 0, "there is no solution in it")
    by_category = {name: [each for each in solutions.values() if each.category == name] for name in CATEGORIES}
    return {name: of_category for name, of_category in by_category.items() if of_category}


@dataclass(frozen=True, slots=True)
class PrmScores:
    """PRMScore in [0, 1]: overall, with its 95 % bootstrap interval over the questions, by category, and by group of
    categories, the mean of these if all are there. `solutions` count, `unscored` ones don't."""

    overall: Share
    categories: Mapping[str, float]
    groups: Mapping[str, float]
    solutions: int
    unscored: int


def measure(benchmark: Benchmark, scores: Mapping[str, Mapping[str, Scores]]) -> PrmScores:
    counts: dict[str, list[Numbers]] = {}
    by_question: dict[str, Numbers] = {}
    for name, solutions in benchmark.items():
        counts[name] = []
        for solution in solutions:
            if (values := scores[name][solution.id]) is not None:
                counts[name].append(_counts(solution.labels, values))
                by_question[solution.question] = by_question.get(solution.question, 0) + counts[name][-1]
    categories = {
        name: float(prm_score(sum(of_category, np.zeros(3)), name == WITHOUT_ERRORS))
        for name, of_category in counts.items()
    }
    every = np.array([*by_question.values()]).reshape(-1, 3)
    # a question is resampled with its solutions of all categories
    resampled = prm_score(weights(len(every)) @ every) if len(every) else np.zeros(1)
    scored = sum(map(len, counts.values()))
    return PrmScores(
        Share.wilson(float(prm_score(every.sum(axis=0))), float(resampled.var()), max(1, len(every))),
        categories,
        {
            group: sum(categories[name] for name in names) / len(names)
            for group, names in GROUPS.items()
            if categories.keys() >= set(names)
        },
        scored,
        sum(map(len, benchmark.values())) - scored,
    )


def _counts(labels: Sequence[bool], scores: Sequence[float]) -> Numbers:
    """Numbers of right steps called right, of wrong ones called wrong, and of the others, (3,)."""
    right, called = np.array(labels), np.array(scores) > THRESHOLD
    return np.array([(right & called).sum(), (~right & ~called).sum(), (right != called).sum()], dtype=float)


def prm_score(counts: Numbers, without_errors: bool = False) -> Numbers:
    """PRMScore of counts, (…, 3) as above: (…) in [0, 1]; `without_errors`: F1 of right steps alone. An F1 is 0 if none
    is there or found."""
    hits, missed = counts[..., :2], counts[..., 2:]
    f1 = np.divide(2 * hits, 2 * hits + missed, out=np.zeros_like(hits), where=hits > 0)
    made: Numbers = f1[..., 0] if without_errors else f1.mean(axis=-1)
    return made


def evaluate(benchmark: Benchmark, scorer: Scorer, output: Path, console: Console) -> PrmScores:
    """Scores the solutions and writes `output/results.json`; scores are kept as by `score_benchmark`."""
    scores = score_benchmark("prmbench", benchmark, _fields, scorer, output, console)
    result = measure(benchmark, scores)
    record = {"model": scorer.identity.model, "threshold": THRESHOLD, **asdict(result)}
    resumable.write_results(output, record)
    return result


def _fields(solution: PrmBenchSolution) -> dict[str, object]:
    return {"id": solution.id, "problem": solution.problem, "steps": solution.steps, "labels": solution.labels}


def markdown(model: str, result: PrmScores) -> str:
    columns = ["model", "figures", "overall", *ABBREVIATED.values(), *GROUPS]
    shares = [result.categories.get(name) for name in CATEGORIES] + [result.groups.get(group) for group in GROUPS]
    cells = ["–" if share is None else f"{100 * share:.1f}" for share in shares]
    rows = [[Path(model).name, "here", result.overall.in_percent, *cells]]
    rows += [[name, "published", *(f"{score:.1f}" for score in row)] for name, row in PUBLISHED.items()]
    title = f"PRMBench: PRMScore in % of {result.solutions:,} solutions, without {result.unscored} that are too long"
    if missing := [name for name in CATEGORIES if name not in result.categories]:
        title += f", and none of {', '.join(missing)}: published overall figures are of all categories"
    return f"{title}\n\n{in_markdown(columns, rows)}"
