"""From solutions to what a model reads."""

import asyncio
from collections.abc import Mapping

from server.context import Context
from server.model import Model
from unprm.errors import SolutionTooLong
from unprm.types import Encoded, Solution


async def encode(
    model: Model, problem: str, solutions: Mapping[int, Solution], context: Context
) -> dict[int, Encoded | SolutionTooLong]:
    """The model's input for each solution, by its index in the request; an error for those beyond its limit."""
    return await asyncio.to_thread(_encode, model, problem, solutions)


def _encode(model: Model, problem: str, solutions: Mapping[int, Solution]) -> dict[int, Encoded | SolutionTooLong]:
    limit = model.engine.description.max_tokens
    found: dict[int, Encoded | SolutionTooLong] = {}
    for index, solution in solutions.items():
        encoded = model.engine.format.encode(problem, solution.steps)
        fits = len(encoded.ids) <= limit
        found[index] = encoded if fits else SolutionTooLong(index, len(encoded.ids), limit)
    return found
