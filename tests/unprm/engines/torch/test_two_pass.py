"""A model that is asked twice about each step, on tiny random weights whose first answers differ between steps."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import checkpoints
from tests.unprm.formats import references
from tests.unprm.formats.test_families import OTHERS, PROBLEM, STEPS
from unprm.engines.torch.plain import PlainEngine
from unprm.engines.torch.two_pass import TwoPassEngine
from unprm.formats.pathfinder import PathfinderFormat
from unprm.models.load import load_engine
from unprm.models.options import ModelSpec
from unprm.models.source import ModelSource

SOLUTIONS = [(PROBLEM, STEPS), *OTHERS]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return checkpoints.write("pathfinder", tmp_path_factory.mktemp("two_pass") / "pathfinder", seed=4)


def load(place: Path, **options) -> TwoPassEngine:
    engine = load_engine(str(place), device="cpu", family="pathfinder", **options)
    assert isinstance(engine, TwoPassEngine)
    return engine


@cache
def load_format(place: Path) -> PathfinderFormat:
    form = ModelSource.find(ModelSpec(model=str(place), family="pathfinder")).format
    assert isinstance(form, PathfinderFormat)
    return form


def test_the_second_pass_reads_what_the_first_answered(place):
    seen: list[list[str]] = []
    expected = references.pathfinder(place, seen)
    engine = load(place)
    items = [engine.format.encode(*solution) for solution in SOLUTIONS]
    for solution, values in zip(SOLUTIONS, engine.score(items).scores, strict=True):
        assert values == pytest.approx(expected(*solution)[1], abs=1e-5)
    assert {answer for answers in seen for answer in answers} == {"++", "+-", "-+", "--"}
    assert len(set(seen[0])) == 3  # in one solution


def test_an_answer_of_the_first_pass_changes_a_score(place):
    engine = load(place)
    (first,) = engine.format.first(engine.format.encode(PROBLEM, STEPS[:1]))
    texts = [engine.format.text(engine.format.second(first, answers)) for answers in ((True, False), (False, True))]
    assert [text[text.index(" Math reasoning") :] for text in texts] == [
        " Math reasoning: <+>, Consistency: <->, Correctness: ",
        " Math reasoning: <->, Consistency: <+>, Correctness: ",
    ]
    assert engine.format.text(first).endswith("Current Step: 12 + 34 = 46. Math reasoning: <extra>, Consistency: ")


def test_tokens_are_those_of_both_passes_of_every_step(place):
    engine = load(place, prefix_cache_gb=0.1)
    item, other = (engine.format.encode(*solution) for solution in SOLUTIONS[:2])
    first = engine.format.first(item)
    # of the two answers the first stands where <extra> stood, and the second is new
    after = len(load_format(place).pieces.encode([", Correctness: "])[0]) + 1
    total = sum(2 * len(step.ids) + after for step in first)
    both = engine.score([item, other])
    assert both.tokens is not None
    assert both.tokens[0] == total
    distinct = {step.ids[:count] for step in first for count in range(1, len(step.ids) + 1)}
    seconds = sum(len(step.ids) - step.positions[0] - 1 + after for step in first)
    # what both solutions begin with counts for one of them
    alone = load(place, prefix_cache_gb=0.1).score([item])
    assert alone.computed == [len(distinct) + seconds]
    assert alone.tokens == [total]
    again = engine.score([item])
    assert again.computed == [0]
    assert again.tokens == [total]
    assert again.scores[0] == both.scores[0] == pytest.approx(alone.scores[0], abs=1e-6)


def test_scores_are_the_same_one_sequence_after_the_other(place):
    engine = load(place)
    source = ModelSource.find(ModelSpec(model=str(place), family="pathfinder"))
    reader = source.reader("auto", torch.device("cpu"))
    plain = TwoPassEngine(PlainEngine(reader, source.format, engine.description), source.format)
    items = [engine.format.encode(*solution) for solution in SOLUTIONS]
    scores, found = engine.score(items), plain.score(items)
    assert found.computed == found.tokens == scores.tokens
    for values, expected in zip(scores.scores, found.scores, strict=True):
        assert values == pytest.approx(expected, abs=1e-5)


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=20), st.lists(st.text("ab =+.\n", min_size=1, max_size=9).filter(str.strip), min_size=1))
def test_no_input_is_longer_than_what_is_encoded(place, problem, steps):
    form = load_format(place)
    item = form.encode(problem, steps)
    first = form.first(item)
    assert len(first) == len(steps)
    for good in ((True, True), (False, True)):
        second = [form.second(step, good) for step in first]
        assert max(len(step.ids) for step in (*first, *second)) <= len(item.ids)
    assert form.second(first[-1], (True, True)).ids == item.needed


def test_a_solution_that_just_fits_is_scored(place):
    whole = load(place)
    item = whole.format.encode(PROBLEM, STEPS)
    exact = load(place, max_solution_tokens=len(item.ids))
    assert exact.description.max_tokens == len(item.ids)
    assert exact.score([item]).scores[0] == pytest.approx(whole.score([item]).scores[0], abs=1e-6)


def test_a_closed_engine_scores_no_more(place):
    engine = load(place)
    assert engine.score([]).scores == []
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.score([engine.format.encode(PROBLEM, STEPS)])


def test_scopes_share_no_computation(place):
    engine = load(place, prefix_cache_gb=0.01)
    item = engine.format.encode(PROBLEM, STEPS)
    first, again, other = (engine.score([replace(item, scope=scope)]) for scope in ("a", "a", "b"))
    assert first.scores == again.scores == other.scores
    assert first.computed == other.computed
    assert again.computed == [0]
