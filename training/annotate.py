"""Labels the steps of selected solutions (paper, section 3.2 and Algorithm 1; the other searches by the same door).

    python -m training annotate runs/mini/selected.jsonl --output runs/mini/annotated.jsonl

Three files come of it: the labelled solutions; those that could not be labelled, with their evidence, in
`….unresolved.jsonl`; and the value of each question alone, τ, in `….questions.jsonl`.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from training import journal, search, stage
from training.bayes import bayes
from training.journal import Journal, Record
from training.rollouts import EarlyStop, Memory, Prefix, Roller
from training.sample import seed_of
from training.search import Search, WrongSolution
from training.select import step_uncertainties
from training.settings import AnnotateSettings
from unprm.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Rollout, Sampler
from unprm.uncertainty import ESTIMATORS, surprisal_mean


def named_search(settings: AnnotateSettings) -> Search | None:
    """The search that the settings name; None for the random one, which needs no rollouts."""
    searches: dict[str, Search] = {
        "uncertainty": search.uncertainty,
        "sequential": search.sequential,
        "adaptive_binary": search.adaptive_binary,
        "bayes": lambda solution, prefixes: bayes(solution, prefixes, settings.bayes),
    }
    return searches.get(settings.search)


@dataclass(frozen=True, slots=True)
class Question:
    """What the solutions of one question and sampling model share: τ and its evidence. `largest`: the largest
    log-perplexity among its rollouts."""

    id: str
    tau: float
    samples: int
    correct: int
    tokens: int
    largest: float


class SolutionPrefixes:
    """The prefixes of one solution, as a search sees them. `used`: the rollouts that it took from each, in the
    order of the first try. Prefixes lie in `memory`, so that whoever shares it draws none twice."""

    def __init__(
        self, solution: Record, question: Question, roller: Roller, settings: AnnotateSettings, memory: Memory
    ) -> None:
        self._solution, self._roller, self._settings, self._memory = solution, roller, settings, memory
        self._early = settings.early_stop and EarlyStop(
            question.tau, settings.early_stop, question.largest, seed_of(settings.seed, solution["id"])
        )
        self.used: dict[int, list[Rollout]] = {}

    async def value(self, step: int) -> float:
        """Value of the prefix that ends with a step (1-based)."""
        self.used[step] = await self._roller.sample(self._at(step), self._early or None)
        return self._roller.estimator(self.used[step])

    async def draw(self, step: int, count: int) -> Sequence[Rollout]:
        """All rollouts from that prefix after `count` more."""
        self.used[step] = await self._roller.draw(self._at(step), len(self.used.get(step, ())) + count)
        return self.used[step]

    def evidence(self) -> list[Record]:
        """What was tried, in order."""
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
    """Annotates into three journals. Use it as a context manager."""

    def __init__(
        self, sampler: Sampler, equivalence: Equivalence, settings: AnnotateSettings, output: Path, source: Record
    ) -> None:
        self.settings, self.search = settings, named_search(settings)
        self.roller = Roller(sampler, equivalence, ESTIMATORS[settings.estimator], settings.adaptive)
        config = {**asdict(settings), "stage": "annotate", "model": sampler.model, "selected": source}
        self.labelled = Journal(output, config)
        self.unresolved = Journal(output.with_suffix(".unresolved.jsonl"), config)
        self.questions = Journal(output.with_suffix(".questions.jsonl"), config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for written in (self.labelled, self.unresolved, self.questions):
            written.close()

    def is_done(self, solution: Record) -> bool:
        """Whether an earlier run has dealt with the solution."""
        return solution["id"] in self.labelled.records or solution["id"] in self.unresolved.records

    async def annotate(self, solutions: Sequence[Record], board: stage.Board, memory: Memory) -> None:
        """Annotates solutions of one question. Raises `SamplerFailed` after all of them were tried."""
        searched = [s for s in solutions if self.search and not s["correct"] and len(s["steps"]) > 1]
        question = asyncio.create_task(self._question(searched[0], board, memory)) if searched else None
        work = (self._annotate(solution, question, board, memory) for solution in solutions)
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _question(self, solution: Record, board: stage.Board, memory: Memory) -> Question:
        """τ: the value of the question alone."""
        name = f"{solution['question']}/{solution['model']}"
        if name in self.questions.records:
            return Question(**self.questions.records[name])
        prompt = tuple(solution["prompt"])
        made = Prefix(prompt, len(prompt), solution["gold"], seed_of(self.settings.seed, solution["question"]))
        rollouts = await self.roller.sample(memory.setdefault((made.seed, made.key()), made))
        question = Question(
            id=name,
            tau=self.roller.estimator(rollouts),
            samples=len(rollouts),
            correct=sum(rollout.correct for rollout in rollouts),
            tokens=sum(len(rollout.logprobs) for rollout in rollouts),
            largest=max(surprisal_mean(rollout.logprobs) for rollout in rollouts),
        )
        self.questions.append(asdict(question))
        board.count(samples=question.samples, tokens=question.tokens)
        return question

    async def _annotate(
        self, solution: Record, asked: "asyncio.Task[Question] | None", board: stage.Board, memory: Memory
    ) -> None:
        length = len(solution["steps"])
        if solution["correct"]:
            self._label(solution, None, board)
        elif length == 1:
            self._label(solution, 1, board)
        elif asked is None or self.search is None:
            self._label(solution, search.drawn(length, seed_of(self.settings.seed, solution["id"])), board)
        else:
            await self._find(self.search, solution, await asked, board, memory)

    async def _find(
        self, find: Search, solution: Record, question: Question, board: stage.Board, memory: Memory
    ) -> None:
        if question.tau == 0:
            self._leave(solution, "the model never solves the question", question, [], board)
            return
        prefixes = SolutionPrefixes(solution, question, self.roller, self.settings, memory)
        wrong = WrongSolution(
            uncertainties=tuple(step_uncertainties(solution["logprobs"], solution["ends"], self.settings.measure)),
            mean_uncertainty=solution["mean_step_uncertainty"][self.settings.measure],
            tau=question.tau,
            solved=question.correct,
            asked=question.samples,
        )
        found = await find(wrong, prefixes)
        evidence = prefixes.evidence()
        if found is None:
            self._leave(solution, "no step falls below the question's value", question, evidence, board)
        else:
            self._label(solution, found, board, question, evidence)

    def _label(
        self,
        solution: Record,
        found: int | None,
        board: stage.Board,
        question: Question | None = None,
        evidence: Sequence[Record] = (),
    ) -> None:
        """Writes a labelled solution; `found` (1-based) is the step from which on it is wrong, None if never."""
        tried = [told["step"] for told in evidence]
        verdict = {
            "labels": [found is None or step < found for step in range(1, len(solution["steps"]) + 1)],
            "rank": tried.index(found) if found in tried else None,
        }
        self._write(self.labelled, solution, verdict, question, evidence, board)

    def _leave(
        self, solution: Record, reason: str, question: Question, evidence: Sequence[Record], board: stage.Board
    ) -> None:
        self._write(self.unresolved, solution, {"reason": reason}, question, evidence, board)

    def _write(
        self,
        written: Journal,
        solution: Record,
        verdict: Record,
        question: Question | None,
        evidence: Sequence[Record],
        board: stage.Board,
    ) -> None:
        cost = {name: sum(told[name] for told in evidence) for name in ("samples", "tokens")}
        kept = {name: solution[name] for name in ("id", "question", "model", "problem", "gold", "steps", "correct")}
        tau = question and question.tau
        written.append({**kept, **verdict, "tau": tau, "verified": len(evidence), **cost, "tried": list(evidence)})
        board.advance(verified=len(evidence), **cost)


async def annotate(
    selected: Path,
    sampler: Sampler,
    equivalence: Equivalence,
    output: Path,
    settings: AnnotateSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Annotates a file of selected solutions, those of `concurrency` questions at a time.

    Returns the questions that failed, with reasons.
    """
    source = json.loads(journal.config_path(selected).read_text("utf-8"))
    solutions = list(journal.read(selected))
    _check(solutions, selected, sampler.model)
    with Annotator(sampler, equivalence, settings, output, source) as annotator:
        todo = [solution for solution in solutions if not annotator.is_done(solution)]
        questions = [list(group) for _, group in groupby(todo, key=lambda solution: solution["question"])]
        title = f"annotating by {settings.search} search"
        with stage.Board(console, title, len(solutions), len(solutions) - len(todo)) as board:

            async def work(group: list[Record]) -> None:
                await annotator.annotate(group, board, memory={})

            return await stage.run(questions, work, lambda group: str(group[0]["question"]), concurrency)


def _check(solutions: Sequence[Record], selected: Path, model: str) -> None:
    for number, solution in enumerate(solutions, 1):
        if solution["model"] != model:
            reason = f"a solution by {solution['model']} can't be gone on with by {model}: its tokens are its own"
            raise RecordInvalid(str(selected), number, reason)
        if not solution["ids"]:
            reason = "a solution without token ids (it came through a chat API) can't be annotated by rollouts"
            raise RecordInvalid(str(selected), number, reason)
