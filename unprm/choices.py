"""Several choices of one prompt from a server of OpenAI's API, in requests of as many as it takes.

llama.cpp refuses a request for more choices (`n`) than it has slots. Ollama and LM Studio know no `n` and give one.
"""

from collections.abc import Callable, Coroutine, Sized
from operator import itemgetter
from typing import Any, TypeVar

from unprm.concurrent import settled
from unprm.openai_api import APIStatusError

Part = TypeVar("Part", bound=Sized)
Ask = Callable[[int, int], Coroutine[Any, Any, Part]]
"""Asks for choices: the number of the first, from 0, which makes its seed, and how many. Returns those that came."""


class Choices:
    """How many choices one server takes in a request, learned from its responses."""

    def __init__(self) -> None:
        self._accepted: int | None = None

    async def gather(self, ask: Ask[Part], count: int, limit: int | None = None) -> list[Part | Exception]:
        """What each request for a part of `count` choices returns or raises, in the order of the choices. A part has at
        most `limit`.

        A part that is refused with an `APIStatusError` naming `n` is requested again in halves, and what a
        response lacks one by one. What was accepted then is what later calls begin with.
        """
        first_size = size = min(size for size in (self._accepted, limit, count) if size is not None)
        left, results = [(0, count)], list[tuple[int, Part | Exception]]()
        while left:
            parts = [
                (start, min(size, first + total - start))
                for first, total in left
                for start in range(first, first + total, size)
            ]
            left = []
            for (first, total), result in zip(parts, await settled(ask(*part) for part in parts), strict=True):
                if total > 1 and isinstance(result, APIStatusError) and result.refuses("n"):
                    left.append((first, total))
                    size = min(size, total // 2)
                    continue
                results.append((first, result))
                if not isinstance(result, Exception) and len(result) < total and total > 1:
                    left.append((first + len(result), total - len(result)))
                    size = max(1, min(size, len(result)))
        results.sort(key=itemgetter(0))
        outcomes = [result for _, result in results]
        if size < first_size and not all(isinstance(outcome, Exception) for outcome in outcomes):
            self._accepted = size
        return outcomes
