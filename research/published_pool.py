"""A pool of judged candidates as a data set for others: their texts, verdicts and step scores, with a card."""

from pathlib import Path
from typing import Any

from training import resumable, sources
from training.evaluate import judging
from training.evaluate.records import CandidateTexts, JudgedCandidates
from unprm.errors import OutputMismatch, RecordInvalid

_CARD = """---
license: {licence}
configs:
- config_name: default
  data_files:
  - split: test
    path: data/test.parquet
tags: [best-of-n, process-reward-model, unprm]
---

# {name}

{questions} questions with {candidates} candidate solutions, of which {right:.1%} are right. `answer` of a question is
its gold answer. A candidate has its `steps`; the answer that it states, `predicted`, null if none; `correct`, whether
that is the gold answer as mathematics; its `reward`, null if it could not be scored; and its `step_scores`, of
`{model}`: for each step a probability in [0, 1] that all is right so far, null where only rewards are known.

Made by `unprm evaluate best-of-n` and `research publish-pool` of unprm. The questions and solutions keep the
licences of their sources.
"""


def write(run: Path, output: Path, licence: str) -> int:
    """Writes `output/data/test.parquet` and the card `output/README.md` of a directory that `evaluate best-of-n` wrote,
    for `datasets.load_dataset(output)`; returns the number of questions.

    Raises `RecordInvalid` if the run has not all of its files, or they are not of the same questions; `OutputMismatch`
    if `output` is not empty.
    """
    from datasets import Dataset

    if output.exists() and any(output.iterdir()):
        raise OutputMismatch(f"{output} is not empty")
    texts_file = run / "solutions.jsonl"
    if not texts_file.exists():
        raise RecordInvalid(str(run), 0, "there is no solutions.jsonl: give what `evaluate best-of-n --output` wrote")
    judged = {each.id: each for each in judging.read_judged(run)}
    texts = {each.id: each for each in sources.read(texts_file, CandidateTexts)}
    if texts.keys() != judged.keys():
        odd = min(texts.keys() ^ judged.keys())
        raise RecordInvalid(str(texts_file), 0, f"it has other questions than candidates.jsonl, for example {odd!r}")
    rows = [_row(texts[name], judged[name]) for name in texts]
    (output / "data").mkdir(parents=True)
    Dataset.from_list(rows).to_parquet(output / "data" / "test.parquet")
    correct = [right for each in judged.values() for right in each.correct]
    card = _CARD.format(
        licence=licence,
        name=output.name,
        questions=len(rows),
        candidates=len(correct),
        right=sum(correct) / len(correct),
        model=resumable.config_of(run / "candidates.jsonl")["model"],
    )
    resumable.replace(output / "README.md", card)
    return len(rows)


def _row(texts: CandidateTexts, judged: JudgedCandidates) -> dict[str, Any]:
    scores = judged.scores or (None,) * len(judged.correct)
    columns = zip(texts.solutions, judged.correct, judged.rewards, scores, strict=True)
    candidates = [
        {
            "steps": list(solution.steps),
            "predicted": solution.predicted,
            "correct": correct,
            "reward": reward,
            "step_scores": None if judged.scores is None else list(each or ()),
        }
        for solution, correct, reward, each in columns
    ]
    return {"id": texts.id, "problem": texts.problem, "answer": texts.gold_answer, "candidates": candidates}
