"""The benchmarks that CI can't run, those of a GPU, rehearsed on a tiny model; and that every name leads to one."""

import importlib
import json
from dataclasses import replace
from typing import get_args

import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from benchmarks import gpu, http, models, timing
from benchmarks.__main__ import Name, main
from benchmarks.timing import Comparison
from tests.fake_engine import FakeEngine
from tests.server.harness import serving
from unprm.engines.judge.engine import texts

APP = Typer()
APP.command()(main)


def test_every_name_is_a_benchmark():
    for name in get_args(Name):
        module = importlib.import_module(f"benchmarks.{name}")
        assert callable(module.comparisons)
        assert module.__doc__


def test_the_gpu_benchmark_goes_from_start_to_end_on_a_cpu(monkeypatch):
    work = replace(gpu.REHEARSAL, candidates=3, singles=1, clients=(2,), beams=(2, 2), long=300)
    monkeypatch.setattr(gpu, "REHEARSAL", work)
    outcome = CliRunner().invoke(APP, ["gpu", "--device", "cpu", "--json"])
    assert outcome.exit_code == 0, outcome.output
    rows = {row["what"]: row for row in map(json.loads, outcome.stdout.splitlines())}
    (vote,) = (what for what in rows if what.startswith("3 candidates of 60 tokens, 1.000 × their distinct tokens run"))
    assert float(vote.rpartition(" ")[2]) < 0.05  # scores of bf16
    assert rows["tokens computed"]["ours"] == (work.problem + 3 * work.length) / rows[vote]["ours"]
    assert rows["a vote: kernels"]["ours"] > 100
    assert rows["self-test: margins differ by"]["ratio"] > 1
    assert rows["the sampler, 8 rows"]["ours"] == 8 / rows["the sampler's step, 8 rows"]["ours"]
    over_http = {what: row for what, row in rows.items() if what.startswith("over HTTP")}
    assert len(over_http) == 6
    assert min(row["baseline"] for row in over_http.values()) > 0  # the model ran for each


def test_distinct_tokens_are_counted():
    items = [models.scored([*range(models.QUESTION), *range(k * 500, k * 500 + 500)]) for k in range(1, 4)]
    assert models.distinct(items) == models.QUESTION + 1500


def test_a_part_that_fails_is_left_out_and_the_rest_goes_on(monkeypatch):
    def failing(*_):
        yield Comparison("before it failed", 1.0)
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(gpu, "_engine", failing)
    monkeypatch.setattr(gpu, "_server", lambda *_: iter([Comparison("the rest", 2.0, unit="")]))
    monkeypatch.setattr(gpu, "_sampler", lambda *_: iter([]))
    outcome = CliRunner().invoke(APP, ["gpu", "--device=cpu"])
    assert outcome.exit_code == 1
    assert "CUDA error" in outcome.stderr
    assert "before it failed" in outcome.stdout  # the table
    assert "the rest; 2" in outcome.stderr


def test_only_the_gpu_benchmark_has_a_device():
    outcome = CliRunner().invoke(APP, ["vote", "--device=cpu"])
    assert outcome.exit_code == 2
    assert "vote has no choice of a device" in outcome.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_where_there_is_no_gpu_it_says_so():
    outcome = CliRunner().invoke(APP, ["gpu"])
    assert outcome.exit_code == 1
    assert "needs a GPU" in str(outcome.exception) or "needs a GPU" in outcome.output


def test_a_running_server_is_measured_by_ever_more_clients(monkeypatch):
    monkeypatch.setattr(http, "CLIENTS", (1, 2))
    monkeypatch.setattr(http, "REQUESTS", 2)
    monkeypatch.setenv("UNPRM_CLIENT_KEY", "k")
    engine = FakeEngine()
    with serving(engine, api_key="k") as running:
        outcome = CliRunner().invoke(APP, ["http", running.url, "--json"])
        monkeypatch.setenv("UNPRM_CLIENT_KEY", "other")
        refused = CliRunner().invoke(APP, ["http", running.url])
    assert outcome.exit_code == 0, outcome.output
    one, two = map(json.loads, outcome.stdout.splitlines())
    assert (one["ratio"], two["baseline"]) == (1.0, one["ours"])
    assert two["what"].startswith(f"{running.url}, 2 clients: p50 ")
    assert len({texts(item)[0] for batch in engine.batches for item in batch}) == 2 + 4
    assert "401" in str(refused.exception)


@pytest.mark.parametrize("words", [["http"], ["vote", "http://127.0.0.1:8000"]])
def test_only_the_benchmark_of_servers_takes_addresses(words):
    outcome = CliRunner().invoke(APP, words)
    assert outcome.exit_code == 2
    assert "takes the URLs" in outcome.stderr


def test_ratios_are_above_one_where_ours_is_better():
    assert timing.Comparison("", 1.0, "", 3.0, 1).ratio == 3.0
    assert timing.Comparison("", 30.0, "", 10.0, 1, "/s").ratio == 3.0
    rows = [timing.Comparison("a", 0.5, "b", 1.0, 1, allowed=2.5)]
    assert json.dumps(timing.table(rows).columns[5]._cells) == '["2.50\\u00d7"]'
