"""Joins annotated solutions, for example of several models, into a data set in the published layout.

unprm merge runs/mini/annotated.jsonl --output runs/mini/dataset
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .. import resumable, sources
from ..schema import ResolvedSolution

_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train.jsonl
task_categories: [text-classification]
tags: [process-reward-model, unprm]
---

# {name}

Step labels for solutions of questions with known answers, made without human labels by `unprm`
(uncertainty-driven process reward data). One JSON object per line:

| field | |
|---|---|
| `prompt` | the question |
| `answer` | its known answer |
| `completions` | the steps of a sampled solution |
| `label` | for each step, true as long as the solution is right |

{solutions} solutions of {questions} questions, {steps} steps; {right} of the solutions are right. {duplicates} that
occurred twice were left out. Equal beginnings of solutions have equal labels: {changed} solutions got others than their
search found, and {refuted} wrong ones, whose error lay in the beginning of a right one, were left out.

| sampling model | solutions | right | wrong |
|---|---|---|---|
{models}

Made with:

```json
{configs}
```
"""


@dataclass(frozen=True, slots=True)
class Merged:
    """Numbers of solutions: in a data set, left out as duplicates, with other labels than their search found, and left
    out because their error lay in the beginning of a right one."""

    solutions: int
    duplicates: int
    changed: int
    refuted: int

    def __str__(self) -> str:
        return (
            f"{self.solutions} solutions, {self.duplicates} duplicates left out; so that equal prefixes have equal "
            f"labels, {self.changed} solutions have other labels, and {self.refuted} were left out"
        )


def merge(annotated: Sequence[Path], output: Path) -> Merged:
    """Writes `output/data/train.jsonl` and the card `output/README.md`; `datasets.load_dataset(output)` reads it.

    Of solutions with equal problem and steps, only the first is kept, in the order of the files. Their labels are made
    `consistent`. Raises `RecordInvalid` for a file that `annotate` did not write.
    """
    kept: dict[tuple[str, ...], ResolvedSolution] = {}
    count = 0
    for path in annotated:
        for solution in sorted(sources.read(path, ResolvedSolution), key=lambda solution: solution.id):
            count += 1
            kept.setdefault((solution.problem, *solution.steps), solution)
    solutions = consistent(list(kept.values()))
    merged = Merged(
        solutions=len(solutions),
        duplicates=count - len(kept),
        changed=sum(solution.labels != kept[solution.problem, *solution.steps].labels for solution in solutions),
        refuted=len(kept) - len(solutions),
    )
    rows = (
        {"prompt": s.problem, "answer": s.gold_answer, "completions": s.steps, "label": s.labels} for s in solutions
    )
    card = _card(output.name, solutions, merged, annotated)
    resumable.write_lines(output / "data" / "train.jsonl", rows)
    resumable.replace(output / "README.md", card)
    return merged


def consistent(solutions: Sequence[ResolvedSolution]) -> list[ResolvedSolution]:
    """The solutions, with equal labels for equal prefixes of problem and steps.

    Steps are right up to where a right solution begins with the same; beyond, they are wrong from the first prefix on
    after which the search found some solution to be wrong. A wrong solution without such a prefix is left out: the
    error that was found in it lies where a right solution begins with the same.
    """
    right = {prefix for solution in solutions if solution.correct for prefix in _prefixes(solution)}
    wrong = {_prefixes(solution)[first] for solution in solutions if (first := solution.first_error) is not None}
    made = []
    for solution in solutions:
        errors = [prefix in wrong and prefix not in right for prefix in _prefixes(solution)]
        if solution.correct or any(errors):
            made.append(replace(solution, labels=tuple(not any(errors[: k + 1]) for k in range(len(errors)))))
    return made


def _prefixes(solution: ResolvedSolution) -> list[tuple[str, ...]]:
    """The problem with the first step, with the first two, … with all."""
    return [(solution.problem, *solution.steps[: k + 1]) for k in range(len(solution.steps))]


def _card(name: str, solutions: Sequence[ResolvedSolution], merged: Merged, annotated: Sequence[Path]) -> str:
    models = Counter((solution.model, solution.correct) for solution in solutions)
    table = [
        f"| {model} | {models[model, True] + models[model, False]} | {models[model, True]} | {models[model, False]} |"
        for model in sorted({model for model, _ in models})
    ]
    return _CARD.format(
        name=name,
        **asdict(merged),
        questions=len({solution.problem for solution in solutions}),
        steps=sum(len(solution.labels) for solution in solutions),
        right=sum(solution.correct for solution in solutions),
        models="\n".join(table),
        configs=json.dumps([resumable.config_of(path) for path in annotated], ensure_ascii=False, indent=2),
    )
