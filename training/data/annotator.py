"""Labels the solutions of one question by Algorithm 1 of the paper or another search.

This module does no file I/O: records go to a callback.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.types import Extraction, Rollout, Sampler
from unprm.uncertainty import ESTIMATORS, Estimator

from ..schema import AnnotatedSolution, QuestionValue, Rank, SelectedSolution, Trial
from ..stage_settings import AdaptiveSettings, AnnotateSettings, SearchName
from . import search
from .sample import seed_of
from .search import Search, WrongSolution
from .select import step_uncertainties


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


Write = Callable[[AnnotatedSolution | QuestionValue], None]
_TAKEN_OVER = ("id", "question", "model", "problem", "gold_answer", "steps", "correct")
"""The fields of a selected solution that its annotation has, too."""
RANKING: tuple[SearchName, ...] = ("uncertainty", "uncertainty-literal")
"""The searches that try steps by falling Δu, so that steps have ranks."""


def named_search(settings: AnnotateSettings) -> Search | None:
    """The search named in the settings; None for "random", which needs no rollouts."""
    searches: dict[str, Search] = {
        "uncertainty": search.uncertainty,
        "uncertainty-literal": search.uncertainty_literal,
        "sequential": search.sequential,
        "adaptive_binary": search.adaptive_binary,
        "bayes": lambda solution, prefixes: search.bayes(solution, prefixes, settings.bayes),
    }
    return searches.get(settings.search)


@dataclass(slots=True)
class SolutionPrefixes:
    """The prefixes of one solution, as a search sees them. `plan`: of their rollouts. `used`: the rollouts taken from
    each step's prefix, in the order of the first try. Prefixes are stored in `memory`: solutions that share it draw no
    rollout twice."""

    solution: SelectedSolution
    plan: AdaptiveSettings
    roller: Roller
    settings: AnnotateSettings
    memory: Memory
    used: dict[int, list[Rollout]] = field(default_factory=dict)

    async def value(self, step: int) -> float:
        self.used[step] = await self.roller.sample(self._at(step), self.plan)
        return self.roller.estimator(self.used[step])

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        self.used[step] = await self.roller.draw(self._at(step), len(self.used.get(step, ())) + count)
        return self.used[step]

    def tried(self) -> tuple[Trial, ...]:
        return tuple(
            Trial(step, self._at(step).key(), self.roller.estimator(rollouts), *_counts(rollouts))
            for step, rollouts in self.used.items()
        )

    def _at(self, step: int) -> Prefix:
        solution = self.solution
        ids = (*solution.prompt, *solution.ids[: solution.ends[step - 1]])
        whose = solution.question if self.settings.share_prefixes else solution.id
        return _prefix(self.memory, solution, ids, seed_of(self.settings.seed, whose))


class Annotator:
    """Annotates solutions and passes the records to `write`. `known`: questions whose τ is already known, by id.
    `drawn` is called with rollouts as they come."""

    def __init__(
        self,
        sampler: Sampler,
        equivalence: Equivalence,
        settings: AnnotateSettings,
        known: Mapping[str, QuestionValue],
        write: Write,
        drawn: Callable[[Sequence[Rollout]], None] = lambda rollouts: None,
    ) -> None:
        self.settings, self.search, self.known, self.write = settings, named_search(settings), known, write
        self.roller = Roller(sampler, equivalence, ESTIMATORS[settings.estimator], settings.extraction, drawn)

    async def annotate(self, solutions: Sequence[SelectedSolution], memory: Memory) -> None:
        """Annotates the solutions of one question. Raises `SamplerFailed` only after all of them were tried."""
        first = next(filter(self._needs_question, solutions), None)
        question = asyncio.create_task(self._question_value(first, memory)) if first else None
        work = (self._annotate(solution, question, memory) for solution in solutions)
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _is_searched(self, solution: SelectedSolution) -> bool:
        return self.search is not None and not solution.correct and len(solution.steps) > 1

    def _needs_question(self, solution: SelectedSolution) -> bool:
        """Whether the label depends on rollouts of the question alone. With a fixed count this holds for right
        solutions, too: they are left out if the model solves the question too seldom."""
        return self._is_searched(solution) or (self.search is not None and self.settings.adaptive.fixed_count)

    async def _question_value(self, solution: SelectedSolution, memory: Memory) -> QuestionValue:
        """Finds τ, the value of the question alone, unless it is known."""
        name = f"{solution.question}/{solution.model}"
        if name in self.known:
            return self.known[name]
        adaptive, estimator = self.settings.adaptive, self.roller.estimator
        alone = self._alone(solution, memory)
        if adaptive.fixed_count:
            counted = await self.roller.draw(self._alone(solution, memory, "count"), adaptive.most)
            count = fixed_count(counted, adaptive)
            anew = await self.roller.draw(alone, count)
            tau, rollouts = estimator(anew or counted), [*counted, *anew]
        else:
            rollouts = await self.roller.sample(alone, adaptive)
            count, tau = None, estimator(rollouts)
        question = QuestionValue(name, tau, *_counts(rollouts), count)
        self.write(question)
        return question

    def _alone(self, solution: SelectedSolution, memory: Memory, *purpose: str) -> Prefix:
        """The prefix of the question alone; with a `purpose` its rollouts are drawn separately."""
        seed = seed_of(self.settings.seed, solution.question, *purpose)
        return _prefix(memory, solution, solution.prompt, seed)

    async def _annotate(
        self, solution: SelectedSolution, task: "asyncio.Task[QuestionValue] | None", memory: Memory
    ) -> None:
        question = await task if task is not None and self._needs_question(solution) else None
        if question and question.unsolved():
            self.write(_annotated(solution, question, reason=question.unsolved()))
        elif question and self.search and self._is_searched(solution):
            self.write(await self._find(self.search, solution, question, memory))
        else:
            wrong_step = None
            if not solution.correct:  # with a single step it is always that one
                wrong_step = search.drawn(len(solution.steps), seed_of(self.settings.seed, solution.id))
            self.write(_annotated(solution, labels=_labels(solution, wrong_step)))

    async def _find(
        self, find: Search, solution: SelectedSolution, question: QuestionValue, memory: Memory
    ) -> AnnotatedSolution:
        prefixes = SolutionPrefixes(solution, question.plan(self.settings.adaptive), self.roller, self.settings, memory)
        mean = solution.mean_step_uncertainty[self.settings.measure]
        assert mean is not None  # the solution has token ids
        wrong = WrongSolution(
            uncertainties=tuple(step_uncertainties(solution.logprobs, solution.ends, self.settings.measure)),
            mean_uncertainty=mean,
            tau=question.tau,
            solved=question.correct,
            samples=question.samples,
        )
        wrong_step = await find(wrong, prefixes)
        steps = list(prefixes.used)
        rank: Rank = "unranked"
        if self.settings.search in RANKING:
            rank = steps.index(wrong_step) if wrong_step in steps else None
        if wrong_step is None:
            reason = "no step falls below the question's value"
            return _annotated(solution, question, prefixes.tried(), reason=reason, rank=rank)
        return _annotated(solution, question, prefixes.tried(), labels=_labels(solution, wrong_step), rank=rank)


def _prefix(memory: Memory, solution: SelectedSolution, ids: tuple[int, ...], seed: int) -> Prefix:
    made = Prefix(ids, len(solution.prompt), solution.gold_answer, seed)
    return memory.setdefault((seed, made.key()), made)


def _counts(rollouts: Sequence[Rollout]) -> tuple[int, int, int]:
    """Their number, how many are right, and their tokens."""
    tokens = sum(len(rollout.logprobs) for rollout in rollouts)
    return len(rollouts), sum(rollout.correct for rollout in rollouts), tokens


def _labels(solution: SelectedSolution, wrong_step: int | None) -> tuple[bool, ...]:
    """`wrong_step`: from 1, the step from which on the solution is wrong; None if it is right."""
    return tuple(wrong_step is None or step < wrong_step for step in range(1, len(solution.steps) + 1))


def _annotated(
    solution: SelectedSolution,
    question: QuestionValue | None = None,
    tried: tuple[Trial, ...] = (),
    **found: Any,
) -> AnnotatedSolution:
    """The record of a solution; `found`: its labels or the reason why it has none, and the rank."""
    return AnnotatedSolution(
        **{name: getattr(solution, name) for name in _TAKEN_OVER},
        **found,
        tau=question.tau if question else None,
        verified=len(tried),
        samples=sum(trial.samples for trial in tried),
        tokens=sum(trial.tokens for trial in tried),
        tried=tried,
    )
