"""The pretraining corpus of the embedded model, made on the fly and determined by a seed.

Four kinds of documents: solutions by careless authors, solutions reviewed step by step up to the first
error, sums, and sums reviewed. The reviews are there because a small model can't notice an error at the end
of a step unless it has learned to compute the step anew there.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from transformers import PreTrainedTokenizerFast

from training.mini.slips import Author, wrong_result
from unprm.mini.checker import first_error
from unprm.mini.domain import Operation
from unprm.mini.storyteller import generate

CARELESSNESS = 1.0
CAREFUL_CARELESSNESS = 0.3
REVIEWED_CARELESSNESS = 2.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text that is tokenised on its own, and what its tokens are in the loss.

    `given` tokens don't count, `learned` ones do; `expected` ones are right steps under review, which the
    early exit learns to foresee; a `verdict` is learned by the last layer only. `instead_of` is the right text
    where this one is wrong.
    """

    text: str
    role: Literal["given", "learned", "expected", "verdict"]
    instead_of: str | None = None


def solved(rng: random.Random, carelessness: float = CARELESSNESS) -> list[Piece]:
    """A problem and a careless author's solution."""
    problem = generate(rng)
    pieces = [Piece(problem.text + "\n", "given")]
    for step in Author(rng, carelessness).solve(problem):
        pieces += [Piece(step, "learned"), Piece("\n", "learned")]
    return pieces[:-1]


def solved_with_care(rng: random.Random) -> list[Piece]:
    """A problem and a careful author's solution."""
    return solved(rng, CAREFUL_CARELESSNESS)


def reviewed(rng: random.Random) -> list[Piece]:
    """A solution with a verdict after each step; it ends at the first wrong step, which is corrected."""
    problem = generate(rng)
    steps = Author(rng, REVIEWED_CARELESSNESS).solve(problem)
    wrong = first_error(problem, steps)
    pieces = [Piece("Review: " + problem.text + "\n", "given")]
    for step in steps[:wrong]:
        pieces += [Piece(step, "expected"), Piece(" right\n", "verdict")]
    if wrong is not None:
        expected = problem.operations[min(wrong, len(problem.operations) - 1)]
        right = problem.solution()[min(wrong, len(problem.operations) - 1)]
        pieces += [Piece(steps[wrong], "given", right), Piece(" wrong", "verdict")]
        pieces += [Piece(f", it is {expected}.", "learned")]
    return pieces


def sums(rng: random.Random) -> list[Piece]:
    """Operations as they come up in problems, with their results."""
    pieces = [Piece("Sums:\n", "given")]
    for operation in _operations(rng):
        expression, _, result = str(operation).rpartition(" = ")
        pieces += [Piece(expression + " =", "given"), Piece(f" {result}", "learned"), Piece(".\n", "learned")]
    return pieces


def reviewed_sums(rng: random.Random) -> list[Piece]:
    """The same, half of them wrong, each with a verdict."""
    pieces = [Piece("Review:\n", "given")]
    for o in _operations(rng):
        expression, _, result = str(o).rpartition(" = ")
        if rng.random() < 0.5:
            pieces += [
                Piece(expression + " =", "given"),
                Piece(f" {result}.", "expected"),
                Piece(" right\n", "verdict"),
            ]
        else:
            wrong = wrong_result(rng, o.symbol, o.left.value, o.right.value)
            pieces += [
                Piece(expression + " =", "given"),
                Piece(f" {wrong}.", "given", f" {result}."),
                Piece(" wrong", "verdict"),
            ]
            pieces += [Piece(f", it is {result}.\n", "learned")]
    return pieces


def _operations(rng: random.Random) -> list[Operation]:
    return [operation for _ in range(2) for operation in generate(rng).operations]


