"""Rollouts for many concurrent searches, against the same engine on a flat list of the same prompts."""

import asyncio
import random

from benchmarks.timing import Comparison, compare
from training.mini.slips import Author
from unprm import mini
from unprm.mini.storyteller import generate
from unprm.samplers.load import SamplerSource
from unprm.types import Completion, Sampler, SamplingSettings

SEARCHES, BLOCKS, BLOCK = 64, 2, 8


def prompts(sampler: Sampler, rng: random.Random) -> list[tuple[int, ...]]:
    """A prefix of a solution for each search, as token ids."""
    made = []
    for _ in range(SEARCHES):
        problem = generate(rng)
        steps = Author(rng, 0.5).solve(problem)
        kept = steps[: rng.randrange(len(steps))]
        made.append(sampler.prompt(problem.text + "\n" + "\n".join(kept) if kept else problem.text))
    return made


async def as_searches(sampler: Sampler, prefixes: list[tuple[int, ...]]) -> int:
    """Each search requests its next block when it has the previous one; returns the number of tokens."""

    async def search(number: int, prompt: tuple[int, ...]) -> int:
        tokens = 0
        for block in range(BLOCKS):
            tokens += _tokens(await sampler.complete(prompt, BLOCK, 1000 * number + BLOCK * block, ""))
        return tokens

    return sum(await asyncio.gather(*(search(number, prompt) for number, prompt in enumerate(prefixes))))


async def as_list(sampler: Sampler, prefixes: list[tuple[int, ...]]) -> int:
    """Requests all rollouts at once; returns the number of tokens."""
    calls = (sampler.complete(prompt, BLOCK * BLOCKS, 1000 * number, "") for number, prompt in enumerate(prefixes))
    return sum(map(_tokens, await asyncio.gather(*calls)))


def run() -> list[Comparison]:
    """Draws the same number of completions per prompt in both ways."""
    sampler = SamplerSource("transformers", mini.NAME).load(SamplingSettings(max_tokens=192))
    prefixes = prompts(sampler, random.Random(0))
    return [
        compare(
            f"{SEARCHES} searches, {BLOCKS} blocks of {BLOCK} rollouts",
            lambda: asyncio.run(as_searches(sampler, prefixes)),
            "a flat list of the same prompts",
            lambda: asyncio.run(as_list(sampler, prefixes)),
            rounds=3,
        )
    ]


def _tokens(completions: list[Completion]) -> int:
    return sum(len(completion.ids) for completion in completions)
