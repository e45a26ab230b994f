"""Pools: what is sampled is kept at once, gone on with later, and packed."""

import asyncio
import gzip
import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from research.__main__ import app
from research.packing import pack
from research.pool_settings import PoolSettings
from research.sampling import order, sample
from tests.fakes import openai_server
from tests.training import lines
from training.data.questions import Question
from training.evaluate import pool
from unprm.errors import OutputMismatch, RecordInvalid
from unprm.openai.client import OpenAIClient

SETTINGS = PoolSettings("f00d", limit=3, only=["level=1", "level=2"], samples=3, first=2, max_tokens=99)
ROWS = [{"id": f"q{n}", "problem": f"What is {n} + {n}?", "answer": str(2 * n), "level": n % 4} for n in range(1, 9)]


@pytest.fixture
def questions(tmp_path):
    """Four of them have level 1 or 2."""
    place = tmp_path / "questions.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return place


def answer(body):
    """A right solution, or for every third seed a wrong one that is cut off."""
    assert body.get("n", 1) == 1
    number, right = int(body["messages"][1]["content"].split()[2]), body["seed"] % 3 > 0
    return {"choices": [{
        "index": 0,
        "message": {"role": "assistant", "content": f"So \\boxed{{{2 * number if right else 7}}}."},
        "finish_reason": "stop" if right else "length",
        "logprobs": {"content": [{"token": "a", "logprob": -0.5}] * 4},
    }]}  # fmt: skip


def run(questions, url, output, settings=SETTINGS):
    client = OpenAIClient([url], None, timeout=20)
    console = Console(file=io.StringIO())
    return asyncio.run(sample(questions, client, "a-model", output, settings, 1, console))


@pytest.fixture
def sampled(questions, tmp_path):
    """A finished pool and the requests for it."""
    with openai_server(answer) as (url, seen):
        assert run(questions, url, tmp_path / "pool.jsonl") == {}
    return tmp_path / "pool.jsonl", seen


def test_the_first_few_of_all_questions_come_first():
    a, b = (Question(name, name, "1") for name in "ab")
    expected = [(a, 1), (a, 2), (b, 1), (b, 2), (a, 3), (b, 3)]
    assert list(order([a, b], SETTINGS)) == expected
    assert list(order([a, b], replace(SETTINGS, first=9))) == [(a, 1), (a, 2), (a, 3), (b, 1), (b, 2), (b, 3)]


def test_every_candidate_is_drawn_judged_and_kept(sampled):
    place, seen = sampled
    rows = list(lines.read(place))
    bodies = [request.body for request in seen]
    assert len({body["seed"] for body in bodies}) == len(rows) == 9
    assert {row["sample"] for row in rows[:6]} == {1, 2}
    for row, body in zip(rows, bodies, strict=True):
        assert body["messages"] == [
            {"role": "system", "content": SETTINGS.system}, {"role": "user", "content": row["problem"]},
        ]  # fmt: skip
        assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (0.8, 1.0, 0, 0.0)
        assert (body["max_completion_tokens"], body["logprobs"]) == (99, True)
        assert row["correct"] is (body["seed"] % 3 > 0) is (row["finish_reason"] == "stop")
        assert row["predicted"] == (row["answer"] if row["correct"] else "7")
        assert (row["tokens"], row["mean_logprob"]) == (4, -0.5)
    wanted = {row["problem"] for row in ROWS if row["level"] in (1, 2)}
    assert {row["problem"] for row in rows} < wanted


def test_a_run_that_was_killed_goes_on(sampled, questions):
    place, seen = sampled
    whole = place.read_bytes()
    place.write_bytes(whole[: whole.rindex(b'"text"')])  # in the last line
    with openai_server(answer) as (url, again):
        assert run(questions, url, place) == {}
        assert [request.body for request in again] == [seen[-1].body]
        assert place.read_bytes() == whole
        with pytest.raises(OutputMismatch, match=r"temperature was 0\.8, is 0\.5"):
            run(questions, url, place, replace(SETTINGS, temperature=0.5))
        with pytest.raises(RecordInvalid, match="no question with level=9"):
            run(questions, url, place.with_name("b.jsonl"), replace(SETTINGS, only=["level=9"]))
    assert len(again) == 1


def test_a_pack_is_what_best_of_n_reads(sampled, tmp_path):
    place, packed = sampled[0], tmp_path / "packed.jsonl.gz"
    rows = list(lines.read(place))
    size, counts = pack(place, packed)
    content = packed.read_bytes()
    assert (size, counts) == (len(content), {"questions": 3, "candidates": 9})
    kept = pool.read_pool(packed)
    assert sorted((each.problem, each.gold_answer) for each in kept) == sorted(
        {(row["problem"], row["answer"]) for row in rows}
    )
    assert all(each.confidences == pytest.approx([math.exp(-0.5)] * 3, abs=1e-4) for each in kept)
    assert pack(place, packed) == (size, counts)
    assert packed.read_bytes() == content


def test_a_pack_of_what_is_there_so_far_judges_anew(sampled, tmp_path):
    place, packed = sampled[0], tmp_path / "packed.jsonl.gz"
    first, *others = lines.read(place)
    stale = first | {"predicted": "0", "correct": not first["correct"]}
    place.write_text("".join(json.dumps(row) + "\n" for row in [stale, others[0]]) + '{"id": "in the mak')
    place.chmod(0o444)
    result = CliRunner().invoke(app, ["pack", str(place), "--output", str(packed)])
    assert result.exit_code == 0, result.output
    (row,) = map(json.loads, gzip.decompress(packed.read_bytes()).splitlines())
    expected = [{key: each[key] for key in ("predicted", "correct", "tokens")} for each in (first, others[0])]
    assert [{key: each[key] for key in ("predicted", "correct", "tokens")} for each in row["candidates"]] == expected
    place.chmod(0o644)
    place.write_text("")
    with pytest.raises(RecordInvalid, match="no candidate in it"):
        pack(place, packed)
