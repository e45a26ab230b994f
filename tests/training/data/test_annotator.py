"""Which prefixes of which solutions are rolled out, and how often: the annotator over a scripted sampler."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.training.scripted import ScriptedSampler
from training.data.annotator import Annotator
from training.data.sample import make_mini, sample_question
from training.data.select import Selector
from training.schema import QuestionValue
from training.stage_settings import PRESETS, AnnotateSettings, SampleSettings, SelectSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Completion

END = 0
"""The end-of-text token."""
FIXED = PRESETS["authors"].annotate


class EndingSampler(ScriptedSampler):
    """Ends each text with an end-of-text token. `calls`: prompt, seed and count of each."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[tuple[int, ...], int, int]] = []

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([token for token in ids if token != END])

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        self.calls.append((tuple(prompt), seed, count))
        made = await super().complete(prompt, count, seed, affinity)
        return [replace(one, ids=(*one.ids, END), logprobs=(*one.logprobs, -0.1)) for one in made]


@pytest.fixture(scope="module")
def equivalence():
    return Equivalence()


@pytest.fixture(scope="module")
def solutions(equivalence):
    """Of one question, right and wrong ones, of several steps each."""
    question = max(make_mini(12, seed=1), key=lambda question: len(question.problem))
    sampler = EndingSampler()
    record = asyncio.run(sample_question(question, sampler, SampleSettings(k=24)))
    found = list(Selector(equivalence, sampler.decode, SelectSettings()).select(record))
    assert {solution.correct for solution in found} == {True, False}
    assert all(len(solution.steps) > 2 and solution.ids[-1] == END for solution in found)
    return found


def _annotate(solutions, equivalence, settings, **options):
    """What was written, and the sampler."""
    sampler, written = EndingSampler(), []
    annotator = Annotator(sampler, equivalence, settings, {}, written.append, **options)
    asyncio.run(annotator.annotate(solutions, {}))
    return written, sampler


def _questions(written):
    return [record for record in written if isinstance(record, QuestionValue)]


def _annotated(written):
    return [record for record in written if not isinstance(record, QuestionValue)]


def _is_whole(prompt, solution):
    """Whether a prompt holds all steps of a solution."""
    whole = (*solution.prompt, *solution.ids[: solution.ends[-1]])
    return prompt[: len(whole)] == whole


@pytest.mark.parametrize(("search", "tries_last"), [("uncertainty", False), ("uncertainty-literal", True)])
def test_the_last_step_is_tried_by_the_literal_search_alone(solutions, equivalence, search, tries_last):
    written, sampler = _annotate(solutions, equivalence, AnnotateSettings(search=search))
    tried = [(trial.step, len(solution.steps)) for solution in _annotated(written) for trial in solution.tried]
    assert tried
    assert any(step == length for step, length in tried) is tries_last
    wrong = [solution for solution in solutions if not solution.correct]
    whole = [prompt for prompt, _, _ in sampler.calls if any(_is_whole(prompt, solution) for solution in wrong)]
    assert bool(whole) is tries_last


def test_prefixes_end_before_the_end_of_text(solutions, equivalence):
    """After it a model would write another text, and a right answer there would count."""
    _, sampler = _annotate(solutions, equivalence, AnnotateSettings(search="uncertainty-literal"))
    assert len({prompt for prompt, _, _ in sampler.calls}) > 2
    assert all(END not in prompt for prompt, _, _ in sampler.calls)


def test_a_fixed_count_is_found_once_and_is_that_of_every_prefix(solutions, equivalence):
    written, sampler = _annotate(solutions, equivalence, FIXED)
    (question,) = _questions(written)
    count = question.count
    assert 16 <= count < 72
    assert count % 8 == 0
    alone = [call for call in sampler.calls if call[0] == solutions[0].prompt]
    assert sorted(number for _, _, number in alone) == [count, 72]
    assert len({seed for _, seed, _ in alone}) == 2  # τ is sampled anew
    assert question.samples == 72 + count
    tried = [trial for solution in _annotated(written) for trial in solution.tried]
    assert len(tried) > 3
    assert {trial.samples for trial in tried} == {count}
    assert sampler.completions == 72 + count + sum(trial.samples for trial in tried)


def test_rollouts_are_told_of_as_they_come(solutions, equivalence):
    told = []
    _, sampler = _annotate(
        solutions, equivalence, AnnotateSettings(), drawn=lambda rollouts: told.append(len(rollouts))
    )
    assert told == [number for _, _, number in sampler.calls]


@pytest.mark.parametrize("search", ["bayes", "adaptive_binary"])
def test_no_more_rollouts_are_drawn_than_allowed(solutions, equivalence, search):
    settings = AnnotateSettings(search=search)
    assert settings.limited(None) is settings
    written, _ = _annotate(solutions, equivalence, settings.limited(5))
    (question,) = _questions(written)
    assert question.samples <= 5
    searched = [solution for solution in _annotated(written) if solution.tried]
    assert searched
    for solution in searched:
        assert all(trial.samples <= 5 for trial in solution.tried)
        assert search != "bayes" or solution.samples <= 5


def test_a_question_that_is_seldom_solved_is_left_out_with_its_right_solutions(solutions, equivalence):
    unsolved = [replace(solution, gold_answer="no such number") for solution in solutions]
    written, sampler = _annotate(unsolved, equivalence, FIXED)
    (question,) = _questions(written)
    assert (question.count, question.samples, sampler.completions) == (0, 72, 72)
    left = [solution for solution in _annotated(written) if solution.labels is None]
    assert {solution.reason for solution in left} == {"the model solves the question too seldom"}
    assert sorted(solution.id for solution in left) == sorted(solution.id for solution in solutions)


def test_without_a_fixed_count_right_solutions_are_labelled_whatever_the_question(solutions, equivalence):
    unsolved = [replace(solution, gold_answer="no such number") for solution in solutions]
    written, _ = _annotate(unsolved, equivalence, AnnotateSettings())
    assert {(solution.labels is not None, solution.correct) for solution in _annotated(written)} == {
        (True, True),
        (False, False),
    }


def test_a_known_question_is_not_counted_again(solutions, equivalence):
    written, _ = _annotate(solutions, equivalence, FIXED)
    (question,) = _questions(written)
    again, sampler = [], EndingSampler()
    known = {question.id: question}
    annotator = Annotator(sampler, equivalence, FIXED, known, again.append)
    asyncio.run(annotator.annotate(solutions, {}))
    assert all(prompt != solutions[0].prompt for prompt, _, _ in sampler.calls)
    labelled, relabelled = ({record.id: record for record in run} for run in (written, again))
    del labelled[question.id]
    assert relabelled == labelled
