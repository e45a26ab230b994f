"""The study's questions, by the stage that may use them, and the solutions whose first errors people labelled."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import sources
from ..data.questions import Question
from ..evaluate import processbench
from ..schema import BenchmarkSolution
from .origins import SmolSources
from .questions import Part, WordProblem, easy, gsm8k, split, variant
from .settings import SmolSettings

GSM8K = "gsm8k"
"""What the ids of its questions begin with."""


@dataclass(frozen=True, slots=True)
class StudyData:
    """`parts`: easy questions and those of GSM8K by the stage that may use them; `processbench`, `teachers`: solutions
    with the first errors that people found."""

    parts: dict[Part, list[WordProblem]]
    processbench: list[BenchmarkSolution]
    teachers: list[BenchmarkSolution]

    @classmethod
    def read(cls, given: SmolSources) -> "StudyData":
        """All of it. Raises `RecordInvalid` for what can't be read."""
        benchmark = processbench.load(given.processbench)
        measured = benchmark.get(GSM8K) or next(iter(benchmark.values()))
        teachers = list(_teachers(given.teachers)) if given.teachers else []
        trained = [*_problems(given.easy, easy), *_problems(given.gsm8k, gsm8k)]
        others = list(_problems(given.others, easy)) if given.others else []
        reserved = [solution.problem for solution in (*measured, *teachers)]
        return cls(split(trained, others, reserved), measured, teachers)

    def easy(self, part: Part) -> list[WordProblem]:
        """The easy questions of a part."""
        return [question for question in self.parts[part] if not question.id.startswith(GSM8K)]

    @property
    def others(self) -> list[WordProblem]:
        """The easy questions that only measure."""
        return self.parts["others"]

    def gsm8k(self, part: Part, count: int) -> list[WordProblem]:
        """The questions of GSM8K in a part that have the shortest solutions."""
        found = [question for question in self.parts[part] if question.id.startswith(GSM8K)]
        return sorted(found, key=lambda question: len(question.problem) + len(question.text))[:count]


def with_variants(questions: Iterable[WordProblem], count: int, settings: SmolSettings) -> Iterator[WordProblem]:
    """Each question, and at most `count` with other numbers."""
    for question in questions:
        yield question
        made = (variant(question, number, settings.seed) for number in range(count))
        yield from (other for other in made if other is not None)


def to_sample(questions: Iterable[WordProblem]) -> list[Question]:
    """The questions as the sampling stage takes them."""
    return [Question(question.id, question.problem, str(question.answer)) for question in questions]


def _problems(source: Path | str, read: Any) -> Iterator[WordProblem]:
    kind = dict[str, Any]
    if Path(source).is_file():
        rows = sources.from_file(Path(source), kind)
    else:
        rows = sources.from_hub(str(source), "train", kind, "main")  # as GSM8K has it
    for number, row in rows:
        if (found := read({"id": f"{number}", "idx": number, **row})) is not None:
            yield found


def _teachers(path: Path) -> Iterator[BenchmarkSolution]:
    for number, row in sources.from_file(path, dict[str, Any]):
        fields = {"id": row.get("id", str(number)), "label": row.get("first_error_0based"), **row}
        yield sources.parse(fields, BenchmarkSolution, str(path), number)
