"""Encodes texts as model input: by turns, and without work on those that can't fit."""

from collections.abc import Iterator, Mapping
from functools import partial

from server.http.context import Context
from server.models.model import Model
from server.sharing import Turns
from unprm.errors import SolutionTooLong
from unprm.types import Encoded, Engine, Solution

_PIECE = 65_536
"""Characters that are encoded in a turn; a longer solution gets a turn of its own."""

Outcomes = dict[int, Encoded | SolutionTooLong]
"""By the index of a solution: the model input, or why there is none."""


async def encode(model: Model, problem: str, solutions: Mapping[int, Solution], context: Context) -> Outcomes:
    """The model input of each solution, by its index in the request; the error for one beyond the model's window.

    A solution with more characters than the window's tokens can stand for is not encoded at all. The others are, in
    turns with other requests; a cancelled request gets no further turn. Raises `Overloaded` if too much of this caller
    is being encoded, and `ModelUnavailable`.
    """
    engine = model.engine
    outcomes: Outcomes = {
        index: error for index in solutions if (error := _too_many(engine, problem, index, solutions[index]))
    }
    left = {index: solution for index, solution in solutions.items() if index not in outcomes}
    characters = _characters(problem, left)
    # what takes a single turn is always accepted: a caller's long texts must not keep out its short ones
    with model.encoding(context.share, characters if characters > _PIECE else 0) as turns:
        fewest = await _fewest(engine, problem, turns) if len(left) > 1 else 0
        if fewest > engine.description.max_tokens:
            outcomes |= {index: _too_long(engine, index, fewest) for index in left}
        else:
            for piece in _pieces(problem, left):
                outcomes |= await turns.run(_characters(problem, piece), partial(_encoded, engine, problem, piece))
    return {index: outcomes[index] for index in solutions}


async def _fewest(engine: Engine, problem: str, turns: Turns) -> int:
    """Lower bound on the tokens of any solution with this problem. Measured only if the problem alone may be too long,
    since it would then be encoded in vain for every solution; else 0."""
    if len(problem) <= engine.description.max_tokens:
        return 0
    return len((await turns.run(len(problem), partial(engine.format.encode, problem, ("1",)))).ids)


def _characters(problem: str, solutions: Mapping[int, Solution]) -> int:
    return sum(len(problem) + sum(map(len, solution.steps)) for solution in solutions.values())


def _too_many(engine: Engine, problem: str, index: int, solution: Solution) -> SolutionTooLong | None:
    """The error for a solution that has too many characters for the window, whatever its tokens."""
    fewest = -(-_characters(problem, {index: solution}) // engine.format.longest_token)
    return _too_long(engine, index, fewest) if fewest > engine.description.max_tokens else None


def _too_long(engine: Engine, index: int, fewest: int) -> SolutionTooLong:
    return SolutionTooLong(index, fewest, engine.description.max_tokens, exact=False)


def _pieces(problem: str, solutions: Mapping[int, Solution]) -> Iterator[dict[int, Solution]]:
    """The solutions in parts, one for each turn."""
    piece: dict[int, Solution] = {}
    for index, solution in solutions.items():
        piece[index] = solution
        if _characters(problem, piece) >= _PIECE:
            yield piece
            piece = {}
    if piece:
        yield piece


def _encoded(engine: Engine, problem: str, solutions: Mapping[int, Solution]) -> Outcomes:
    limit = engine.description.max_tokens
    encoded = {index: engine.format.encode(problem, solution.steps) for index, solution in solutions.items()}
    return {
        index: item if (tokens := len(item.ids)) <= limit else SolutionTooLong(index, tokens, limit)
        for index, item in encoded.items()
    }
