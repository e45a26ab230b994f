"""Samples candidate solutions for questions, with the log-probabilities of their tokens (paper, section 3.1)."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from unprm.types import Sampler

from .. import stage
from ..resumable import ResumableFile
from ..schema import SampledQuestion
from ..stage_settings import SampleSettings
from .questions import Question


def origin_of(sampler: Sampler) -> dict[str, Any]:
    """What a file's configuration says of the sampler that made its records."""
    return {"model": sampler.model} | ({"neutral_sampling": dict(sampler.neutral)} if sampler.neutral else {})


def seed_of(*parts: object) -> int:
    """A seed below 2^48 that depends on all parts, the same on every machine."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:6], "big")


async def sample(
    questions: Sequence[Question],
    sampler: Sampler,
    output: Path,
    settings: SampleSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Appends a `SampledQuestion` per question to `output`.

    `concurrency`: questions sampled at the same time. Returns the failed questions with reasons.
    """
    config = {"stage": "sample", **origin_of(sampler), **asdict(settings)}
    with ResumableFile(output, SampledQuestion, config) as written:
        todo = [question for question in questions if not written.has(question, "problem", "gold_answer")]
        title = f"sampling from {sampler.model}"
        with stage.Board(console, title, len(questions), len(questions) - len(todo)) as board:

            async def work(question: Question) -> None:
                record = await sample_question(question, sampler, settings)
                written.append(record)
                tokens = sum(len(solution.logprobs) for solution in record.solutions)
                board.advance(solutions=len(record.solutions), tokens=tokens)

            return await stage.process(todo, work, lambda question: question.id, concurrency)


async def sample_question(question: Question, sampler: Sampler, settings: SampleSettings) -> SampledQuestion:
    """Samples a question's solutions; raises `SamplerFailed` if the sampler does."""
    seed = seed_of(settings.seed, sampler.model, question.id)
    return SampledQuestion(
        id=question.id,
        problem=question.problem,
        gold_answer=question.gold_answer,
        model=sampler.model,
        prompt=sampler.prompt(question.problem),
        solutions=tuple(await sampler.solve(question.problem, settings.k, seed)),
    )
