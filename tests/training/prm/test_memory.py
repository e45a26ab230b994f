"""The first guess at a pass: what is left open fits the free memory, and on a CPU some seconds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, MambaConfig, Qwen2Config

from training.prm.memory import CORE_RATE, ENOUGH_TOKENS, MOST_TOKENS, PASS_SECONDS, SPARE, free_memory, guess
from training.prm.network import Compute, Network, make_head, prepare
from training.prm.train_settings import TrainSettings
from unprm.engines.torch.memory import left_to_container
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SETTINGS = TrainSettings("", (), Path())


def _network(config, settings=SETTINGS):
    base = AutoModelForCausalLM.from_config(config)
    compute = Compute.of(settings, "cpu", False)
    model = prepare(base, settings, compute)
    return Network(model, make_head(model, settings, Verdicts(0, 1)), compute)


@pytest.fixture(scope="module")
def network():
    return _network(Qwen2Config(**SHAPE))


def _free(network, tokens, checkpointing=False):
    """Bytes with which passes of so many tokens just fit."""
    made = guess(network, replace(SETTINGS, gradient_checkpointing=checkpointing), 10**12, 100)
    return round((made.fixed + tokens * made.per_token) / (1 - SPARE)) + 1


def test_activations_are_computed_twice_only_where_it_takes_that_to_fit(network):
    roomy = guess(network, SETTINGS, 10**12, 100)
    assert (roomy.batch_tokens, roomy.gradient_checkpointing) == (MOST_TOKENS, False)
    assert "16,384 tokens without gradient checkpointing" in str(roomy)
    enough = guess(network, SETTINGS, _free(network, ENOUGH_TOKENS), 100)
    assert (enough.batch_tokens, enough.gradient_checkpointing) == (ENOUGH_TOKENS, False)
    short = guess(network, SETTINGS, _free(network, ENOUGH_TOKENS - 1), 100)
    assert short.gradient_checkpointing
    assert short.batch_tokens * short.per_token <= (1 - SPARE) * short.free - short.fixed
    # where the longest solution is longer, or a whole batch shorter, that has to fit
    assert guess(network, SETTINGS, _free(network, 5000), 5001).gradient_checkpointing
    assert not guess(network, replace(SETTINGS, batch_size=2), _free(network, 200), 100).gradient_checkpointing


def test_what_is_given_is_kept(network):
    little = _free(network, 10)
    given = replace(SETTINGS, batch_tokens=900)
    assert guess(network, given, little, 100).gradient_checkpointing
    assert guess(network, given, 10**12, 100).batch_tokens == guess(network, given, little, 100).batch_tokens == 900
    assert not guess(network, replace(SETTINGS, gradient_checkpointing=False), little, 100).gradient_checkpointing


def test_on_a_cpu_a_pass_takes_some_seconds():
    wide = Qwen2Config(**(SHAPE | {"hidden_size": 1024, "intermediate_size": 8192, "num_hidden_layers": 1}))
    for tune, products in (("lora", 2), ("all", 3)):
        network = _network(wide, replace(SETTINGS, tune=tune))
        made = guess(network, replace(SETTINGS, tune=tune), 10**12, 100)
        size = sum(parameter.numel() for parameter in network.parameters())
        seconds = made.batch_tokens * 2 * products * size / CORE_RATE / torch.get_num_threads()
        assert seconds == pytest.approx(PASS_SECONDS, rel=0.01)


def test_a_run_whose_gradients_do_not_fit_is_refused(network):
    whole = replace(SETTINGS, tune="all")
    trained = _network(Qwen2Config(**SHAPE), whole)
    size = sum(parameter.nbytes for parameter in trained.parameters())
    assert guess(trained, whole, 5 * size, 100).fixed == 3 * size
    with pytest.raises(ModelInvalid, match=r"for gradients and AdamW beside its weights, and .* are free"):
        guess(trained, whole, 3 * size, 100)


@pytest.mark.parametrize("kind", [GPT2Config, MambaConfig])
def test_other_architectures_are_counted(kind):
    network = _network(kind(hidden_size=96, num_hidden_layers=1, vocab_size=300), replace(SETTINGS, tune="all"))
    assert guess(network, SETTINGS, 10**12, 100).per_token > 0


def test_a_container_s_limit_counts(tmp_path):
    assert 0 < free_memory(torch.device("cpu")) <= left_to_container(tmp_path)
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 200\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert left_to_container(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert left_to_container(tmp_path) > 10**15
