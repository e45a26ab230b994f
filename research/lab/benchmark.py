"""Test data of the lab's PRMs: sampled solutions of new questions, and a benchmark like ProcessBench made from them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from training import resumable, sources
from training.data.questions import make_mini
from training.data.sample import sample
from training.evaluate import processbench
from training.schema import BenchmarkSolution, SampledQuestion
from unprm import steps
from unprm.mini.checker import first_error
from unprm.mini.domain import parse
from unprm.types import Sampler

from .construct import CONCURRENCY
from .lab_settings import LabSettings

LEVELS = {"level-1": "2 sums", "level-2": "3 sums", "level-3": "4 or 5 sums", "level-4": "6 to 8 sums"}
"""The benchmark's subsets, by a problem's number of arithmetic operations."""
PER_QUESTION = 4
"""Maximum number of wrong and of right solutions per question, so that no question has much weight."""


def candidates_file(output: Path) -> Path:
    return output / "candidates.jsonl"


async def candidates(settings: LabSettings, sampler: Sampler, output: Path, console: Console) -> dict[str, str]:
    """Samples solutions of new questions, and makes the benchmark of first errors from them; returns the failed
    questions with reasons."""
    questions = make_mini(settings.evaluated, settings.seed + 10**6)
    drawing = replace(settings.sample, k=settings.candidates)
    failures = await sample(questions, sampler, candidates_file(output), drawing, CONCURRENCY, console)
    write_benchmark(settings, output)
    return failures


def load_benchmark(output: Path) -> dict[str, list[BenchmarkSolution]]:
    return processbench.load_processbench(str(output / "benchmark"))


def question_of(sample: BenchmarkSolution) -> str:
    return sample.id.rpartition("/")[0]


def write_benchmark(settings: LabSettings, output: Path) -> None:
    """Writes the sampled solutions with the exact checker's labels, a file per level in ProcessBench's layout.

    Raises `RecordInvalid` if a level has no right solution, or no wrong one.
    """
    levels: dict[str, list[BenchmarkSolution]] = {level: [] for level in LEVELS}
    taken: Counter[tuple[str, bool]] = Counter()
    sampled = sources.read(candidates_file(output), SampledQuestion)
    for question in sorted(sampled, key=lambda question: question.id):
        problem = parse(question.problem)
        level = _level(len(problem.operations))
        for name, parts in _distinct(question):
            wrong = first_error(problem, parts)
            kind = wrong is not None
            if taken[level, kind] < settings.per_level and taken[question.id, kind] < PER_QUESTION:
                taken.update([(level, kind), (question.id, kind)])
                label = -1 if wrong is None else wrong
                levels[level].append(BenchmarkSolution(name, question.problem, parts, label))
    for level, solutions in levels.items():
        resumable.write_lines(output / "benchmark" / f"{level}.jsonl", solutions)
    load_benchmark(output)


def _level(sums: int) -> str:
    number = 1 if sums <= 2 else 2 if sums == 3 else 3 if sums <= 5 else 4
    return f"level-{number}"


def _distinct(question: SampledQuestion) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Ids and steps of a question's finished solutions, each distinct text once."""
    texts = dict.fromkeys(solution.text for solution in question.solutions if solution.finished)
    for number, text in enumerate(texts):
        if parts := steps.split(text):
            yield f"{question.id}/{number}", tuple(parts)
