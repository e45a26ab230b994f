"""The sampling stages on a Ray cluster: each Ray Data actor holds an engine, and this process, the driver, writes the
records. An actor that dies is restarted and repeats its items; a driver that dies resumes when it is started again.

    unprm annotate selected.jsonl --output annotated.jsonl --ray 4
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

import ray
from rich.console import Console

from unprm.answers.equivalence import Equivalence
from unprm.errors import UnprmError
from unprm.types import Sampler, SamplingSettings

from .. import stage
from ..schema import AnnotatedSolution, QuestionValue, SampledQuestion, SelectedSolution, adapter
from ..settings import AnnotateSettings, SampleSettings
from .annotate import AnnotationFiles, by_question, load
from .annotator import Annotator
from .questions import Question
from .sample import Origin, open_samples, sample_question

Batch = dict[str, Any]
"""Columns of Ray Data: `kind`, the name of a record's class, and `json`. What an actor gets has no `kind`."""


class Source(Origin, Protocol):
    """Loads an actor's sampler; it is pickled."""

    def load(self, settings: SamplingSettings) -> Sampler:
        """The sampler."""
        ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """`actors`: number of actors, with one engine each. `batch`: items an actor works on concurrently. `gpus`: GPUs per
    actor."""

    actors: int
    batch: int
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A question that failed, by its id, and why."""

    question: str
    reason: str


Made = SampledQuestion | AnnotatedSolution | QuestionValue | Failure
"""What actors return."""
KINDS: dict[str, type[Made]] = {kind.__name__: kind for kind in get_args(Made)}


class Actor(ABC):
    """Works on batches of items in JSON; one event loop for all batches, as samplers are bound to it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def __call__(self, batch: Batch) -> Batch:
        """What `work` makes of the items of a batch, concurrently."""
        return _batch(self.runner.run(self._all(batch["json"])))

    async def _all(self, items: Sequence[str]) -> list[Made]:
        return [record for records in await asyncio.gather(*map(self.work, items)) for record in records]

    @abstractmethod
    async def work(self, item: str) -> list[Made]:
        """The records of one item."""


class SampleActor(Actor):
    """Samples questions."""

    def __init__(self, source: Source, settings: SampleSettings) -> None:
        super().__init__()
        self.sampler, self.settings = source.load(settings.drawing), settings

    async def work(self, item: str) -> list[Made]:
        """Samples a question."""
        question = adapter(Question).validate_json(item)
        try:
            return [await sample_question(question, self.sampler, self.settings)]
        except UnprmError as error:
            return [Failure(question.id, str(error))]


class AnnotateActor(Actor):
    """Annotates solutions, grouped by question."""

    def __init__(self, source: Source, settings: AnnotateSettings, known: dict[str, QuestionValue]) -> None:
        super().__init__()
        self.sampler, self.settings, self.known = source.load(settings.drawing), settings, known
        self.equivalence = Equivalence()

    async def work(self, item: str) -> list[Made]:
        """Annotates a question's solutions."""
        solutions = adapter(list[SelectedSolution]).validate_json(item)
        records: list[Made] = []
        annotator = Annotator(self.sampler, self.equivalence, self.settings, self.known, records.append)
        try:
            await annotator.annotate(solutions, memory={})
        except UnprmError as error:
            records.append(Failure(solutions[0].question, str(error)))
        return records


def sample(
    questions: Sequence[Question],
    source: Source,
    output: Path,
    settings: SampleSettings,
    cluster: Cluster,
    console: Console,
) -> dict[str, str]:
    """Does the same as `training.data.sample.sample`, on the cluster."""
    with open_samples(output, source, settings) as written:
        todo = [question for question in questions if question.id not in written.records]
        title = f"sampling from {source.model} on {cluster.actors} actors"
        with stage.Board(console, title, len(questions), len(questions) - len(todo)) as board:

            def write(record: SampledQuestion) -> None:
                written.append(record)
                board.advance(**record.counts)

            return _run(
                [_json(question, Question) for question in todo], SampleActor, (source, settings), cluster, write
            )


def annotate(
    selected: Path,
    source: Source,
    output: Path,
    settings: AnnotateSettings,
    cluster: Cluster,
    console: Console,
) -> dict[str, str]:
    """Does the same as `training.data.annotate.annotate`, on the cluster."""
    solutions = load(selected, source.model)
    with AnnotationFiles(output, settings, source, selected) as files:
        todo = [solution for solution in solutions if not files.is_done(solution)]
        title = f"annotating by {settings.search} search on {cluster.actors} actors"
        with stage.Board(console, title, len(solutions), len(solutions) - len(todo)) as files.board:
            board = files.board

            def write(record: AnnotatedSolution | QuestionValue) -> None:
                board.count(samples=record.samples, tokens=record.tokens)
                files.write(record)

            groups = [_json(group, list[SelectedSolution]) for group in by_question(todo)]
            arguments = (source, settings, files.questions.records)
            return _run(groups, AnnotateActor, arguments, cluster, write)


def _run(
    items: Sequence[str],
    actor: Callable[..., Any],
    arguments: tuple[Any, ...],
    cluster: Cluster,
    write: Callable[[Any], None],
) -> dict[str, str]:
    """Writes the records that the actors make from the items, in order of completion; returns the failed questions with
    reasons."""
    failures: dict[str, str] = {}
    if not items:
        return failures
    rows = ray.data.from_items([{"json": item} for item in items], override_num_blocks=len(items))
    made = rows.map_batches(  # by default an actor that dies is started again and its tasks are repeated
        actor,
        fn_constructor_args=arguments,
        batch_size=cluster.batch,
        concurrency=cluster.actors,
        num_gpus=cluster.gpus,
    )
    for row in made.iter_rows():
        record = adapter(KINDS[row["kind"]]).validate_json(row["json"])
        if isinstance(record, Failure):
            failures[record.question] = record.reason
        else:
            write(record)
    return failures


def _json(value: object, kind: type[Any]) -> str:
    return adapter(kind).dump_json(value, by_alias=True).decode()


def _batch(records: Sequence[object]) -> Batch:
    return {
        "kind": [type(record).__name__ for record in records],
        "json": [_json(record, type(record)) for record in records],
    }