Kind = Callable[[random.Random], list[Piece]]


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each kind of document occurs, and what counts in the loss (a learned token: 1): a verdict, the
    early exit, and at each token of a step under review whether it is the right token, or the first wrong one."""

    kinds: dict[Kind, float]
    verdict: float = 1.0
    early: float = 0.0
    right_token: float = 0.0
    wrong_token: float = 0.0


SOLVING = Mixture({solved: 0.42, reviewed: 0.43, sums: 0.05, reviewed_sums: 0.1})
_REVIEWS: dict[Kind, float] = {solved: 0.3, reviewed: 0.35, sums: 0.05, reviewed_sums: 0.3}
FORESEEING = Mixture(_REVIEWS, verdict=4.0, early=1.0)
REVIEWING = Mixture(_REVIEWS, verdict=4.0, early=1.0, right_token=0.1, wrong_token=3.0)
POLISHING = replace(REVIEWING, kinds={solved_with_care: 0.6, reviewed: 0.25, sums: 0.05, reviewed_sums: 0.1})
"""The four parts of the corpus. Reviews come late: a model that can't do sums yet can't learn to review them;
it learns to foresee a step before its last layers, then to compare each token with what was foreseen;
at last it reads authors who make fewer slips."""


def document(rng: random.Random, mixture: Mixture) -> list[Piece]:
    """One document of a kind drawn with the mixture's frequencies."""
    return rng.choices(list(mixture.kinds), list(mixture.kinds.values()))[0](rng)


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids and, for each, what it weighs in the loss: being predicted at the last layer and at the early
    exit; and, at its own position, being told from a wrong token (`wrong` where it is one)."""

    ids: list[int]
    last: list[float]
    early: list[float]
    review: list[float]
    wrong: list[bool]


def encode(tokenizer: PreTrainedTokenizerFast, pieces: list[Piece], mixture: Mixture) -> Document:
    """The tokens of a document, with the end-of-text token."""
    encoded = tokenizer([piece.text for piece in pieces], add_special_tokens=False)["input_ids"]
    made = Document([], [], [], [], [])
    last = {"given": 0.0, "learned": 1.0, "expected": 0.0, "verdict": mixture.verdict}
    early = {"given": 0.0, "learned": mixture.early, "expected": mixture.early, "verdict": 0.0}
    for piece, ids in zip(pieces, encoded, strict=True):
        made.ids.extend(ids)
        made.last.extend([last[piece.role]] * len(ids))
        made.early.extend([early[piece.role]] * len(ids))
        slip = _first_difference(tokenizer, piece, ids)
        reviewed = ids if piece.role == "expected" else ids[:slip]
        made.review.extend([mixture.right_token] * len(reviewed) + [0.0] * (len(ids) - len(reviewed)))
        made.wrong.extend([False] * len(ids))
        if piece.instead_of is not None:
            made.review[slip - len(ids)] = mixture.wrong_token
            made.wrong[slip - len(ids)] = True
    return Document(
        [*made.ids, tokenizer.eos_token_id],
        [*made.last, 1.0],
        [*made.early, 0.0],
        [*made.review, 0.0],
        [*made.wrong, False],
    )


def _first_difference(tokenizer: PreTrainedTokenizerFast, piece: Piece, ids: list[int]) -> int:
    """Index of the first token of a wrong text that differs from the right one; 0 for a text that isn't wrong."""
    if piece.instead_of is None:
        return 0
    right = tokenizer(piece.instead_of, add_special_tokens=False)["input_ids"]
    return next((k for k, (own, other) in enumerate(zip(ids, right, strict=False)) if own != other), len(ids) - 1)


def batches(
    tokenizer: PreTrainedTokenizerFast, mixture: Mixture, seed: str, tokens: int, multiple: int
) -> Iterator[list[Document]]:
    """Endless batches of documents of similar length, at most `tokens` when padded to a multiple of `multiple`."""
    for chunk in itertools.count():
        rng = random.Random(f"{seed}/{chunk}")
        pieces = (document(rng, mixture) for _ in range(1024))
        documents = sorted((encode(tokenizer, p, mixture) for p in pieces), key=lambda d: len(d.ids))
        made: list[list[Document]] = [[]]
        for doc in documents:
            if (len(made[-1]) + 1) * (-(-len(doc.ids) // multiple) * multiple) > tokens:
                made.append([])
            made[-1].append(doc)
        rng.shuffle(made)
        yield from made
