"""The stages of the study on SmolLM2, in order; each resumes where a killed run stopped."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console

from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.errors import SamplerFailed
from unprm.models.checkpoint import fetch, load_base, read_tokenizer
from unprm.samplers.transformers_sampler import TransformersSampler
from unprm.types import Sampler, SamplingSettings

from .. import resumable, sources, stage
from ..data import study
from ..data.sample import sample
from ..data.select import Selector, select
from ..prm.result import halve
from ..prm.train import Trainer
from ..schema import LabelledSolution, SampledQuestion
from ..settings import SampleSettings
from . import reasoner
from .calculator import Calculator
from .data import StudyData, to_sample, with_variants
from .labels import Judged, balanced
from .questions import WordProblem, bare
from .settings import SmolSettings
from .slips import slips

CONCURRENCY = 32
SAMPLES, SAMPLES_OF_VARIANTS = "samples.jsonl", "samples-variants.jsonl"
Work = Callable[[Sampler], Awaitable[Mapping[str, str]]]
"""Samples; returns the failed questions with reasons."""


class Study:
    """The study's stages over one directory."""

    def __init__(self, data: StudyData, settings: SmolSettings, output: Path, console: Console) -> None:
        self.data, self.settings, self.output, self.console = data, settings, output, console

    @property
    def candidates(self) -> dict[str, list[WordProblem]]:
        """The held-out questions, by the name of their file."""
        drawn = random.Random(f"{self.settings.seed}/tests").sample
        easy = {"easy": self.data.easy("test"), "others": self.data.others}
        chosen = {name: drawn(found, min(self.settings.tests, len(found))) for name, found in easy.items() if found}
        return chosen | {"gsm8k": self.data.gsm8k("test", self.settings.tests_gsm8k)}

    def fine_tune(self) -> None:
        """Makes the reasoner."""
        easy = with_variants(self.data.easy("reasoner"), self.settings.reasoner_variants, self.settings)
        questions = [*easy, *map(bare, self.data.gsm8k("reasoner", self.settings.reasoner_gsm8k))]
        settings = self.settings.reasoner(self.output / "reasoner")
        with stage.progress(self.console) as progress:
            reasoner.fine_tune(fetch(settings.base, None), questions, settings, progress)

    def sample(self) -> None:
        """Samples solutions for the PRM's data, and for the searches those of questions as they are."""
        easy = self.data.easy("construct")
        variants = [q for q in with_variants(easy, self.settings.prm_variants, self.settings) if q not in easy]
        self._sampled(easy, SAMPLES, self.settings.sample)
        self._sampled(variants, SAMPLES_OF_VARIANTS, self.settings.sample)

    def label(self) -> None:
        """Writes the PRM's data: planted errors and sampled solutions, with exact labels."""
        resumable.write_lines(self.output / "labelled.jsonl", self._labelled())

    def _labelled(self) -> Iterator[LabelledSolution]:
        files = (self.output / name for name in (SAMPLES, SAMPLES_OF_VARIANTS))
        written = {q.id: q for file in files for q in sources.read(file, SampledQuestion)}
        easy = with_variants(self.data.easy("construct"), self.settings.prm_variants, self.settings)
        for question in chain(easy, map(bare, self.data.gsm8k("construct", self.settings.prm_gsm8k))):
            rng = random.Random(f"{self.settings.seed}/{question.id}")
            planted: list[Judged] = [(made, len(made) - 1) for made in slips(question, rng)]
            sampled = written.get(question.id)
            judged = judge(question, sampled) if sampled else []
            yield from balanced(question.problem, [(question.steps, None), *judged, *planted])

    def train(self) -> None:
        """Trains the PRM."""
        adapter = self.output / "reasoner" / "adapter"
        settings = self.settings.prm(self.output / "labelled.jsonl", adapter, self.output / "prm")
        with stage.progress(self.console) as progress:
            Trainer(settings).run(progress)
        halve(settings.output)

    def test(self) -> None:
        """Samples the candidates of held-out questions."""
        for name, questions in self.candidates.items():
            drawing = self.settings.candidates_gsm8k if name == "gsm8k" else self.settings.candidates_easy
            self._sampled(questions, f"candidates-{name}.jsonl", drawing)

    def search(self) -> None:
        """Compares the searches on wrong solutions of at least three steps."""
        selected = self.output / "selected.jsonl"

        async def work(sampler: Sampler) -> Mapping[str, str]:
            equivalence = Equivalence()
            selector = Selector(equivalence, sampler.decode, self.settings.select)
            select(self.output / SAMPLES, selected, selector, self.console)
            searches = study.variants(self.settings.annotate)
            place = self.output / "annotated"
            return await study.study(selected, sampler, equivalence, place, searches, CONCURRENCY, self.console)

        self._with_sampler(work, self.settings.annotate.drawing)

    def _sampled(self, questions: Sequence[WordProblem], name: str, settings: SampleSettings) -> None:
        async def work(sampler: Sampler) -> Mapping[str, str]:
            plain = to_sample(questions)
            return await sample(plain, sampler, self.output / name, settings, CONCURRENCY, self.console)

        self._with_sampler(work, settings.drawing)

    def _with_sampler(self, work: Work, drawing: SamplingSettings) -> None:
        async def whole() -> Mapping[str, str]:
            directory = self.output / "reasoner" / "model"
            tokenizer = read_tokenizer(directory)
            network = load_base(directory, torch.float32)
            sampler = TransformersSampler(network, directory, "smol-reasoner", drawing, Calculator(tokenizer))
            try:
                return await work(sampler)
            finally:
                await sampler.close()

        failures = dict(asyncio.run(whole()))
        if stage.tell(self.console, failures):
            raise SamplerFailed(f"{len(failures)} questions could not be sampled; the same command tries them again")


def judge(question: WordProblem, sampled: SampledQuestion) -> list[Judged]:
    """The distinct finished solutions of a question, the most frequent first, with their first errors."""
    gold = question.gold()
    return [(parts, gold.first_error(parts)) for parts in solutions(sampled)]


def solutions(sampled: SampledQuestion) -> list[tuple[str, ...]]:
    """The steps of the distinct finished solutions of a question, the most frequent first."""
    texts = Counter(solution.text for solution in sampled.solutions if solution.finished)
    return [tuple(parts) for text, _ in texts.most_common() if (parts := steps.split(text))]
