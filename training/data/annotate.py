"""Labels the steps of selected solutions (paper, section 3.2 and Algorithm 1, or another search).

    python -m training annotate runs/mini/selected.jsonl --output runs/mini/annotated.jsonl

It writes three files: the labelled solutions; those that could not be labelled, with the evidence, in
`….unresolved.jsonl`; and the value of each question alone, τ, in `….questions.jsonl`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from training import resumable, stage
from training.data.annotator import Annotator, Kind, QuestionValue
from training.resumable import Record, ResumableFile
from training.settings import AnnotateSettings
from unprm.answers.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Sampler


class AnnotationFiles:
    """The three files of an annotation; a context manager. `board`: progress display, if any."""

    def __init__(self, output: Path, settings: AnnotateSettings, model: str, selected: Path) -> None:
        source = json.loads(resumable.config_path(selected).read_text("utf-8"))
        config = {**asdict(settings), "stage": "annotate", "model": model, "selected": source}
        self.files: dict[Kind, ResumableFile] = {
            "labelled": ResumableFile(output, config),
            "unresolved": ResumableFile(output.with_suffix(".unresolved.jsonl"), config),
            "question": ResumableFile(output.with_suffix(".questions.jsonl"), config),
        }
        self.board: stage.Board | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self.files.values():
            file.close()

    def is_done(self, solution: Record) -> bool:
        """Whether the files already hold the solution, labelled or unresolved."""
        return any(solution["id"] in self.files[kind].records for kind in ("labelled", "unresolved"))

    def known(self) -> dict[str, QuestionValue]:
        """The questions whose τ is already in the files, by id."""
        return {name: QuestionValue(**record) for name, record in self.files["question"].records.items()}

    def write(self, kind: Kind, record: Record) -> None:
        """Appends a record to its file and updates the progress display."""
        self.files[kind].append(record)
        if self.board is None:
            return
        counts = {name: record[name] for name in ("verified", "samples", "tokens") if name in record}
        if kind == "question":
            self.board.count(**counts)
        else:
            self.board.advance(**counts)


async def annotate(
    selected: Path,
    sampler: Sampler,
    equivalence: Equivalence,
    output: Path,
    settings: AnnotateSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Annotates a file of selected solutions, `concurrency` questions at a time.

    Returns the failed questions with reasons.
    """
    solutions = list(resumable.read(selected, "steps"))
    check(solutions, selected, sampler.model)
    with AnnotationFiles(output, settings, sampler.model, selected) as files:
        annotator = Annotator(sampler, equivalence, settings, files.known(), files.write)
        todo = [solution for solution in solutions if not files.is_done(solution)]
        title = f"annotating by {settings.search} search"
        with stage.Board(console, title, len(solutions), len(solutions) - len(todo)) as files.board:

            async def work(group: list[Record]) -> None:
                await annotator.annotate(group, memory={})

            return await stage.run(by_question(todo), work, lambda group: str(group[0]["question"]), concurrency)


def by_question(solutions: Sequence[Record]) -> list[list[Record]]:
    """Groups consecutive solutions of the same question."""
    return [list(group) for _, group in groupby(solutions, key=lambda solution: solution["question"])]


def check(solutions: Sequence[Record], selected: Path, model: str) -> None:
    """Raises `RecordInvalid` for a solution that `model` cannot continue: by another model, or without token ids."""
    for number, solution in enumerate(solutions, 1):
        if solution["model"] != model:
            reason = f"a solution by {solution['model']} can't be gone on with by {model}: its tokens are its own"
            raise RecordInvalid(str(selected), number, reason)
        if not solution["ids"]:
            reason = "a solution without token ids (it came through a chat API) can't be annotated by rollouts"
            raise RecordInvalid(str(selected), number, reason)
