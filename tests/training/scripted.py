"""A sampler without a model: it solves problems of the embedded model's domain by the exact solution, with slips.

Its tokens are characters. From a prefix without an error it goes on rightly at `RATE`, from one with an error
never. Everything depends on the seed alone.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from research.mini.checker import first_error
from unprm import steps
from unprm.errors import SamplerFailed
from unprm.mini.domain import Problem, parse
from unprm.types import Completion

RATE = 0.7


class ScriptedSampler:
    """`fails`: problems that contain this text can't be sampled. `seconds`: how long each call takes."""

    def __init__(self, fails: str = "", seconds: float = 0.0) -> None:
        self.fails, self.seconds = fails, seconds
        self.completions = 0
        self.affinities: set[str] = set()

    model = "scripted"
    neutral: Mapping[str, float] = {}

    def prompt(self, problem: str) -> tuple[int, ...]:
        return tuple(map(ord, problem + "\n"))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        return await self.complete(self.prompt(problem), count, seed, "")

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        await asyncio.sleep(self.seconds)
        text = self.decode(prompt)
        if self.fails and self.fails in text:
            raise SamplerFailed("the script says so")
        self.completions += count
        self.affinities.add(affinity)
        problem = parse(text.partition("\n")[0])
        return [_complete(problem, text, random.Random(seed + index)) for index in range(count)]

    async def close(self) -> None:
        pass


def _complete(problem: Problem, text: str, rng: random.Random) -> Completion:
    _, _, written = text.partition("\n")
    done = steps.split(written)
    wrong = first_error(problem, done) is not None
    slip = None if rng.random() < RATE else rng.randrange(len(done), len(problem.operations) + 1)
    lines, shift = [], 0
    for index, step in enumerate(problem.solution()[len(done) :], len(done)):
        shift = shift or (17 if wrong or slip == index else 0)
        lines.append(_shifted(step, shift))
    rest = "\n".join(lines) + "\n" * rng.randint(1, 30)  # few texts are equal
    ids = tuple(map(ord, "\n" + rest if written and not written.endswith("\n") else rest))
    hesitation = 2.0 if shift else 0.5
    return Completion(rest, ids, tuple(-hesitation * rng.random() for _ in ids), finished=True)


def _shifted(step: str, shift: int) -> str:
    """The step with another result, and another answer where it has one."""
    head, found, tail = step.partition(" = ")
    value, dot, rest = tail.partition(".")
    changed = f"{head}{found}{int(value) + shift}{dot}{rest}"
    return changed.replace(f"\\boxed{{{value}}}", f"\\boxed{{{int(value) + shift}}}")
