"""Selects the solutions worth annotating (paper, section 3.1; the appendix's algorithm)."""

import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from training import resumable, stage
from training.data.sample import seed_of
from training.settings import SelectSettings
from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.types import Split
from unprm.uncertainty import MEASURES

Decode = Callable[[Sequence[int]], str]
Vectors = npt.NDArray[np.floating[Any]]
Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, slots=True)
class JudgedSolution:
    """A well-formed solution. `ends`: for each step, the number of tokens up to its end, as from `step_ends`.
    `correct`: whether its answer is the gold one."""

    index: int
    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    steps: tuple[str, ...]
    ends: tuple[int, ...]
    answer: str
    correct: bool
    uncertainty: float


def step_ends(text: str, ids: Sequence[int], decode: Decode, split: Split = "auto") -> list[int]:
    """For each step of the text, the number of tokens up to its end; a token that reaches into the next step belongs to
    the next step. `ids` decode to `text`. The last step ends before the end-of-text token, after which a model would
    start another text."""
    starts = [start for start, _ in steps.spans(text, split)][1:]
    length = range(len(ids) + 1)
    whole = decode(ids)
    last = len(ids)
    while last and decode(ids[: last - 1]) == whole:  # only special tokens decode to nothing
        last -= 1
    return [*(bisect_right(length, start, key=lambda count: len(decode(ids[:count]))) - 1 for start in starts), last]


def step_uncertainties(logprobs: Sequence[float], ends: Sequence[int], measure: str) -> list[float]:
    """u of each step, from the tokens between its ends."""
    bounds = zip([0, *ends[:-1]], ends, strict=True)
    return [MEASURES[measure](logprobs[start:end]) for start, end in bounds]


def choose(judged: Sequence[JudgedSolution], settings: SelectSettings, embed: Embed, seed: int) -> list[JudgedSolution]:
    """Chooses the m right and n wrong solutions of a question that the strategy prefers; with `fill`, as many wrong
    ones as it takes to reach m + n."""
    chosen: list[JudgedSolution] = []
    for correct in (True, False):
        count = settings.m if correct else settings.n
        if settings.fill and not correct:
            count += settings.m - len(chosen)
        pool = [solution for solution in judged if solution.correct is correct]
        if len(pool) > count:
            pool = [pool[index] for index in _preferred(pool, count, settings, embed, seed)]
        chosen += pool
    return chosen


def _preferred(
    pool: Sequence[JudgedSolution], count: int, settings: SelectSettings, embed: Embed, seed: int
) -> list[int]:
    match settings.selection:
        case "uncertainty":
            return sorted(range(len(pool)), key=lambda index: -pool[index].uncertainty)[:count]
        case "uncertainty-diversity":
            similar = token_similarity([solution.ids for solution in pool])
            return uncertain_and_diverse([s.uncertainty for s in pool], similar, count, settings.diversity)
        case "similarity":
            return least_similar(embed([solution.text for solution in pool]), count)
        case _:
            return sorted(random.Random(seed).sample(range(len(pool)), count))


def tf_idf(texts: Sequence[str]) -> Vectors:
    """TF-IDF vectors of the texts' words and numbers, (texts, terms): rare terms weigh more."""
    vectors: Vectors = TfidfVectorizer(token_pattern=r"\S+").fit_transform(texts).toarray()
    return vectors


def sentence_embedding(name: str) -> Embed:
    """Loads a sentence-embedding model, by hub name or directory; needs `pip install unprm[embed]`."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, trust_remote_code=False)
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def least_similar(vectors: Vectors, count: int) -> list[int]:
    """Indices of `count` of the `vectors`, (texts, width), with low cosine similarity: the least similar pair, then one
    by one the vector with the lowest mean similarity to those chosen (SimPRM40K). Ties: by lower index."""
    if count <= 0:
        return []
    similar = cosine_similarity(vectors)
    pairs = ((similar[a, b], a, b) for a in range(len(vectors)) for b in range(a + 1, len(vectors)))
    chosen = list(min(pairs)[1:])[:count]
    while len(chosen) < count:
        rest = (index for index in range(len(vectors)) if index not in chosen)
        chosen.append(min(rest, key=lambda index: (similar[index, chosen].mean(), index)))
    return chosen


def token_similarity(ids: Sequence[Sequence[int]]) -> Vectors:
    """Cosine similarity of every two texts' token ids taken as numbers, the longer text cut to the shorter's length;
    (texts, texts). As in the authors' program; ids are not magnitudes, so it says little about what the texts mean."""
    vectors = [np.asarray(text, dtype=float) for text in ids]
    similar = np.ones((len(ids), len(ids)))
    for a, first in enumerate(vectors):
        for b, second in enumerate(vectors[:a]):
            length = min(len(first), len(second))
            first_cut, second_cut = first[:length], second[:length]
            norms = np.linalg.norm(first_cut) * np.linalg.norm(second_cut)
            similar[a, b] = similar[b, a] = first_cut @ second_cut / norms if norms else 0.0
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


