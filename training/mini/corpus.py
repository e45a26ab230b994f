"""The pretraining corpus of the embedded model, made on the fly and determined by a seed.

Four kinds of documents: solutions, solutions by careless authors in the layout that the PRM reads (a tag after
each step, where the verdict on it is learned), sums, and sums in the same layout. Slips are learned only when sums
and stories have been: with slips in the text from the start, a first try learned to calculate much later. Verdicts are
in the corpus because a small model can't notice an error at the end of a step unless it has learned to compute the
step anew.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from training.mini.slips import Author, wrong_result
from unprm.formats.unprm import STEP_TAG
from unprm.mini.checker import first_error, labels
from unprm.mini.domain import Operation, Problem
from unprm.mini.storyteller import DEMANDING, generate

CARELESSNESS = (0.1, 1.2)
CHUNK = 4096
"""Documents that are made, sorted by length and cut into batches together."""
RIGHT_TOKEN, WRONG_TOKEN = 0.1, 3.0
"""What a token counts in the review: wrong ones are rare."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text that is tokenised on its own, and what is learned from its tokens.

    `learned`: to foresee them. `judged`: to tell them from wrong tokens; in a wrong text, which stands
    `instead_of` the right one, up to the first wrong token. `verdict`: of a step tag, whether its step is right.
    """

    text: str
    learned: bool = False
    judged: bool = False
    instead_of: str | None = None
    verdict: bool | None = None


def solved(rng: random.Random, carelessness: float = 0.0) -> list[Piece]:
    """A problem and its right solution, or a careless author's with the slips included."""
    problem = generate(rng, DEMANDING)
    steps = Author(rng, carelessness).solve(problem)
    pieces = [Piece(problem.text + "\n")]
    for piece in _steps(problem, steps, slips_learned=True):
        pieces += [piece, Piece("\n", learned=True)]
    return pieces[:-1]


def reviewed(rng: random.Random) -> list[Piece]:
    """A problem and a solution with a tag after each step; only the right part of it is learned."""
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
    """Operations as they come up in problems, with their results."""
    pieces = []
    for expression, result in _operations(rng):
        pieces += [Piece(expression), Piece(f" {result}.", learned=True, judged=True), Piece("\n")]
    return pieces[:-1]


def reviewed_sums(rng: random.Random) -> list[Piece]:
    """The same, half of them wrong, with a tag after each."""
    pieces = []
    for expression, result in _operations(rng):
        _, left, symbol, right, _ = expression.split()
        value = wrong_result(rng, symbol, int(left), int(right)) if rng.random() < 0.5 else result
        if value == result:
            pieces += [Piece(expression), Piece(f" {value}.", learned=True, judged=True)]
        else:
            pieces += [Piece(expression), Piece(f" {value}.", judged=True, instead_of=f" {result}.")]
        pieces.append(Piece(STEP_TAG, verdict=value == result))
    return pieces


def _operations(rng: random.Random) -> list[tuple[str, int]]:
    """Expressions such as `"Sum: 12 + 30 ="` with their values."""
    operations: list[Operation] = [operation for _ in range(2) for operation in generate(rng, DEMANDING).operations]
    return [(f"Sum: {o.left.value} {o.symbol} {o.right.value} =", o.value) for o in operations]


def solved_carelessly(rng: random.Random) -> list[Piece]:
    """A problem and a careless author's solution, slips included."""
    return solved(rng, carelessness=1.2)


Kind = Callable[[random.Random], list[Piece]]
Mixture = dict[Kind, float]
"""How often each kind of document occurs."""
RIGHT: Mixture = {solved: 0.42, reviewed: 0.4, sums: 0.1, reviewed_sums: 0.08}
CARELESS: Mixture = {solved_carelessly: 0.52, reviewed: 0.4, sums: 0.02, reviewed_sums: 0.06}
RIGHT_TEXT: Mixture = {solved: 0.8, sums: 0.2}
CARELESS_TEXT: Mixture = {solved_carelessly: 0.96, sums: 0.04}
"""The last two have no verdict in them."""


def document(rng: random.Random, mixture: Mixture = RIGHT) -> list[Piece]:
    """One document of a kind drawn with the mixture's frequencies."""
    return rng.choices(list(mixture), list(mixture.values()))[0](rng)


@dataclass(frozen=True, slots=True)
class Document:
    """Token ids and, for each: whether it is to be foreseen (`learned`), its weight when it is told from a
    wrong token (`judged`) and whether it is one (`wrong`); whether it is a tag, and of a right step."""

    ids: list[int]
    learned: list[bool]
    judged: list[float]
    wrong: list[bool]
    tag: list[bool]
    right: list[bool]


def encode(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[Piece]) -> Document:
    """The tokens of a document; a solution or sum ends with the end-of-text token, a reviewed one with its tag."""
    encoded = tokenizer([piece.text for piece in pieces], add_special_tokens=False)["input_ids"]
    made = Document([], [], [], [], [], [])
    for piece, ids in zip(pieces, encoded, strict=True):
        slip = len(ids) if piece.instead_of is None else _first_difference(tokenizer, ids, piece.instead_of)
        right = slip if piece.judged else 0
        wrong = piece.judged and slip < len(ids)
        # what is left out of a wrong text teaches nothing, what comes before its first wrong token does
        learned = len(ids) if piece.learned else right
        made.ids.extend(ids)
        made.learned.extend(index < learned for index in range(len(ids)))
        made.judged.extend(
            RIGHT_TOKEN if index < right else WRONG_TOKEN * (wrong and index == slip) for index in range(len(ids))
        )
        made.wrong.extend(wrong and index == slip for index in range(len(ids)))
        made.tag.extend([piece.verdict is not None] * len(ids))
        made.right.extend([bool(piece.verdict)] * len(ids))
    if not made.tag[-1]:
        end = Document([tokenizer.eos_token_id], [True], [0.0], [False], [False], [False])
        for name in Document.__slots__:
            getattr(made, name).extend(getattr(end, name))
    return made


def _first_difference(tokenizer: PreTrainedTokenizerBase, ids: list[int], right: str) -> int:
    """Index of the first token that differs from those of the right text."""
    others = tokenizer(right, add_special_tokens=False)["input_ids"]
    return next((k for k, (token, other) in enumerate(zip(ids, others, strict=False)) if token != other), len(ids) - 1)


def batches(
    tokenizer: PreTrainedTokenizerBase, mixture: Mixture, seed: str, tokens: int, lengths: Sequence[int]
) -> Iterator[tuple[int, list[Document]]]:
    """Endless batches `(length, documents)` of at most `tokens` tokens once padded to that length, one of the
    ascending `lengths`; longer documents are left out."""
    for chunk in itertools.count():
        rng = random.Random(f"{seed}/{chunk}")
        documents = sorted((encode(tokenizer, document(rng, mixture)) for _ in range(CHUNK)), key=lambda d: len(d.ids))
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
