"""The benchmarks that CI can't run: those that need a GPU, on a tiny model; and that every name leads to one."""

import importlib
import json
import random
from typing import get_args

import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from benchmarks import gpu, hostile, models, queries, replicas, scale, timing, trl
from benchmarks.__main__ import Name, main
from unprm import mini
from unprm.formats.unprm import PrmConfig, UnprmFormat
from unprm.models.checkpoint import load_tokenizer

TINY = {
    "vocab_size": 2000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}


def test_every_name_is_a_benchmark():
    for name in get_args(Name):
        module = importlib.import_module(f"benchmarks.{name}")
        assert callable(module.run)
        assert module.__doc__


def test_the_gpu_benchmark_computes_what_it_claims(monkeypatch):
    monkeypatch.setattr(gpu, "CANDIDATES", 6)
    vote, rate = gpu.measure(TINY, torch.device("cpu"), 64)
    assert "1.000 × their distinct tokens run" in vote.what
    assert float(vote.what.rpartition(" ")[2]) < 0.05  # scores of bf16
    items = [models.scored([*range(models.QUESTION), *range(k * 500, k * 500 + 500)]) for k in range(1, 4)]
    assert models.distinct(items) == models.QUESTION + 1500
    assert rate.unit == "/s"
    assert rate.ratio > 0
    assert rate.ours == (models.QUESTION + 6 * gpu.LENGTH) / vote.ours


def test_where_there_is_no_gpu_it_says_so():
    if torch.cuda.is_available():
        return
    app = Typer()
    app.command()(main)
    outcome = CliRunner().invoke(app, ["gpu"])
    assert outcome.exit_code == 1
    assert "needs a GPU" in str(outcome.exception) or "needs a GPU" in outcome.output


def test_where_trl_has_no_such_trainer_it_says_so(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # and is not set any more after the test
    with pytest.raises(SystemExit, match=r"needs TRL 1\.13: make benchmark-trl"):
        trl.run()


def test_honest_votes_are_compared_with_and_without_hostile_ones(monkeypatch):
    for name, value in {"HOSTILE": 6, "WARM": 2, "HONEST": 4}.items():
        monkeypatch.setattr(hostile, name, value)
    p99, p50, longest = hostile.run()
    assert p99.ours >= p50.ours > 0
    assert 0 < longest.ours < 10


def test_ratios_are_above_one_where_ours_is_better():
    assert timing.Comparison("", 1.0, "", 3.0, 1).ratio == 3.0
    assert timing.Comparison("", 30.0, "", 10.0, 1, "/s").ratio == 3.0
    rows = [timing.Comparison("a", 0.5, "b", 1.0, 1, allowed=2.5)]
    assert json.dumps(timing.table(rows).columns[5]._cells) == '["2.50\\u00d7"]'


def test_two_replicas_are_expected_from_what_one_does():
    tokenizer = load_tokenizer(mini.BASE)
    form = UnprmFormat(tokenizer, PrmConfig.for_base(tokenizer, "b", "."))
    count = replicas.WARM + replicas.REQUESTS
    load = replicas.requests(form, queries.zipf(random.Random(0), count, replicas.CANDIDATES, replicas.QUESTIONS))
    expected = replicas.expect(load, 4.0, bound=False)
    # as a server counted: `cached_tokens` of `tokens`, over these requests
    assert round(expected.one, 3) == 0.8
    assert expected.one - 0.001 < expected.known < expected.one
    assert 4.0 < expected.rate < 8.0
    slow = replicas.expect(load, 2.0, bound=False)
    assert slow.rate == pytest.approx(expected.rate / 2)
    bounded = replicas.expect(load, 4.0, bound=True)  # knows less, and none waits for the other
    assert bounded.known < expected.known
    assert bounded.rate > expected.rate


def test_an_affine_load_takes_fewer_replicas(monkeypatch):
    for name, value in {"COUNTS": (1, 4), "RATE": 60.0, "REQUESTS": 2000, "QUESTIONS": 200}.items():
        monkeypatch.setattr(scale, name, value)
    rows = scale.run()
    assert len(rows) == 12
    one, four, needed = rows[0], rows[4], rows[10]
    assert one.ratio == 1.0
    assert four.ratio > 1.2
    assert needed.ours < needed.baseline
    assert scale.run() == rows
    assert needed.ours > 60.0 / scale.capacity(1)
