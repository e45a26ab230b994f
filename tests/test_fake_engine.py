"""The fake engine: deterministic, and broken where it is told to be."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_engine import FakeEngine, FakeFormat
from tests.support import PATIENCE, columns, until
from unprm.engines.judge.engine import TAG
from unprm.types import Engine

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def as_engine(engine: Engine) -> Engine:
    """Has a type checker compare the fake with the protocol."""
    return engine


@given(TEXT, st.lists(TEXT, min_size=1, max_size=5))
def test_format_ends_each_step_with_one_tag(problem: str, steps: list[str]) -> None:
    encoded = FakeFormat().encode(problem, steps)
    assert len(encoded.positions) == len(steps)
    assert [index for index, token in enumerate(encoded.ids) if token == TAG] == list(encoded.positions)
    assert FakeFormat().text(encoded) == f"{problem}\n" + "".join(f"{step}ş" for step in steps)
    assert len(FakeFormat().tokens(encoded)) == len(encoded.ids)


@given(TEXT, st.lists(TEXT, min_size=2, max_size=5))
def test_scores_depend_on_what_precedes_only(problem: str, steps: list[str]) -> None:
    engine = as_engine(FakeEngine())
    whole, beginning = (FakeFormat().encode(problem, part) for part in (steps, steps[:-1]))
    (scores,) = columns(engine.score([whole])).values
    assert all(0 < score < 1 for score in scores)
    assert columns(engine.score([beginning, whole])).values == [scores[:-1], scores]


def test_scores_differ_from_text_to_text() -> None:
    items = [FakeFormat().encode("p", [str(number)]) for number in range(1000)]
    assert len(set(columns(FakeEngine().score(items)).values)) == 1000


def test_records_its_batches_and_fails_on_the_calls_it_is_told_to() -> None:
    engine = FakeEngine(failures={1: RuntimeError("told to")}, scores=lambda item: [0.25])
    item = FakeFormat().encode("p", ["s"])
    assert columns(engine.score([item])).values == [(0.25,)]
    with pytest.raises(RuntimeError, match="told to"):
        engine.score([item, item])
    assert columns(engine.score([item])).values == [(0.25,)]
    assert engine.batches == [(item,), (item, item), (item,)]
    engine.close()
    assert engine.closed


def test_waits_at_its_gate() -> None:
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    scoring = threading.Thread(target=engine.score, args=([FakeFormat().encode("p", ["s"])],))
    scoring.start()
    until(lambda: len(engine.batches) == 1)
    assert scoring.is_alive()
    gate.set()
    scoring.join(PATIENCE)
    assert not scoring.is_alive()
