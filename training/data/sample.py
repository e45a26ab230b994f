"""Samples candidate solutions for questions, with the log-probabilities of their tokens (paper, section 3.1)."""

import hashlib
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from training import stage
from training.data.questions import Question
from training.resumable import Record, ResumableFile
from training.settings import SampleSettings
from unprm.types import Sampler


def seed_of(*parts: object) -> int:
    """A seed below 2^48 that depends on all parts, the same on every machine."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:6], "big")


async def sample(
    questions: list[Question],
    sampler: Sampler,
    output: Path,
    settings: SampleSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Appends a record per question to `output`: `{"id", "problem", "answer", "model", "prompt", "completions"}`.

    `concurrency`: questions sampled at the same time. Returns the failed questions with reasons.
    """
    with ResumableFile(output, {"stage": "sample", "model": sampler.model, **asdict(settings)}) as written:
        todo = [question for question in questions if question.id not in written.records]
        title = f"sampling from {sampler.model}"
        with stage.Board(console, title, len(questions), len(questions) - len(todo)) as board:

            async def work(question: Question) -> None:
                record = await record_of(question, sampler, settings)
                written.append(record)
                tokens = sum(len(completion["logprobs"]) for completion in record["completions"])
                board.advance(solutions=len(record["completions"]), tokens=tokens)

            return await stage.run(todo, work, lambda question: question.id, concurrency)


async def record_of(question: Question, sampler: Sampler, settings: SampleSettings) -> Record:
    """Samples a question's solutions and returns them as a record; raises `SamplerFailed` if the sampler does."""
    seed = seed_of(settings.seed, sampler.model, question.id)
    completions = await sampler.solve(question.problem, settings.k, seed)
    return {
        "id": question.id,
        "problem": question.problem,
        "answer": question.gold,
        "model": sampler.model,
        "prompt": sampler.prompt(question.problem),
        "completions": [asdict(completion) for completion in completions],
    }
