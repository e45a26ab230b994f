"""Selects the solutions worth annotating (paper, section 3.1; the appendix's algorithm)."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.types import Completion
from unprm.uncertainty import MEASURES

from .. import resumable, sources, stage
from ..schema import SampledQuestion, SelectedSolution
from ..stage_settings import SelectSettings
from .sample import seed_of

Vectors = npt.NDArray[np.floating[Any]]
FEW = 0.25
"""Share of solved questions below which `select` warns."""


def step_uncertainties(logprobs: Sequence[float], ends: Sequence[int], measure: str) -> list[float]:
    """u of each step, from the tokens between its ends."""
    bounds = zip([0, *ends[:-1]], ends, strict=True)
    return [MEASURES[measure](logprobs[start:end]) for start, end in bounds]


@dataclass(slots=True)
class Selector:
    """Judges and selects solutions; `dropped` counts malformed and repeated ones by reason, `solved` the questions with
    a right one."""

    equivalence: Equivalence
    decode: steps.Decode
    settings: SelectSettings
    dropped: Counter[str] = field(default_factory=Counter)
    solved: int = 0

    def judge(self, question: SampledQuestion) -> Iterator[SelectedSolution]:
        """The well-formed solutions of a sampled question, whose mean uncertainties are not known yet."""
        for index, completion in enumerate(question.solutions):
            text, ids, logprobs = completion.text, completion.ids, completion.logprobs
            answer = extract(text, self.settings.extraction)
            parts = steps.split(text, self.settings.split)
            ends = steps.token_ends(text, ids, self.decode, self.settings.split) if ids else []
            reason = _malformed(completion, answer, parts, ends, self.settings.min_steps)
            if reason or answer is None:
                self.dropped[reason] += 1
                continue
            yield SelectedSolution(
                id=f"{question.id}/{question.model}/{index}",
                question=question.id,
                problem=question.problem,
                gold_answer=question.gold_answer,
                model=question.model,
                prompt=question.prompt,
                index=index,
                text=text,
                ids=ids,
                logprobs=logprobs,
                steps=tuple(parts),
                ends=tuple(ends),
                predicted=answer,
                correct=self.equivalence.equal(answer, question.gold_answer),
                uncertainty=self._uncertainty(logprobs, ends),
                mean_step_uncertainty={},
            )

    def _uncertainty(self, logprobs: Sequence[float], ends: Sequence[int]) -> float:
        measure = self.settings.measure
        if self.settings.selection == "uncertainty-diversity":
            return mean_change(step_uncertainties(logprobs, ends, measure))
        return MEASURES[measure](logprobs)

    def select(self, question: SampledQuestion) -> list[SelectedSolution]:
        judged = list(self.judge(question))
        self.solved += any(solution.correct for solution in judged)
        distinct: dict[str, SelectedSolution] = {}
        for solution in judged:
            if distinct.setdefault(solution.text, solution) is not solution:  # annotating it again would be a waste
                self.dropped["same text as another"] += 1
        seed = seed_of(self.settings.seed, question.model, question.id)
        means = {measure: _mean_step(judged, measure) for measure in MEASURES}
        chosen = choose(list(distinct.values()), self.settings, seed)
        return [replace(solution, mean_step_uncertainty=means) for solution in chosen]


def select(samples: Path, output: Path, selector: Selector, console: Console) -> tuple[int, int]:
    config = {**asdict(selector.settings), "stage": "select", "samples": resumable.config_of(samples)}
    questions = list(sources.read(samples, SampledQuestion))
    _check(questions, samples, selector.settings)
    with stage.progress(console) as progress:
        each = progress.track(questions, description="selecting")
        chosen = [solution for question in each for solution in selector.select(question)]
    resumable.write(output, config, chosen)
    right = sum(solution.correct for solution in chosen)
    console.print(f"{right} right and {len(chosen) - right} wrong solutions")
    for reason, count in selector.dropped.most_common():
        console.print(f"left out, {reason}: {count}")
    if selector.solved < FEW * len(questions):
        console.print(
            f"[yellow]only {selector.solved} of {len(questions)} questions have a right solution: few steps of the "
            "others will be labelled[/yellow]"
        )
    return selector.solved, len(questions)


def _check(questions: Sequence[SampledQuestion], samples: Path, settings: SelectSettings) -> None:
    """Raises `RecordInvalid` for samples without the token ids that "uncertainty-diversity" compares."""
    if settings.selection != "uncertainty-diversity":
        return
    for number, question in enumerate(questions, 1):
        if any(solution.text and not solution.ids for solution in question.solutions):
            reason = "selection by uncertainty-diversity compares token ids, and these came without (by a chat API)"
            raise RecordInvalid(str(samples), number, reason)


def _malformed(
    completion: Completion, answer: str | None, parts: Sequence[str], ends: Sequence[int], min_steps: int
) -> str:
    if not completion.finished:
        return "over the token limit"
    if answer is None:
        return "no answer"
    if not parts:
        return "no steps"
    if len(parts) < min_steps:
        return f"fewer than {min_steps} steps"
    if ends and any(before >= after for before, after in zip([0, *ends], ends, strict=False)):
        return "a step without a token of its own"
    return ""


def _mean_step(judged: Sequence[SelectedSolution], measure: str) -> float | None:
    values = [u for s in judged if s.ends for u in step_uncertainties(s.logprobs, s.ends, measure)]
    return sum(values) / len(values) if values else None


def choose(judged: Sequence[SelectedSolution], settings: SelectSettings, seed: int) -> list[SelectedSolution]:
    """Chooses the m right and n wrong solutions of a question that the strategy prefers; with `fill`, as many wrong
    ones as it takes to reach m + n."""
    chosen: list[SelectedSolution] = []
    for correct in (True, False):
        count = settings.m if correct else settings.n
        if settings.fill and not correct:
            count += settings.m - len(chosen)
        pool = [solution for solution in judged if solution.correct is correct]
        if len(pool) > count:
            pool = [pool[index] for index in _preferred(pool, count, settings, seed)]
        chosen += pool
    return chosen


def _preferred(pool: Sequence[SelectedSolution], count: int, settings: SelectSettings, seed: int) -> list[int]:
    match settings.selection:
        case "uncertainty":
            return sorted(range(len(pool)), key=lambda index: -pool[index].uncertainty)[:count]
        case "uncertainty-diversity":
            similar = token_similarity([solution.ids for solution in pool])
            return uncertain_and_diverse([s.uncertainty for s in pool], similar, count, settings.diversity)
        case "similarity":
            return least_similar(tf_idf([solution.text for solution in pool]), count)
        case _:
            return sorted(random.Random(seed).sample(range(len(pool)), count))


def tf_idf(texts: Sequence[str]) -> Vectors:
    vectors: Vectors = TfidfVectorizer(token_pattern=r"\S+").fit_transform(texts).toarray()
    return vectors


def least_similar(vectors: Vectors, count: int) -> list[int]:
    """Indices of `count` of the `vectors`, (texts, width), with low cosine similarity: the least similar pair, then one
    by one the vector with the lowest mean similarity to those chosen (SimPRM40K). Ties: by lower index."""
    if count <= 0:
        return []
    similar = cosine_similarity(vectors)
    first, second = np.triu_indices(len(vectors), 1)
    closest = similar[first, second].argmin()
    chosen = [int(first[closest]), int(second[closest])][:count]
    while len(chosen) < count:
        means = similar[:, chosen].mean(axis=1)
        means[chosen] = np.inf
        chosen.append(int(means.argmin()))
    return chosen


def token_similarity(ids: Sequence[Sequence[int]]) -> Vectors:
    """Cosine similarity of every two texts' token ids taken as numbers, the longer text cut to the shorter's length;
    (texts, texts). As in the authors' program; ids are not magnitudes, so it says little about what the texts mean."""
    padded = np.array(list(zip_longest(*ids, fillvalue=0)), dtype=float)  # (tokens, texts)
    norms = np.sqrt(
        np.cumsum(padded**2, axis=0)[[len(text) - 1 for text in ids]]
    )  # [i, j]: of text j cut to i's length
    similar: Vectors = padded.T @ padded / np.maximum(norms * norms.T, 1e-300)
    return similar


def uncertain_and_diverse(uncertainties: Sequence[float], similar: Vectors, count: int, diversity: float) -> list[int]:
    """Indices of `count` texts: the most uncertain one, then one by one the text with the highest
    (1 − diversity) · uncertainty + diversity · (1 − mean similarity to those chosen), with uncertainty min-max
    normalised (as in the authors' program). `similar` is (texts, texts). Ties: by lower index."""
    values = np.asarray(uncertainties)
    spread = np.ptp(values)
    scaled = (values - values.min()) / spread if spread else np.zeros(len(values))
    chosen: list[int] = []
    score = scaled
    while len(chosen) < count:
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        score = (1 - diversity) * scaled + diversity * (1 - similar[:, chosen].mean(axis=1))
    return chosen


def mean_change(uncertainties: Sequence[float]) -> float:
    """Mean of abs(Δu) over the steps, the authors' program's measure of a solution's uncertainty; 0 for one step."""
    changes = np.abs(np.diff(uncertainties))
    return float(changes.mean()) if changes.size else 0.0
