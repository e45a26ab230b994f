"""Labels the solutions of one question by Algorithm 1 of the paper or another search.

This module does no file I/O: records go to a callback.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from training.data import search
from training.data.bayes import bayes
from training.data.rollouts import EarlyStop, Memory, Prefix, Roller, fixed_count
from training.data.sample import seed_of
from training.data.search import Search, WrongSolution
from training.data.select import step_uncertainties
from training.resumable import Record
from training.settings import AdaptiveSettings, AnnotateSettings, SearchName
from unprm.answers.equivalence import Equivalence
from unprm.types import Rollout, Sampler
from unprm.uncertainty import ESTIMATORS, surprisal_mean

Kind = Literal["labelled", "unresolved", "question"]
Write = Callable[[Kind, Record], None]
RANKING: tuple[SearchName, ...] = ("uncertainty", "uncertainty-literal")
"""The searches that try steps by falling Δu, so that steps have ranks."""


def named_search(settings: AnnotateSettings) -> Search | None:
    """The search named in the settings; None for "random", which needs no rollouts."""
    searches: dict[str, Search] = {
        "uncertainty": search.uncertainty,
        "uncertainty-literal": search.uncertainty_literal,
        "sequential": search.sequential,
        "adaptive_binary": search.adaptive_binary,
        "bayes": lambda solution, prefixes: bayes(solution, prefixes, settings.bayes),
    }
    return searches.get(settings.search)


@dataclass(frozen=True, slots=True)
class QuestionValue:
    """What the solutions of one question and sampling model share: τ and its evidence. `samples`, `correct`, `tokens`:
    counts over all rollouts of the question alone. `largest`: their largest log-perplexity. `count`: number of rollouts
    from each prefix if it is fixed, 0 if the model solves the question too seldom; None if it is adaptive."""

    id: str
    tau: float
    samples: int
    correct: int
    tokens: int
    largest: float
    count: int | None = None

    def plan(self, adaptive: AdaptiveSettings) -> AdaptiveSettings:
        """Sampling plan for the prefixes of the question."""
        return adaptive if self.count is None else replace(adaptive, first=self.count, most=self.count)

    def unsolved(self) -> str:
        """Why the question's solutions cannot be labelled; empty if they can."""
        if self.count == 0:
            return "the model solves the question too seldom"
        return "the model never solves the question" if self.tau == 0 else ""


class SolutionPrefixes:
    """The prefixes of one solution, as a search sees them. `used`: the rollouts taken from each step's prefix, in the
    order of the first try. Prefixes are stored in `memory`: solutions that share it draw no rollout twice."""

    def __init__(
        self, solution: Record, question: QuestionValue, roller: Roller, settings: AnnotateSettings, memory: Memory
    ) -> None:
        self._solution, self._roller, self._settings, self._memory = solution, roller, settings, memory
        self._early = settings.early_stop and EarlyStop(
            question.tau, settings.early_stop, question.largest, seed_of(settings.seed, solution["id"])
        )
        self._plan = question.plan(settings.adaptive)
        self.used: dict[int, list[Rollout]] = {}

    async def value(self, step: int) -> float:
        """Value of the prefix that ends with a step (1-based)."""
        self.used[step] = await self._roller.sample(self._at(step), self._plan, self._early or None)
        return self._roller.estimator(self.used[step])

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """Takes `count` more rollouts from the prefix that ends with a step, and returns all taken from it."""
        self.used[step] = await self._roller.draw(self._at(step), len(self.used.get(step, ())) + count)
        return self.used[step]

    def evidence(self) -> list[Record]:
        """A record per prefix tried, in order: its value, and its rollouts' counts."""
        return [
            {
                "step": step,
                "prefix": self._at(step).key(),
                "value": self._roller.estimator(rollouts),
                "samples": len(rollouts),
                "correct": sum(rollout.correct for rollout in rollouts),
                "tokens": sum(len(rollout.logprobs) for rollout in rollouts),
            }
            for step, rollouts in self.used.items()
        ]

    def _at(self, step: int) -> Prefix:
        solution = self._solution
        ids = (*solution["prompt"], *solution["ids"][: solution["ends"][step - 1]])
        whose = solution["question"] if self._settings.share_prefixes else solution["id"]
        made = Prefix(ids, len(solution["prompt"]), solution["gold"], seed_of(self._settings.seed, whose))
        return self._memory.setdefault((made.seed, made.key()), made)


