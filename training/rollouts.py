"""Rollouts: how often a model gets from a prefix of a solution to the right answer."""

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from training.sample import seed_of
from training.settings import AdaptiveSettings
from unprm.equivalence import Equivalence
from unprm.extraction import extract
from unprm.types import Extraction, Rollout, Sampler
from unprm.uncertainty import Estimator, surprisal_mean

SIMULATIONS = 200
"""Imagined continuations that an early stop at a chosen confidence is decided by."""


@dataclass(slots=True)
class Prefix:
    """A place in a solution that rollouts start from: the token ids up to it, and what was drawn so far."""

    ids: tuple[int, ...]
    prompt_length: int
    gold: str
    seed: int
    rollouts: list[Rollout] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def key(self) -> str:
        """Equal prefixes have equal keys."""
        return digest(self.ids)


Memory = dict[tuple[int, str], Prefix]
"""Prefixes by seed and key."""


class Roller:
    """Draws rollouts with a sampler and judges them; never draws again what a prefix has."""

    def __init__(
        self,
        sampler: Sampler,
        equivalence: Equivalence,
        estimator: Estimator,
        extraction: Extraction = "auto",
    ) -> None:
        self.sampler, self.equivalence, self.estimator = sampler, equivalence, estimator
        self.extraction = extraction

    async def draw(self, prefix: Prefix, count: int) -> list[Rollout]:
        """The first `count` rollouts of a prefix. Raises `SamplerFailed` if the sampler does."""
        async with prefix.lock:
            have = len(prefix.rollouts)
            if have < count:
                prefix.rollouts += await self._more(prefix, have, count - have)
        return prefix.rollouts[:count]

    async def sample(self, prefix: Prefix, plan: AdaptiveSettings, early: "EarlyStop | None" = None) -> list[Rollout]:
        """The rollouts that adaptive sampling takes (paper, section 3.2), or fewer with an early stop."""
        rollouts = await self.draw(prefix, plan.block if early else plan.first)
        while not finished(rollouts, plan) and not (early and early.is_settled(rollouts, self.estimator, plan)):
            rollouts = await self.draw(prefix, min(plan.most, len(rollouts) + plan.block))
        return rollouts

    async def _more(self, prefix: Prefix, have: int, count: int) -> list[Rollout]:
        # the n-th rollout has the same seed however the calls are cut
        seed = seed_of(prefix.seed, prefix.key()) + have
        affinity = digest(prefix.ids[: prefix.prompt_length])  # the question: its prefixes are cached together
        completions = await self.sampler.complete(prefix.ids, count, seed, affinity)
        written = prefix.ids[prefix.prompt_length :]
        found = [
            extract(self.sampler.decode((*written, *completion.ids)), self.extraction) if completion.finished else None
            for completion in completions
        ]
        right = await asyncio.to_thread(self._right, found, prefix.gold)
        return [Rollout(c.logprobs, ok) for c, ok in zip(completions, right, strict=True)]

    def _right(self, found: Sequence[str | None], gold: str) -> list[bool]:
        return [answer is not None and self.equivalence.equal(answer, gold) for answer in found]


def fixed_count(rollouts: Sequence[Rollout], plan: AdaptiveSettings) -> int:
    """How many rollouts every prefix of a question gets, as the authors' program counts: as many as sampling takes of
    the question's own; `rollouts` are all `plan.most` of them. 0 if at most `plan.enough` of them are right."""
    if sum(rollout.correct for rollout in rollouts) <= plan.enough:
        return 0
    count = plan.first
    while not finished(rollouts[:count], plan):
        count += plan.block
    return min(count, plan.most)


def finished(rollouts: Sequence[Rollout], plan: AdaptiveSettings) -> bool:
    """Whether adaptive sampling ends here: at least N_0 drawn, and N_min right or N_max drawn."""
    correct = sum(rollout.correct for rollout in rollouts)
    return len(rollouts) >= plan.most or (len(rollouts) >= plan.first and correct >= plan.enough)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Ends sampling when the verdict "value < tau" is settled.

    At `confidence` 1: when no outcome of the remaining rollouts could change it, provided that their perplexity
    does not exceed `largest`, the largest log-perplexity seen for the question. Below 1: when it stays in that
    fraction of imagined continuations, whose rollouts are right at a rate drawn from the posterior
    Beta(right + ½, wrong + ½) and as perplexing as those seen.
    """

    tau: float
    confidence: float
    largest: float
    seed: int

    def is_settled(self, rollouts: Sequence[Rollout], estimator: Estimator, plan: AdaptiveSettings) -> bool:
        """Whether sampling can end; `rollouts` are those so far, at least one."""
        rest = max(plan.most - len(rollouts), 0)
        verdict = estimator(rollouts) < self.tau
        if self.confidence < 1:
            return self._kept_share(rollouts, estimator, plan, verdict) >= self.confidence
        largest = max([self.largest, *(surprisal_mean(rollout.logprobs) for rollout in rollouts)])
        extremes = ([*rollouts, *[Rollout((-largest,), right)] * rest] for right in (True, False))
        return all((estimator(outcome) < self.tau) is verdict for outcome in extremes)

    def _kept_share(
        self, rollouts: Sequence[Rollout], estimator: Estimator, plan: AdaptiveSettings, verdict: bool
    ) -> float:
        rng = random.Random(seed_of(self.seed, len(rollouts)))
        # the estimators see the mean surprisal alone: one token that has it stands for each rollout
        seen = [Rollout((-surprisal_mean(rollout.logprobs),), rollout.correct) for rollout in rollouts]
        right = [rollout for rollout in seen if rollout.correct]
        wrong = [rollout for rollout in seen if not rollout.correct]
        kept = 0
        for _ in range(SIMULATIONS):
            rate = rng.betavariate(len(right) + 0.5, len(wrong) + 0.5)
            imagined = list(seen)
            while not finished(imagined, plan):
                for _ in range(plan.block):
                    ok = rng.random() < rate
                    like = rng.choice((right if ok else wrong) or seen)
                    imagined.append(Rollout(like.logprobs, ok))
            kept += (estimator(imagined) < self.tau) is verdict
        return kept / SIMULATIONS


def digest(ids: Sequence[int]) -> str:
    """A short name for a sequence of token ids."""
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]
