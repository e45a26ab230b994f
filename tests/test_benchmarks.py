"""The benchmarks that CI can't run: those that need a GPU, on a tiny model; and that every name leads to one."""

import importlib
import json
from typing import get_args

import torch
from typer import Typer
from typer.testing import CliRunner

from benchmarks import gpu, models, timing
from benchmarks.__main__ import Name, main

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
        assert callable(module.comparisons)
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


def test_ratios_are_above_one_where_ours_is_better():
    assert timing.Comparison("", 1.0, "", 3.0, 1).ratio == 3.0
    assert timing.Comparison("", 30.0, "", 10.0, 1, "/s").ratio == 3.0
    rows = [timing.Comparison("a", 0.5, "b", 1.0, 1, allowed=2.5)]
    assert json.dumps(timing.table(rows).columns[5]._cells) == '["2.50\\u00d7"]'
