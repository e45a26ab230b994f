"""Rollouts: how often a model reaches the right answer from a prefix of a solution."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.types import Extraction, Rollout, Sampler
from unprm.uncertainty import Estimator

from ..stage_settings import AdaptiveSettings
from .sample import seed_of


@dataclass(slots=True)
class Prefix:
    """A prefix of a solution from which rollouts start: its token ids, including the prompt's, and rollouts so far."""

    ids: tuple[int, ...]
    prompt_length: int
    gold_answer: str
    seed: int
    rollouts: list[Rollout] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def key(self) -> str:
        """Digest of the token ids: equal prefixes have equal keys."""
        return digest(self.ids)


Memory = dict[tuple[int, str], Prefix]
"""Prefixes by seed and key."""


@dataclass(frozen=True, slots=True)
class Roller:
    """Draws rollouts with a sampler and judges them; reuses the rollouts that a prefix already has. `drawn` is called
    with those that are new."""

    sampler: Sampler
    equivalence: Equivalence
    estimator: Estimator
    extraction: Extraction = "auto"
    drawn: Callable[[Sequence[Rollout]], None] = lambda rollouts: None

    async def draw(self, prefix: Prefix, count: int) -> list[Rollout]:
        """The first `count` rollouts of a prefix. Raises `SamplerFailed` if the sampler does."""
        async with prefix.lock:
            have = len(prefix.rollouts)
            if have < count:
                prefix.rollouts += await self._more(prefix, have, count - have)
        return prefix.rollouts[:count]

    async def sample(self, prefix: Prefix, plan: AdaptiveSettings) -> list[Rollout]:
        """The rollouts of adaptive sampling (paper, section 3.2)."""
        rollouts = await self.draw(prefix, plan.first)
        while not finished(rollouts, plan):
            rollouts = await self.draw(prefix, min(plan.most, len(rollouts) + plan.block))
        return rollouts

    async def _more(self, prefix: Prefix, have: int, count: int) -> list[Rollout]:
        # the n-th rollout has the same seed however rollouts are grouped into calls
        seed = seed_of(prefix.seed, prefix.key()) + have
        affinity = digest(prefix.ids[: prefix.prompt_length])  # by question: all its prefixes are cached together
        completions = await self.sampler.complete(prefix.ids, count, seed, affinity)
        written = prefix.ids[prefix.prompt_length :]
        answers = [
            extract(self.sampler.decode((*written, *completion.ids)), self.extraction) if completion.finished else None
            for completion in completions
        ]

        def judge() -> list[bool]:
            return [answer is not None and self.equivalence.equal(answer, prefix.gold_answer) for answer in answers]

        right = await asyncio.to_thread(judge)
        rollouts = [Rollout(c.logprobs, ok) for c, ok in zip(completions, right, strict=True)]
        self.drawn(rollouts)
        return rollouts


def fixed_count(rollouts: Sequence[Rollout], plan: AdaptiveSettings) -> int:
    """Number of rollouts for every prefix of a question, as in the authors' program: as many as adaptive sampling takes
    of `rollouts`, all `plan.most` of the question alone. 0 if at most `plan.enough` of them are right."""
    if sum(rollout.correct for rollout in rollouts) <= plan.enough:
        return 0
    count = plan.first
    while not finished(rollouts[:count], plan):
        count += plan.block
    return min(count, plan.most)


def finished(rollouts: Sequence[Rollout], plan: AdaptiveSettings) -> bool:
    """Whether adaptive sampling ends: at least N_0 drawn and N_min right, or N_max drawn."""
    correct = sum(rollout.correct for rollout in rollouts)
    return len(rollouts) >= plan.most or (len(rollouts) >= plan.first and correct >= plan.enough)


def digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]
