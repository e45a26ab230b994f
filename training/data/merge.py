"""Joins annotated solutions, for example of several models, into a data set in the published layout.

unprm merge runs/mini/annotated.jsonl --output runs/mini/dataset
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import resumable, sources
from ..layouts.rows import UnprmRow
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
| `tried` | the steps after which completions were sampled: how many (`samples`), and how many are right (`correct`) |

{solutions} solutions of {questions} questions, {steps} steps; {right} of the solutions are right. {duplicates} that
occurred twice were left out.

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
    """Numbers of solutions in a data set, and of duplicates left out."""

    solutions: int
    duplicates: int


def merge(annotated: Sequence[Path], output: Path) -> Merged:
    """Writes `output/data/train.jsonl` and the card `output/README.md`; `datasets.load_dataset(output)` reads it.

    Of solutions with equal problem and steps, only the first is kept, in the order of the files. Raises
    `RecordInvalid` for a file that `annotate` did not write.
    """
    kept: dict[tuple[str, ...], ResolvedSolution] = {}
    count = 0
    for path in annotated:
        for solution in sorted(sources.read(path, ResolvedSolution), key=lambda solution: solution.id):
            count += 1
            kept.setdefault((solution.problem, *solution.steps), solution)
    solutions, duplicates = list(kept.values()), count - len(kept)
    rows = (UnprmRow(s.problem, s.steps, s.labels, gold_answer=s.gold_answer, tried=s.tried) for s in solutions)
    resumable.write_lines(output / "data" / "train.jsonl", rows)
    (output / "README.md").write_text(_card(output.name, solutions, duplicates, annotated), "utf-8")
    return Merged(len(solutions), duplicates)


def _card(name: str, solutions: Sequence[ResolvedSolution], duplicates: int, annotated: Sequence[Path]) -> str:
    models = Counter((solution.model, solution.correct) for solution in solutions)
    table = [
        f"| {model} | {models[model, True] + models[model, False]} | {models[model, True]} | {models[model, False]} |"
        for model in sorted({model for model, _ in models})
    ]
    return _CARD.format(
        name=name,
        solutions=len(solutions),
        questions=len({solution.problem for solution in solutions}),
        steps=sum(len(solution.labels) for solution in solutions),
        right=sum(solution.correct for solution in solutions),
        duplicates=duplicates,
        models="\n".join(table),
        configs=json.dumps([resumable.config_of(path) for path in annotated], ensure_ascii=False, indent=2),
    )
