"""Compiled layers: scores stay what they are, a graph serves passes of all sizes, and what can't be compiled is run as
it is written."""

import logging
import weakref

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import MistralConfig, MistralModel, Qwen2Config, Qwen2Model

from tests.support import columns
from unprm.engines.torch import attention
from unprm.engines.torch.compiled import CompiledLayers
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.readers import AtPositions
from unprm.types import Encoded, ModelDescription

WINDOW = 64
ABOUT = ModelDescription(name="m", family="f", engine="torch", device="cpu", dtype="", max_tokens=WINDOW)
SHAPE = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.3,
}
ITEMS = [Encoded(tuple(range(1, length)), (length // 2, length - 2)) for length in (30, 12, 4, 17, 40)]
GRAPHS = "eager"
"""A backend that runs the operations of a graph one by one."""


def _network(kind=Qwen2Model, config=Qwen2Config, **more):
    torch.manual_seed(0)
    return kind(config(**SHAPE | more)).eval()


def _engine(network):
    torch.manual_seed(1)
    head = torch.nn.Sequential(torch.nn.Linear(16, 1), torch.nn.Flatten(0))
    return TorchEngine(AtPositions(network, head, torch.device("cpu")), None, ABOUT, 20, 2**16)


def _scores(engine):
    """The scores of solutions, and of a token more than is known, which is a pass of one token."""
    engine.forget()
    alone = [columns(engine.score([item])).values[0] for item in ITEMS]
    more = Encoded((*ITEMS[-1].ids, 7), (len(ITEMS[-1].ids),))
    return [*alone, *columns(engine.score([more])).values]


def _assert_near(found, expected):
    for scores, values in zip(found, expected, strict=True):
        assert scores == pytest.approx(values, abs=1e-5)


@pytest.fixture(autouse=True)
def _no_graphs_of_others(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("network", "graphs"),
    [((Qwen2Model, Qwen2Config), 1), ((MistralModel, MistralConfig), 1)],
    ids=["qwen2", "mistral, sliding"],
)
def test_scores_are_those_of_the_layers_as_they_are_written(network, graphs):
    network = _network(*network, sliding_window=5)
    engine = _engine(network)
    expected = _scores(engine)
    layers = CompiledLayers(network, GRAPHS)
    _assert_near(_scores(engine), expected)
    assert not layers.failed
    assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_so_are_those_of_the_graphs_that_become_kernels():
    """Without the kernels: a CPU's take a minute to compile."""
    network = _network()
    engine = _engine(network)
    expected = _scores(engine)
    layers = CompiledLayers(network, "aot_eager_decomp_partition")
    _assert_near(_scores(engine), expected)
    assert not layers.failed


def test_what_can_t_be_compiled_is_run_as_it_is_written(caplog):
    def broken(graph, inputs):
        raise RuntimeError("no compiler here\nand much more")

    network = _network()
    engine = _engine(network)
    expected = _scores(engine)
    layers = CompiledLayers(network, broken)
    with caplog.at_level(logging.WARNING):
        _assert_near(_scores(engine), expected)
    assert layers.failed
    (record,) = caplog.records
    assert "no compiler here" in record.message
    assert "\n" not in record.message


def test_plain_passes_are_as_they_were():
    network = _network()
    ids = torch.tensor([ITEMS[0].ids])
    with torch.inference_mode():
        expected = network(ids, use_cache=False).last_hidden_state
        written = network.config._attn_implementation
        attention.use(network)
        layers = CompiledLayers(network, GRAPHS)
        network.set_attn_implementation(written)
        assert torch.equal(network(ids, use_cache=False).last_hidden_state, expected)
    assert not layers.failed
    assert counters["stats"]["unique_graphs"] == 0


def test_layers_of_more_models_than_pytorch_allows_graphs_are_compiled():
    for number in range(9):  # its default is 8
        network = _network(intermediate_size=8 * number + 24, num_hidden_layers=1)
        engine = _engine(network)
        layers = CompiledLayers(network, GRAPHS)
        engine.score(ITEMS[:1])
        assert not layers.failed
    assert counters["stats"]["unique_graphs"] == 9


def test_memory_that_runs_out_is_no_reason_to_stop_compiling():
    def greedy(graph, inputs):
        def run(*_):
            raise torch.OutOfMemoryError

        return run

    network = _network()
    engine = _engine(network)
    layers = CompiledLayers(network, greedy)
    with pytest.raises(torch.OutOfMemoryError):
        engine.score(ITEMS[:1])
    assert not layers.failed


def test_a_model_that_is_unloaded_is_freed_at_once():
    network = _network()
    engine = _engine(network)
    CompiledLayers(network, GRAPHS)
    _scores(engine)
    weight, (keys, _) = network.layers[0].mlp.gate_proj.weight, engine._stores[0].layers[-1]
    gone = weakref.ref(weight), weakref.ref(keys)
    engine.close()
    del network, engine, weight, keys, _
    assert [found() for found in gone] == [None, None]
