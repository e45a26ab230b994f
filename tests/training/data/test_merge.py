"""Labels of a data set: equal prefixes of solutions have equal ones, whatever the search."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.scripted import ScriptedSampler
from tests.training.solutions import annotated
from training.data.annotator import Annotator
from training.data.merge import consistent
from training.data.sample import make_mini, sample_question
from training.data.select import Selector
from training.schema import AnnotatedSolution, QuestionValue, ResolvedSolution, SelectedSolution
from training.stage_settings import AnnotateSettings, SampleSettings, SearchName, SelectSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Completion


def solution(steps: str, labels: str) -> ResolvedSolution:
    """Each step a letter, each label + or -."""
    fields = vars_of(annotated(steps=tuple(steps), correct="-" not in labels))
    return ResolvedSolution(**fields | {"labels": tuple(label == "+" for label in labels)})


def vars_of(record: AnnotatedSolution) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def shown(solutions: Sequence[ResolvedSolution]) -> list[tuple[str, str]]:
    return [("".join(each.steps), "".join("-+"[label] for label in each.labels)) for each in solutions]


def agreeing(solutions: Sequence[AnnotatedSolution]) -> bool:
    """Whether equal prefixes have equal labels."""
    found: dict[tuple[str, ...], bool] = {}
    return all(
        found.setdefault((each.problem, *each.steps[:k]), label) is label
        for each in solutions
        for k, label in enumerate(each.labels or (), 1)
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("ab", "+-"), ("ac", "--")], [("ab", "--"), ("ac", "--")]),  # the error in the common step is shared
        ([("abc", "++-"), ("abd", "+--")], [("abc", "+--"), ("abd", "+--")]),
        ([("ab", "+-"), ("b", "-"), ("cb", "+-")], [("ab", "+-"), ("b", "-"), ("cb", "+-")]),  # no common prefix
        ([("ab", "++"), ("ac", "+-")], [("ab", "++"), ("ac", "+-")]),
        ([("ab", "++"), ("ac", "--")], [("ab", "++")]),  # a right solution goes on from the step found
        ([("ab", "++"), ("acd", "---"), ("ace", "+--")], [("ab", "++"), ("acd", "+--"), ("ace", "+--")]),
        ([("a", "-"), ("ab", "+-")], [("a", "-"), ("ab", "--")]),
    ],
)
def test_labels_of_common_prefixes_by_hand(given: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    assert shown(consistent([solution(*each) for each in given])) == expected


def made_up() -> st.SearchStrategy[dict[str, str]]:
    labels = st.text("ab", min_size=1, max_size=5).flatmap(
        lambda steps: st.tuples(
            st.just(steps), st.integers(0, len(steps)).map(lambda k: "+" * k + "-" * (len(steps) - k))
        )
    )
    return st.lists(labels, max_size=8).map(dict)


@settings(derandomize=True, deadline=None)
@given(made_up())
def test_equal_prefixes_have_equal_labels_and_errors_are_shared(found: dict[str, str]) -> None:
    before = [solution(*each) for each in found.items()]
    after = consistent(before)
    assert agreeing(after)
    assert consistent(after) == after
    kept = {each.steps: each for each in after}
    for each in before:
        made = kept.get(each.steps)
        assert made is not None or not each.correct
        if made is not None:
            assert all(made.labels) is each.correct
            assert all(one >= other for one, other in pairwise(made.labels))  # true, then false


@pytest.fixture(scope="module")
def drawn() -> list[list[SelectedSolution]]:
    """Solutions of a few questions, many with a common beginning."""

    async def questions() -> Iterator[list[SelectedSolution]]:
        sampler, equivalence = ScriptedSampler(), Equivalence()
        records = [await sample_question(each, sampler, SampleSettings(k=16)) for each in make_mini(4, seed=1)]
        selector = Selector(equivalence, sampler.decode, SelectSettings())
        return (selector.select(record) for record in records)

    return list(asyncio.run(questions()))


class Erratic(ScriptedSampler):
    """Its rollouts don't depend on the steps so far, and many calls give none that ends: errors are found by chance."""

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        made = await super().complete(prompt[: prompt.index(ord("\n")) + 1], count, seed, affinity)
        return [replace(each, finished=seed % 3 > 0) for each in made]


@pytest.mark.parametrize("search", get_args(SearchName))
def test_no_search_labels_a_prefix_in_two_ways(search: SearchName, drawn: list[list[SelectedSolution]]) -> None:
    contradicted = False
    for seed in range(8):
        written: list[AnnotatedSolution | QuestionValue] = []
        asked = AnnotateSettings(search=search, seed=seed).limited(8)
        annotator = Annotator(Erratic(), Equivalence(), asked, {}, written.append)
        for solutions in drawn:
            asyncio.run(annotator.annotate(solutions, {}))
        labelled = [each for each in written if isinstance(each, AnnotatedSolution) and each.labels is not None]
        contradicted |= not agreeing(labelled)
        assert agreeing(consistent([ResolvedSolution(**vars_of(each)) for each in labelled]))
    assert contradicted


@pytest.mark.parametrize("search", [name for name in get_args(SearchName) if name != "random"])
def test_wrong_solutions_of_a_question_that_is_never_solved_get_no_labels(
    search: SearchName, drawn: list[list[SelectedSolution]]
) -> None:
    written: list[AnnotatedSolution | QuestionValue] = []
    annotator = Annotator(ScriptedSampler(), Equivalence(), AnnotateSettings(search=search), {}, written.append)
    unsolved = [replace(each, gold_answer="no such number", correct=False) for each in drawn[0]]
    asyncio.run(annotator.annotate(unsolved, {}))
    reasons = [each.reason for each in written if isinstance(each, AnnotatedSolution)]
    assert reasons == ["the model never solves the question"] * len(unsolved)
