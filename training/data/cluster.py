"""The sampling stages on a Ray cluster: each Ray Data actor holds an engine, and this process, the driver, writes the
records. An actor that dies is restarted and repeats its items; a driver that dies resumes when it is started again.

    python -m training annotate selected.jsonl --output annotated.jsonl --ray 4
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import ray
from rich.console import Console

from training import resumable, stage
from training.data.annotate import AnnotationFiles, by_question, check
from training.data.annotator import Annotator, Kind, QuestionValue
from training.data.questions import Question
from training.data.sample import record_of
from training.resumable import Record, ResumableFile
from training.settings import AnnotateSettings, SampleSettings
from unprm.answers.equivalence import Equivalence
from unprm.errors import UnprmError
from unprm.types import Sampler, SamplingSettings

Row = dict[str, str]
"""What an actor returns: `kind`, the kind of a record or "failed", and `record`, its JSON."""


class Source(Protocol):
    """Loads an actor's sampler; it is pickled."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

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


class SampleActor:
    """Samples questions."""

    def __init__(self, source: Source, settings: SampleSettings) -> None:
        self.sampler, self.settings = source.load(settings.drawing), settings
        self.runner = asyncio.Runner()  # one event loop for all batches: samplers are bound to it

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Turns a batch of questions in JSON into rows."""
        return _columns(self.runner.run(self._all([Question(**json.loads(item)) for item in batch["item"]])))

    async def _all(self, questions: Sequence[Question]) -> list[Row]:
        return list(await asyncio.gather(*map(self._one, questions)))

    async def _one(self, question: Question) -> Row:
        try:
            return _row("sample", await record_of(question, self.sampler, self.settings))
        except UnprmError as error:
            return _row("failed", {"name": question.id, "reason": str(error)})


class AnnotateActor:
    """Annotates solutions, grouped by question."""

    def __init__(self, source: Source, settings: AnnotateSettings, known: dict[str, QuestionValue]) -> None:
        self.sampler: Sampler = source.load(settings.drawing)
        self.equivalence, self.settings, self.known = Equivalence(), settings, known
        self.runner = asyncio.Runner()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Turns a batch of groups in JSON into rows."""
        return _columns(self.runner.run(self._all([json.loads(item) for item in batch["item"]])))

    async def _all(self, groups: Sequence[list[Record]]) -> list[Row]:
        return [row for rows in await asyncio.gather(*map(self._one, groups)) for row in rows]

    async def _one(self, group: list[Record]) -> list[Row]:
        rows: list[Row] = []

        def write(kind: Kind, record: Record) -> None:
            rows.append(_row(kind, record))

        annotator = Annotator(self.sampler, self.equivalence, self.settings, self.known, write)
        try:
            await annotator.annotate(group, memory={})
        except UnprmError as error:
            rows.append(_row("failed", {"name": group[0]["question"], "reason": str(error)}))
        return rows


def sample(
    questions: Sequence[Question],
    source: Source,
    output: Path,
    settings: SampleSettings,
    cluster: Cluster,
    console: Console,
) -> dict[str, str]:
    """Does the same as `training.data.sample.sample`, on the cluster."""
    failures: dict[str, str] = {}
    with ResumableFile(output, {"stage": "sample", "model": source.model, **asdict(settings)}) as written:
        todo = [asdict(question) for question in questions if question.id not in written.records]
        title = f"sampling from {source.model} on {cluster.actors} actors"
        with stage.Board(console, title, len(questions), len(questions) - len(todo)) as board:
            for kind, record in _run(todo, SampleActor, (source, settings), cluster):
                if kind == "failed":
                    failures[record["name"]] = record["reason"]
                else:
                    written.append(record)
                    tokens = sum(len(completion["logprobs"]) for completion in record["completions"])
                    board.advance(solutions=len(record["completions"]), tokens=tokens)
    return failures


def annotate(
    selected: Path,
    source: Source,
    output: Path,
    settings: AnnotateSettings,
    cluster: Cluster,
    console: Console,
) -> dict[str, str]:
    """Does the same as `training.data.annotate.annotate`, on the cluster."""
    failures: dict[str, str] = {}
    solutions = list(resumable.read(selected, "steps"))
    check(solutions, selected, source.model)
    with AnnotationFiles(output, settings, source.model, selected) as files:
        todo = [solution for solution in solutions if not files.is_done(solution)]
        title = f"annotating by {settings.search} search on {cluster.actors} actors"
        with stage.Board(console, title, len(solutions), len(solutions) - len(todo)) as files.board:
            arguments = (source, settings, files.known())
            for kind, record in _run(by_question(todo), AnnotateActor, arguments, cluster):
                if kind == "failed":
                    failures[record["name"]] = record["reason"]
                else:
                    files.write(kind, record)
    return failures


def _run(
    items: Sequence[object], actor: Callable[..., Any], arguments: tuple[Any, ...], cluster: Cluster
) -> Iterator[tuple[Any, Record]]:
    """The records that the actors make from the items, in order of completion."""
    if not items:
        return
    rows = ray.data.from_items([{"item": json.dumps(item)} for item in items], override_num_blocks=len(items))
    made = rows.map_batches(  # by default an actor that dies is started again and its tasks are repeated
        actor,
        fn_constructor_args=arguments,
        batch_size=cluster.batch,
        concurrency=cluster.actors,
        num_gpus=cluster.gpus,
    )
    for row in made.iter_rows():
        yield row["kind"], json.loads(row["record"])


def _row(kind: str, record: Record) -> Row:
    return {"kind": kind, "record": json.dumps(record, ensure_ascii=False)}


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    return {name: [row[name] for row in rows] for name in ("kind", "record")}
