"""Labels the steps of selected solutions (paper, section 3.2 and Algorithm 1, or another search).

    unprm annotate runs/mini/selected.jsonl --output runs/mini/annotated.jsonl

It writes three files: the labelled solutions; those that could not be labelled, with the evidence, in
`….unresolved.jsonl`; and the value of each question alone, τ, in `….questions.jsonl`.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from rich.console import Console

from unprm.answers.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Rollout, Sampler

from .. import resumable, sources, stage
from ..resumable import ResumableFile
from ..schema import AnnotatedSolution, QuestionValue, SelectedSolution
from ..stage_settings import AnnotateSettings
from .annotator import Annotator
from .sample import origin_of


def unresolved_path(annotated: Path) -> Path:
    return resumable.beside(annotated, ".unresolved.jsonl")


def questions_path(annotated: Path) -> Path:
    return resumable.beside(annotated, ".questions.jsonl")


class AnnotationFiles(ExitStack):
    """The three files of an annotation; a context manager. `board`: progress display, if any."""

    def __init__(self, output: Path, settings: AnnotateSettings, sampler: Sampler, selected: Path) -> None:
        super().__init__()
        config = {
            **asdict(settings), "stage": "annotate", **origin_of(sampler), "selected": resumable.config_of(selected)
        }  # fmt: skip
        self.resolved = self.enter_context(ResumableFile(output, AnnotatedSolution, config))
        self.unresolved = self.enter_context(ResumableFile(unresolved_path(output), AnnotatedSolution, config))
        self.questions = self.enter_context(ResumableFile(questions_path(output), QuestionValue, config))
        self.board: stage.Board | None = None

    def is_done(self, solution: SelectedSolution) -> bool:
        return any(file.has(solution, "problem", "steps") for file in (self.resolved, self.unresolved))

    def write(self, record: AnnotatedSolution | QuestionValue) -> None:
        if isinstance(record, QuestionValue):
            self.questions.append(record)
        else:
            (self.resolved if record.reason is None else self.unresolved).append(record)
            if self.board:
                self.board.advance(verified=record.verified)

    def drawn(self, rollouts: Sequence[Rollout]) -> None:
        """Updates the progress display: a solution may take minutes."""
        if self.board:
            self.board.advance(0, samples=len(rollouts), tokens=sum(len(rollout.logprobs) for rollout in rollouts))


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
    solutions = read_selected(selected, sampler.model)
    with AnnotationFiles(output, settings, sampler, selected) as files:
        annotator = Annotator(sampler, equivalence, settings, files.questions.records, files.write, files.drawn)
        todo = [solution for solution in solutions if not files.is_done(solution)]
        title = f"annotating by {settings.search} search"
        with stage.Board(console, title, len(todo)) as files.board:

            async def work(group: list[SelectedSolution]) -> None:
                await annotator.annotate(group, memory={})

            failures = await stage.process(by_question(todo), work, lambda group: group[0].question, concurrency)
        for reason, count in Counter(left.reason for left in files.unresolved.records.values()).most_common():
            console.print(f"left out, {reason}: {count}")
    return failures


def by_question(solutions: Sequence[SelectedSolution]) -> list[list[SelectedSolution]]:
    return [list(group) for _, group in groupby(solutions, key=lambda solution: solution.question)]


def read_selected(selected: Path, model: str) -> list[SelectedSolution]:
    """The selected solutions of a file.

    Raises `RecordInvalid` for a solution that `model` cannot continue: by another model, or without token ids.
    """
    solutions = []
    for number, solution in sources.numbered(selected, SelectedSolution):
        if solution.model != model:
            reason = f"a solution by {solution.model} can't be gone on with by {model}: its tokens are its own"
            raise RecordInvalid(str(selected), number, reason)
        if not solution.ids:
            reason = "a solution without token ids (it came through a chat API) can't be annotated by rollouts"
            raise RecordInvalid(str(selected), number, reason)
        solutions.append(solution)
    return solutions