class Selector:
    """Judges and selects solutions; `dropped` counts malformed and repeated ones by reason."""

    def __init__(self, equivalence: Equivalence, decode: Decode, settings: SelectSettings) -> None:
        self.equivalence, self.decode, self.settings = equivalence, decode, settings
        self.embed = sentence_embedding(settings.embedding) if settings.embedding else tf_idf
        self.dropped: Counter[str] = Counter()

    def judge(self, record: dict[str, Any]) -> Iterator[JudgedSolution]:
        """The well-formed solutions of a sampled question."""
        for index, completion in enumerate(record["completions"]):
            text, ids, logprobs = completion["text"], completion["ids"], completion["logprobs"]
            answer = extract(text, self.settings.extraction)
            split = self.settings.split
            parts = steps.split(text, split)
            ends = step_ends(text, ids, self.decode, split) if ids else []
            reason = _malformed(completion, answer, parts, ends, self.settings.min_steps)
            if reason or answer is None:
                self.dropped[reason] += 1
                continue
            yield JudgedSolution(
                index=index,
                text=text,
                ids=tuple(ids),
                logprobs=tuple(logprobs),
                steps=tuple(parts),
                ends=tuple(ends),
                answer=answer,
                correct=self.equivalence.equal(answer, record["answer"]),
                uncertainty=self._uncertainty(logprobs, ends),
            )

    def _uncertainty(self, logprobs: Sequence[float], ends: Sequence[int]) -> float:
        measure = self.settings.measure
        if self.settings.selection == "uncertainty-diversity":
            return mean_change(step_uncertainties(logprobs, ends, measure))
        return MEASURES[measure](logprobs)

    def select(self, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Records of the chosen solutions of a sampled question."""
        judged = list(self.judge(record))
        distinct: dict[str, JudgedSolution] = {}
        for solution in judged:
            if distinct.setdefault(solution.text, solution) is not solution:  # annotating it again would be a waste
                self.dropped["same text as another"] += 1
        seed = seed_of(self.settings.seed, record["model"], record["id"])
        means = {measure: _mean_step(judged, measure) for measure in MEASURES}
        for solution in choose(list(distinct.values()), self.settings, self.embed, seed):
            yield {
                "id": f"{record['id']}/{record['model']}/{solution.index}",
                "question": record["id"],
                "problem": record["problem"],
                "gold": record["answer"],
                "model": record["model"],
                "prompt": record["prompt"],
                **asdict(solution),
                "mean_step_uncertainty": means,
            }


def select(samples: Path, output: Path, selector: Selector, console: Console) -> tuple[int, int]:
    """Writes the selected solutions of a file of samples; returns the numbers of right and wrong ones. `console`: for
    the progress display."""
    made_with = json.loads(resumable.config_path(samples).read_text("utf-8"))
    config = {**asdict(selector.settings), "stage": "select", "samples": made_with}
    records = list(resumable.read(samples, "completions"))
    _check(records, samples, selector.settings)
    with stage.progress(console) as progress:
        each = progress.track(records, description="selecting")
        chosen = [solution for record in each for solution in selector.select(record)]
    resumable.write(output, config, chosen)
    right = sum(solution["correct"] for solution in chosen)
    return right, len(chosen) - right


def _check(records: Sequence[resumable.Record], samples: Path, settings: SelectSettings) -> None:
    """Raises `RecordInvalid` for samples without the token ids that "uncertainty-diversity" compares."""
    if settings.selection != "uncertainty-diversity":
        return
    for number, record in enumerate(records, 1):
        if any(completion["text"] and not completion["ids"] for completion in record["completions"]):
            reason = "selection by uncertainty-diversity compares token ids, and these came without (by a chat API)"
            raise RecordInvalid(str(samples), number, reason)


def _malformed(
    completion: dict[str, Any], answer: str | None, parts: list[str], ends: list[int], min_steps: int
) -> str:
    if not completion["finished"]:
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


def _mean_step(judged: Sequence[JudgedSolution], measure: str) -> float | None:
    values = [u for s in judged if s.ends for u in step_uncertainties(s.logprobs, s.ends, measure)]
    return sum(values) / len(values) if values else None
