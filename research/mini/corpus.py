"""The pretraining corpus of the embedded model, generated on the fly from a seed.

Four kinds of documents: solutions; solutions by careless authors in the PRM's input layout (a tag after each step, at
which the verdict is learned); sums; and sums in that layout. Slips are learned only after sums and stories: in a first
attempt with slips in the text from the start, the model learned to calculate much later. The corpus contains verdicts
because a small model cannot notice an error at the end of a step unless it has learned to recompute the step.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from research.mini.checker import first_error, labels
from unprm.formats.unprm import STEP_TAG
from unprm.mini.domain import Operation, Problem
from unprm.mini.storyteller import DEMANDING, generate

from .slips import Author, wrong_result

CARELESSNESS = (0.1, 1.2)
CHUNK = 4096
"""Number of documents that are generated, sorted by length and split into batches together."""
RIGHT_TOKEN, WRONG_TOKEN = 0.1, 3.0
"""Weights of right and wrong tokens in the review; wrong ones are rare."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text that is tokenised separately, and what is learned from its tokens.

    `learned`: to predict them. `judged`: to tell right tokens from wrong ones; in a wrong text, up to the first token
    that differs from the right text `instead_of`. `verdict`: for a step tag, whether its step is right.
    """

    text: str
    learned: bool = False
    judged: bool = False
    instead_of: str | None = None
    verdict: bool | None = None


def solved(rng: random.Random, carelessness: float = 0.0) -> list[Piece]:
    """A problem and its right solution, or a careless author's solution with slips."""
    problem = generate(rng, DEMANDING)
    steps = Author(rng, carelessness).solve(problem)
    pieces = [Piece(problem.text + "\n")]
    for piece in _steps(problem, steps, slips_learned=True):
        pieces += [piece, Piece("\n", learned=True)]
    return pieces[:-1]


def reviewed(rng: random.Random) -> list[Piece]:
    """A problem and a careless author's solution with a tag after each step; only its right part is learned."""
    problem = generate(rng, DEMANDING)
    steps = Author(rng, rng.uniform(*CARELESSNESS)).solve(problem)
    pieces = [Piece(problem.text + "\n")]
    for piece, verdict in zip(_steps(problem, steps, slips_learned=False), labels(problem, steps), strict=True):
        pieces += [piece, Piece(STEP_TAG, verdict=verdict)]
    return pieces


def _steps(problem: Problem, steps: Sequence[str], slips_learned: bool) -> Iterator[Piece]:
    wrong = first_error(problem, steps)
    for index, step in enumerate(steps):
        if wrong is None or index < wrong:
            yield Piece(step, learned=True, judged=True)
        elif index == wrong:
            right = problem.solution()
            yield Piece(step, learned=slips_learned, judged=True, instead_of=right[min(index, len(right) - 1)])
        else:
            yield Piece(step, learned=slips_learned)


def sums(rng: random.Random) -> list[Piece]:
    """Operations as they occur in problems, with their results."""
    pieces = []
    for operation in _operations(rng):
        pieces += [*_sum(operation, operation.value), Piece("\n")]
    return pieces[:-1]


def reviewed_sums(rng: random.Random) -> list[Piece]:
    """As `sums`, but with about half of the results wrong and a tag after each."""
    pieces = []
    for o in _operations(rng):
        value = wrong_result(rng, o.symbol, o.left.value, o.right.value) if rng.random() < 0.5 else o.value
        pieces += [*_sum(o, value), Piece(STEP_TAG, verdict=value == o.value)]
    return pieces


def _operations(rng: random.Random) -> list[Operation]:
    return [operation for _ in range(2) for operation in generate(rng, DEMANDING).operations]


def _sum(operation: Operation, value: int) -> list[Piece]:
    """An expression such as `Sum: 12 + 30 =`, and its value, right or wrong."""
    expression, _, result = str(operation).rpartition(" ")
    right = value == operation.value
    return [
        Piece(f"Sum: {expression}"),
        Piece(f" {value}.", learned=right, judged=True, instead_of=None if right else f" {result}."),
    ]


solved_carelessly = partial(solved, carelessness=1.2)
Kind = Callable[[random.Random], list[Piece]]
Mixture = dict[Kind, float]
"""Frequency of each kind of document."""
RIGHT: Mixture = {solved: 0.42, reviewed: 0.4, sums: 0.1, reviewed_sums: 0.08}
CARELESS: Mixture = {solved_carelessly: 0.52, reviewed: 0.4, sums: 0.02, reviewed_sums: 0.06}


def document(rng: random.Random, mixture: Mixture = RIGHT) -> list[Piece]:
    """One document, its kind drawn with the mixture's frequencies."""
    return rng.choices(list(mixture), list(mixture.values()))[0](rng)


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids and, for each token: whether to predict it (`learned`); its weight in the review (`judged`), and
    whether it is wrong; whether it is a step tag (`tag`), and whether that step is right."""

    ids: list[int]
    learned: list[bool]
    judged: list[float]
    wrong: list[bool]
    tag: list[bool]
    right: list[bool]


def encode(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[Piece]) -> Document:
    """The tokens of a document; a solution or sum ends with the end-of-text token, a reviewed one with its tag."""
    encoded = tokenizer([piece.text for piece in pieces], add_special_tokens=False)["input_ids"]
    tokens: list[tuple[Any, ...]] = []
    for piece, ids in zip(pieces, encoded, strict=True):
        slip = len(ids) if piece.instead_of is None else _first_difference(tokenizer, ids, piece.instead_of)
        right = slip if piece.judged else 0
        # tokens of a wrong text are learned up to the first wrong one
        learned = len(ids) if piece.learned else right
        for index, token in enumerate(ids):
            wrong = piece.judged and index == slip
            weight = RIGHT_TOKEN if index < right else WRONG_TOKEN * wrong
            tokens.append((token, index < learned, weight, wrong, piece.verdict is not None, bool(piece.verdict)))
    if pieces[-1].verdict is None:
        tokens.append((tokenizer.eos_token_id, True, 0.0, False, False, False))
    return Document(*map(list, zip(*tokens, strict=True)))


def _first_difference(tokenizer: PreTrainedTokenizerBase, ids: list[int], right: str) -> int:
    """Index of the first token that differs from the right text's; the last index if none of those compared does."""
    others = tokenizer(right, add_special_tokens=False)["input_ids"]
    return next((k for k, (token, other) in enumerate(zip(ids, others, strict=False)) if token != other), len(ids) - 1)


def batches(
    tokenizer: PreTrainedTokenizerBase,
    mixture: Mixture,
    seed: str,
    tokens: int,
    lengths: Sequence[int],
    sorted_at_once: int = CHUNK,
) -> Iterator[tuple[int, list[Document]]]:
    """Endless batches `(length, documents)`: at most `tokens` tokens when padded to `length`, one of the ascending
    `lengths`. Documents longer than all of these are left out."""
    for chunk in itertools.count():
        rng = random.Random(f"{seed}/{chunk}")
        written = (encode(tokenizer, document(rng, mixture)) for _ in range(sorted_at_once))
        documents = sorted(written, key=lambda d: len(d.ids))
        made: list[tuple[int, list[Document]]] = []
        for doc in documents:
            length = next((length for length in lengths if len(doc.ids) <= length), None)
            if length is None:
                continue
            if not made or (len(made[-1][1]) + 1) * length > tokens:
                made.append((length, []))
            made[-1] = (length, [*made[-1][1], doc])
        rng.shuffle(made)
        yield from made
