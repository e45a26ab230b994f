"""Attention by a GPU's kernel: which tokens it is told to take, and for which models."""

import random

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    MambaConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
)

from tests.training.prm.kernels import packed
from training.prm.collate import Example, micro_batches
from training.prm.network import NAME, Compute, Network, Packs, attention, computes, make_head, prepare
from training.prm.train_settings import TrainSettings
from unprm.formats.family import Verdicts
from unprm.types import Encoded


def test_kernels_are_for_models_whose_attention_they_compute():
    for config, expected in (
        (Qwen2Config(), True),
        (MistralConfig(sliding_window=20), True),
        (Gemma2Config(), False),
        (DeepseekV3Config(), False),
        (Qwen2Config(hidden_size=4096, num_attention_heads=8, num_key_value_heads=2), False),
        (Qwen2Config(hidden_size=400, num_attention_heads=4, num_key_value_heads=2), False),
        (Qwen2Config(attention_dropout=0.1), False),
        (GPT2Config(attn_pdrop=0.1), False),
        (GPT2Config(attn_pdrop=0.0), True),
        (MambaConfig(), False),
    ):
        config._attn_implementation = "sdpa"
        assert computes(config) is expected
    eager = Qwen2Config()
    eager._attn_implementation = "eager"
    assert not computes(eager)


def test_dropout_of_what_is_attended_to_is_not_left_out_without_a_word():
    states = torch.zeros(1, 2, 3, 8)
    with pytest.raises(NotImplementedError, match="dropout"):
        attention(torch.nn.Module(), states, states, states, None, Packs.of([3], "cpu"), packed, 1.0, dropout=0.1)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_window_counts_within_each_solution_and_all_are_in_one_type(bf16, tmp_path):
    """With all weights trained, autocast leaves queries and keys in another type than values."""
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = MistralConfig(vocab_size=50, num_key_value_heads=2, sliding_window=8, initializer_range=0.3, **shape)
    settings = TrainSettings("", (), tmp_path, tune="all", bf16=bf16)
    rng = random.Random(1)
    texts = [tuple(rng.choices(range(50), k=k)) for k in (5, 12, 30)]
    examples = [Example(Encoded(text, (len(text) - 1,)), (1.0,)) for text in texts]
    found = []
    for kernel in (None, packed):
        torch.manual_seed(0)
        compute = Compute("cpu", torch.float32, bf16, kernel)
        model = prepare(MistralForCausalLM(config), settings, compute)
        network = Network(model, make_head(model, settings, Verdicts(0, 1)), compute)
        assert (model.config._attn_implementation == NAME) is (kernel is not None)
        margins = [network(micro) for micro in micro_batches(examples, 10 if kernel is None else 99, bool(kernel))]
        torch.cat(margins).sum().backward()
        found.append((torch.cat(margins), torch.cat([p.grad.flatten() for p in network.parameters()])))
    (expected, slopes), (margins, again) = found
    assert torch.allclose(margins, expected, atol=0.05 if bf16 else 1e-5)
    assert (again - slopes).norm() < (0.05 if bf16 else 1e-5) * slopes.norm()
