"""Selects the solutions worth annotating (paper, section 3.1; the appendix's algorithm)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from unprm import steps
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract
from unprm.errors import RecordInvalid
from unprm.types import Completion
from unprm.uncertainty import MEASURES

from .. import resumable, sources, stage
from ..schema import SampledQuestion, SelectedSolution
from ..stage_settings import SelectSettings
from .choose import choose, mean_change
from .sample import seed_of

FEW = 0.25
"""Share of solved questions below which `select` warns."""


def step_uncertainties(logprobs: Sequence[float], ends: Sequence[int], measure: str) -> list[float]:
    """u of each step, from the tokens between its ends."""
    bounds = zip([0, *ends[:-1]], ends, strict=True)
    return [MEASURES[measure](logprobs[start:end]) for start, end in bounds]


class Selector:
    """Judges and selects solutions; `dropped` counts malformed and repeated ones by reason, `solved` the questions with
    a right one."""

    def __init__(self, equivalence: Equivalence, decode: steps.Decode, settings: SelectSettings) -> None:
        self.equivalence, self.decode, self.settings = equivalence, decode, settings
        self.dropped: Counter[str] = Counter()
        self.solved = 0

    def judge(self, question: SampledQuestion) -> Iterator[SelectedSolution]:
        """The well-formed solutions of a sampled question, whose mean uncertainties are not known yet."""
        for index, completion in enumerate(question.solutions):
            text, ids, logprobs = completion.text, completion.ids, completion.logprobs
            answer = extract(text, self.settings.extraction)
            parts = steps.split(text, self.settings.split)
            ends = steps.token_ends(text, ids, self.decode, self.settings.split) if ids else []
            reason = _malformed(completion, answer, parts, ends, self.settings.min_steps)
            if reason or answer is None:
                self.dropped[reason] += 1
                continue
            yield SelectedSolution(
                id=f"{question.id}/{question.model}/{index}",
                question=question.id,
                problem=question.problem,
                gold_answer=question.gold_answer,
                model=question.model,
                prompt=question.prompt,
                index=index,
                text=text,
                ids=ids,
                logprobs=logprobs,
                steps=tuple(parts),
                ends=tuple(ends),
                predicted=answer,
                correct=self.equivalence.equal(answer, question.gold_answer),
                uncertainty=self._uncertainty(logprobs, ends),
                mean_step_uncertainty={},
            )

    def _uncertainty(self, logprobs: Sequence[float], ends: Sequence[int]) -> float:
        measure = self.settings.measure
        if self.settings.selection == "uncertainty-diversity":
            return mean_change(step_uncertainties(logprobs, ends, measure))
        return MEASURES[measure](logprobs)

    def select(self, question: SampledQuestion) -> list[SelectedSolution]:
        judged = list(self.judge(question))
        self.solved += any(solution.correct for solution in judged)
        distinct: dict[str, SelectedSolution] = {}
        for solution in judged:
            if distinct.setdefault(solution.text, solution) is not solution:  # annotating it again would be a waste
                self.dropped["same text as another"] += 1
        seed = seed_of(self.settings.seed, question.model, question.id)
        means = {measure: _mean_step(judged, measure) for measure in MEASURES}
        chosen = choose(list(distinct.values()), self.settings, seed)
        return [replace(solution, mean_step_uncertainty=means) for solution in chosen]


def select(samples: Path, output: Path, selector: Selector, console: Console) -> tuple[int, int]:
    config = {**asdict(selector.settings), "stage": "select", "samples": resumable.config_of(samples)}
    questions = list(sources.read(samples, SampledQuestion))
    _check(questions, samples, selector.settings)
    with stage.progress(console) as progress:
        each = progress.track(questions, description="selecting")
        chosen = [solution for question in each for solution in selector.select(question)]
    resumable.write(output, config, chosen)
    right = sum(solution.correct for solution in chosen)
    console.print(f"{right} right and {len(chosen) - right} wrong solutions")
    for reason, count in selector.dropped.most_common():
        console.print(f"left out, {reason}: {count}")
    if selector.solved < FEW * len(questions):
        console.print(
            f"[yellow]only {selector.solved} of {len(questions)} questions have a right solution: few steps of the "
            "others will be labelled[/yellow]"
        )
    return selector.solved, len(questions)


def _check(questions: Sequence[SampledQuestion], samples: Path, settings: SelectSettings) -> None:
    """Raises `RecordInvalid` for samples without the token ids that "uncertainty-diversity" compares."""
    if settings.selection != "uncertainty-diversity":
        return
    for number, question in enumerate(questions, 1):
        if any(solution.text and not solution.ids for solution in question.solutions):
            reason = "selection by uncertainty-diversity compares token ids, and these came without (by a chat API)"
            raise RecordInvalid(str(samples), number, reason)


def _malformed(
    completion: Completion, answer: str | None, parts: Sequence[str], ends: Sequence[int], min_steps: int
) -> str:
    if not completion.finished:
        return "over the token limit"
    if answer is None:
        return "no answer"
    if not parts:
        return "no steps"
    if len(parts) < min_steps:
        return f"fewer than {min_steps} steps"
    if ends and any(before >= after for before, after in zip([0, *ends], ends, strict=False)):
        return "a step without a token of its own"
    return ""


def _mean_step(judged: Sequence[SelectedSolution], measure: str) -> float | None:
    values = [u for s in judged if s.ends for u in step_uncertainties(s.logprobs, s.ends, measure)]
    return sum(values) / len(values) if values else None
