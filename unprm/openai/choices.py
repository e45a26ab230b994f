"""Several choices of one prompt from a server of OpenAI's API, in requests of as many as it accepts.

llama.cpp refuses a request for more choices (`n`) than it has slots. Ollama and LM Studio know no `n` and give one.
"""

from collections.abc import Callable, Coroutine, Mapping, Sized
from contextlib import AbstractAsyncContextManager, nullcontext
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from unprm.openai.client import APIStatusError, OpenAIClient
from unprm.openai.completion import Samples
from unprm.task_groups import settled

Part = TypeVar("Part", bound=Sized)
Ask = Callable[[int, int], Coroutine[Any, Any, Part]]
"""Asks for choices: the number of the first, from 0, which makes its seed, and how many. Returns those that came."""


class Choices:
    """How many choices one server accepts in a request, found by trying."""

    def __init__(self) -> None:
        self._accepted: int | None = None

    async def gather(self, ask: Ask[Part], count: int, limit: int | None = None) -> list[Part | Exception]:
        """Asks for `count` choices in requests of at most `limit`; returns the result or error of every request, in the
        order of the choices.

        A request refused with an `APIStatusError` naming `n` is repeated in halves, missing choices one by one. Later
        calls begin with the accepted size.
        """
        first_size = size = min(number for number in (self._accepted, limit, count) if number is not None)
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


class Completions:
    """Asks a server for completions at `path`, in as many requests as it takes. A request waits for one of `places`."""

    def __init__(self, client: OpenAIClient, path: str, places: AbstractAsyncContextManager[Any] | None = None) -> None:
        self._client, self._path = client, path
        self._places = places or nullcontext()
        self._choices = Choices()

    async def sample(self, body: Mapping[str, Any], count: int, seed: int | None = None, affinity: str = "") -> Samples:
        """`count` completions, or fewer if the server returns none any more, those of each answer in the order of
        `index`. `seed`: of the first one; each further one has the next number. `affinity` as in `OpenAIClient`.

        Raises the first `APIError` of a request.
        """

        async def ask(first: int, size: int) -> Samples:
            fields = dict(body)
            if size > 1:
                fields["n"] = size
            if seed is not None:
                fields["seed"] = seed + first
            async with self._places:
                answer = Samples.read(await self._client.sample(self._path, fields, affinity))
            answer.completions = sorted(answer.completions, key=attrgetter("index"))[:size]
            return answer

        total = Samples()
        for part in await self._choices.gather(ask, count):
            if isinstance(part, Exception):
                raise part
            total.add(part)
        return total

    async def close(self) -> None:
        await self._client.close()
