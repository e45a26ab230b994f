"""llama.cpp's server with a base by name: what it is told, and names that are none."""

from unittest.mock import MagicMock

from typer.testing import CliRunner

from unprm.checkpoints.bases import BASES
from unprm.upstream import app, configure


def test_llama_cpp_samples_from_the_distribution_itself():
    params = configure(MagicMock(), "a-name", "/a/file.gguf", 8001, slots=3, threads=2, tokens=100)
    assert (params.model.path, params.model_alias) == ("/a/file.gguf", {"a-name"})
    assert (params.hostnames, params.port) == (["127.0.0.1"], 8001)
    assert (params.n_parallel, params.n_ctx) == (3, 300)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (2, 2)
    assert (params.sampling.top_k, params.sampling.top_p, params.sampling.min_p) == (0, 1.0, 0.0)


def test_a_name_that_is_no_base_is_answered_with_those_that_are():
    refused = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["Qwen/Qwen2.5-0.5B"])
    assert refused.exit_code == 2
    assert all(name in refused.output for name in BASES)
