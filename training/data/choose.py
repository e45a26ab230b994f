"""Chooses the solutions of a question that a selection prefers (paper, section 3.1; the appendix's algorithm)."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from ..schema import SelectedSolution
from ..stage_settings import SelectSettings

Vectors = npt.NDArray[np.floating[Any]]


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
    """TF-IDF vectors of the texts' words and numbers, (texts, terms): rare terms weigh more."""
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
