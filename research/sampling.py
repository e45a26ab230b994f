"""Samples candidates of questions from a model behind OpenAI's chat API; a run that ends at any time goes on later."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

from rich.console import Console

from training import stage
from training.data import questions as sources
from training.data.questions import Question
from training.data.sample import seed_of
from training.resumable import ResumableFile
from training.schema import OWN_ANSWER, GoldAnswer
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.openai.client import OpenAIClient
from unprm.samplers.openai_sampler import ChatSampler
from unprm.types import SamplingSettings

from .pool_settings import PoolSettings

PATIENCE = 60.0
"""Seconds for a comparison of two answers, which waits for a processor that others use."""
PURE = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
"""Fields of llama.cpp's and vLLM's servers that turn off what they do to a distribution beside the temperature."""


@dataclass(frozen=True, slots=True)
class SampledCandidate:
    """One solution. `id`: that of the question, "/", and the number of the `sample`, from 1. `tokens`: their number.
    `mean_logprob`: of the tokens, before temperature, in nats; None if it has no token."""

    id: str
    sample: int
    problem: str
    gold_answer: GoldAnswer
    text: str
    finish_reason: str
    tokens: int
    predicted: Annotated[str | None, OWN_ANSWER]
    correct: bool
    mean_logprob: float | None

    @property
    def question(self) -> str:
        return self.id.rpartition("/")[0]


def order(questions: Iterable[Question], settings: PoolSettings) -> Iterator[tuple[Question, int]]:
    """Each question with the numbers of its samples: the first few of all questions, then the others."""
    drawn = list(questions)
    for some in (range(1, settings.first + 1), range(settings.first + 1, settings.samples + 1)):
        yield from ((question, sample) for question in drawn for sample in some if sample <= settings.samples)


async def sample(
    source: Path,
    client: OpenAIClient,
    model: str,
    output: Path,
    settings: PoolSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Appends each candidate to `output`, at most `concurrency` at a time. Returns the failed ones with reasons.

    Raises `RecordInvalid` for questions that can't be read or are too few, `OutputMismatch` for another configuration.
    """
    drawing = SamplingSettings(settings.temperature, max_tokens=settings.max_tokens)
    sampler = ChatSampler(client, model, drawing, system=settings.system, more=PURE)
    drawn, _ = sources.load_questions(str(source), limit=settings.limit, seed=settings.seed, only=settings.only or ())
    config = {"stage": "pool", "questions": source.name, "model": model, **asdict(settings)}
    equivalence = Equivalence(deadline=PATIENCE)
    with ResumableFile(output, SampledCandidate, config) as written:
        everything = list(order(drawn, settings))
        todo = [each for each in everything if _id(*each) not in written.records]
        with stage.Board(console, f"sampling from {model}", len(everything), len(everything) - len(todo)) as board:

            async def work(each: tuple[Question, int]) -> None:
                question, number = each
                seed = seed_of(settings.seed, model, question.id, number)
                (wrote,) = await sampler.solve(question.problem, 1, seed)
                answer = extract(wrote.text)
                candidate = SampledCandidate(
                    _id(question, number),
                    number,
                    question.problem,
                    question.gold_answer,
                    wrote.text,
                    "stop" if wrote.finished else "length",
                    len(wrote.logprobs),
                    answer,
                    answer is not None and equivalence.equal(answer, question.gold_answer),
                    fmean(wrote.logprobs) if wrote.logprobs else None,
                )
                written.append(candidate)
                board.advance(right=int(candidate.correct), tokens=candidate.tokens)

            try:
                return await stage.process(todo, work, lambda each: _id(*each), concurrency)
            finally:
                await sampler.close()


def _id(question: Question, number: int) -> str:
    return f"{question.id}/{number}"
