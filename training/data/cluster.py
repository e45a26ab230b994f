"""A sampler whose engines are actors on a Ray cluster, so that a stage runs there as it does here.

An actor that dies is started again and repeats its calls; they are seeded, so the records are the same.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from unprm.errors import SamplerFailed
from unprm.samplers.prompts import Prompter
from unprm.types import Completion, Sampler


class ClusterSampler:
    """A `Sampler` of `actors` actors with an engine and `gpus` GPUs each, on the cluster at `RAY_ADDRESS` or a local
    one. `load` makes an actor's sampler of `model`; it is pickled. A question goes to the same actor each time.

    Calls raise `SamplerFailed` as well if an actor can't load the model.
    """

    neutral: Mapping[str, float] = {}

    def __init__(
        self, model: str, load: Callable[[], Sampler], prompter: Prompter, actors: int, gpus: float = 0.0
    ) -> None:
        self.model, self.prompt, self.decode = model, prompter.encode, prompter.decode
        engine = ray.remote(num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(_Engine)
        self._engines = [engine.remote(load) for _ in range(actors)]

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem."""
        return await self._call(problem, "solve", problem, count, seed)

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt."""
        return await self._call(affinity, "complete", prompt, count, seed, affinity)

    async def close(self) -> None:
        """Ends the actors."""
        for engine in self._engines:
            ray.kill(engine)

    async def _call(self, question: str, method: str, *arguments: Any) -> list[Completion]:
        engine = self._engines[zlib.crc32(question.encode()) % len(self._engines)]
        try:
            return list(await engine.call.remote(method, *arguments))
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError as error:
            raise SamplerFailed(f"an actor could not load the model: {error}") from error


class _Engine:
    """An actor's sampler. It works on many calls at once, as they are coroutines."""

    def __init__(self, load: Callable[[], Sampler]) -> None:
        self._sampler = load()

    async def call(self, method: str, *arguments: Any) -> Any:
        return await getattr(self._sampler, method)(*arguments)