class Annotator:
    """Annotates solutions and passes the records to `write`. `known`: questions whose τ is already known, by id."""

    def __init__(
        self,
        sampler: Sampler,
        equivalence: Equivalence,
        settings: AnnotateSettings,
        known: Mapping[str, QuestionValue],
        write: Write,
    ) -> None:
        self.settings, self.search, self.known, self.write = settings, named_search(settings), known, write
        self.roller = Roller(sampler, equivalence, ESTIMATORS[settings.estimator], settings.extraction)

    async def annotate(self, solutions: Sequence[Record], memory: Memory) -> None:
        """Annotates the solutions of one question. Raises `SamplerFailed` only after all of them were tried."""
        first = next(filter(self._needs_question, solutions), None)
        question = asyncio.create_task(self._question_value(first, memory)) if first else None
        work = (self._annotate(solution, question, memory) for solution in solutions)
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _is_searched(self, solution: Record) -> bool:
        return self.search is not None and not solution["correct"] and len(solution["steps"]) > 1

    def _needs_question(self, solution: Record) -> bool:
        """Whether the label depends on rollouts of the question alone. With a fixed count this holds for right
        solutions, too: they are left out if the model solves the question too seldom."""
        return self._is_searched(solution) or (self.search is not None and self.settings.adaptive.fixed_count)

    async def _question_value(self, solution: Record, memory: Memory) -> QuestionValue:
        """Finds τ, the value of the question alone, unless it is known."""
        name = f"{solution['question']}/{solution['model']}"
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
        question = QuestionValue(
            id=name,
            tau=tau,
            samples=len(rollouts),
            correct=sum(rollout.correct for rollout in rollouts),
            tokens=sum(len(rollout.logprobs) for rollout in rollouts),
            largest=max(surprisal_mean(rollout.logprobs) for rollout in rollouts),
            count=count,
        )
        self.write("question", asdict(question))
        return question

    def _alone(self, solution: Record, memory: Memory, *purpose: str) -> Prefix:
        """The prefix of the question alone; with a `purpose` its rollouts are drawn separately."""
        prompt = tuple(solution["prompt"])
        seed = seed_of(self.settings.seed, solution["question"], *purpose)
        made = Prefix(prompt, len(prompt), solution["gold"], seed)
        return memory.setdefault((made.seed, made.key()), made)

    async def _annotate(self, solution: Record, task: "asyncio.Task[QuestionValue] | None", memory: Memory) -> None:
        question = await task if task is not None and self._needs_question(solution) else None
        if question and question.unsolved():
            self.write("unresolved", _record(solution, {"reason": question.unsolved()}, question))
        elif question and self.search and self._is_searched(solution):
            await self._find(self.search, solution, question, memory)
        else:
            found = None
            if not solution["correct"]:  # with a single step it is always that one
                found = search.drawn(len(solution["steps"]), seed_of(self.settings.seed, solution["id"]))
            self.write("labelled", _record(solution, {"labels": _labels(solution, found)}))

    async def _find(self, find: Search, solution: Record, question: QuestionValue, memory: Memory) -> None:
        prefixes = SolutionPrefixes(solution, question, self.roller, self.settings, memory)
        wrong = WrongSolution(
            uncertainties=tuple(step_uncertainties(solution["logprobs"], solution["ends"], self.settings.measure)),
            mean_uncertainty=solution["mean_step_uncertainty"][self.settings.measure],
            tau=question.tau,
            solved=question.correct,
            samples=question.samples,
        )
        found = await find(wrong, prefixes)
        evidence = prefixes.evidence()
        if found is None:
            kind: Kind = "unresolved"
            verdict: Record = {"reason": "no step falls below the question's value"}
        else:
            kind, verdict = "labelled", {"labels": _labels(solution, found)}
        if self.settings.search in RANKING:
            tried = [trial["step"] for trial in evidence]
            verdict["rank"] = tried.index(found) if found in tried else None
        self.write(kind, _record(solution, verdict, question, evidence))


def _labels(solution: Record, found: int | None) -> list[bool]:
    """A label per step; `found` (1-based): the step from which on the solution is wrong, None if it is right."""
    return [found is None or step < found for step in range(1, len(solution["steps"]) + 1)]


def _record(
    solution: Record, verdict: Record, question: QuestionValue | None = None, evidence: Sequence[Record] = ()
) -> Record:
    kept = {name: solution[name] for name in ("id", "question", "model", "problem", "gold", "steps", "correct")}
    cost = {name: sum(trial[name] for trial in evidence) for name in ("samples", "tokens")}
    tau = question and question.tau
    return {**kept, **verdict, "tau": tau, "verified": len(evidence), **cost, "tried": list(evidence)}
