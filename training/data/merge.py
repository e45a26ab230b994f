"""Joins annotated solutions, for example of several models, into a data set in the published layout.

python -m training merge runs/mini/annotated.jsonl --output runs/mini/dataset
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from training import resumable

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
    rows: dict[tuple[str, ...], dict[str, object]] = {}
    models: Counter[tuple[str, bool]] = Counter()
    count = 0
    for path in annotated:
        for record in sorted(resumable.read(path, "labels"), key=lambda record: record["id"]):
            count += 1
            key = (record["problem"], *record["steps"])
            if key in rows:
                continue
            models[record["model"], record["correct"]] += 1
            rows[key] = {
                "prompt": record["problem"],
                "answer": record["gold"],
                "completions": record["steps"],
                "label": record["labels"],
            }
    place = output / "data" / "train.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(".partial")
    partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.values()), "utf-8")
    partial.replace(place)
    (output / "README.md").write_text(_card(output.name, rows.values(), models, count - len(rows), annotated), "utf-8")
    return Merged(len(rows), count - len(rows))


def push(output: Path, repository: str) -> None:
    """Uploads the folder to the hub as a data set, with the token from the environment."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, repo_type="dataset", exist_ok=True)
    api.upload_folder(folder_path=str(output), repo_id=repository, repo_type="dataset")


def _card(
    name: str,
    rows: Iterable[dict[str, object]],
    models: Counter[tuple[str, bool]],
    duplicates: int,
    annotated: Sequence[Path],
) -> str:
    kept = list(rows)
    names = sorted({model for model, _ in models})
    table = [
        f"| {model} | {models[model, True] + models[model, False]} | {models[model, True]} | {models[model, False]} |"
        for model in names
    ]
    configs = [json.loads(resumable.config_path(path).read_text("utf-8")) for path in annotated]
    return _CARD.format(
        name=name,
        solutions=len(kept),
        questions=len({str(row["prompt"]) for row in kept}),
        steps=sum(len(labels) for row in kept if isinstance(labels := row["label"], list)),
        right=sum(count for (_, correct), count in models.items() if correct),
        duplicates=duplicates,
        models="\n".join(table),
        configs=json.dumps(configs, ensure_ascii=False, indent=2),
    )
