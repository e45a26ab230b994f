"""Attention by a GPU's kernels: which tokens they are told to take, and for which models."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from transformers import (
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    MambaConfig,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
)

from tests.training.prm.kernels import PLAIN
from training.prm.attention import NAME, Packs, attention, compiled, computes, forest_blocks
from training.prm.collate import Example, micro_batches
from training.prm.heads import make_head
from training.prm.network import Compute, Network, prepare
from training.prm.prefixes import grow, sees
from training.prm.train_settings import TrainSettings
from unprm.formats.family import Verdicts
from unprm.types import Encoded


@pytest.mark.parametrize("length", [40, 300])
def test_blocks_of_a_forest_are_those_that_a_token_sees(length):
    rng = random.Random(length)
    for _ in range(6):
        begun = [rng.choices(range(9), k=rng.randint(1, length)) for _ in range(3)]
        sequences = sorted((*rng.choice(begun), *rng.choices(range(9), k=rng.randint(1, length))) for _ in range(8))
        ends = torch.tensor(grow(sequences).ends)
        made, tokens = forest_blocks(ends), len(ends)
        expected = create_block_mask(made.mask_mod, None, None, tokens, tokens, device="cpu")
        assert torch.equal(create_mask(made.mask_mod, None, None, tokens, tokens, device="cpu")[0, 0], sees(ends))
        assert _listed(made) == _listed(expected)


def _listed(mask):
    """The blocks of keys of each block of queries, and the other way round, partial and whole."""
    kinds = ("kv", "full_kv", "q", "full_q")
    pairs = ((getattr(mask, f"{kind}_num_blocks"), getattr(mask, f"{kind}_indices")) for kind in kinds)
    return [
        [sorted(row[:count].tolist()) for count, row in zip(counts.flatten(), indices[0, 0], strict=True)]
        for counts, indices in pairs
    ]


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
        attention(torch.nn.Module(), states, states, states, None, Packs.of([3], "cpu"), PLAIN, 1.0, dropout=0.1)


def test_flex_attention_is_compiled_for_more_kinds_of_inputs_than_pytorch_s_limit():
    """Beyond that it would make the scores of all pairs of tokens."""
    graphs = []
    compute = compiled(lambda graph, inputs: graphs.append(graph) or graph.forward)
    layout = forest_blocks(torch.tensor([3, 3, 3]))

    def run(dtype, heads, gradients):
        states = torch.zeros(1, heads, 3, 16, dtype=dtype)
        with torch.set_grad_enabled(gradients):
            compute(states, states, states, block_mask=layout)

    kinds = itertools.product((torch.float32, torch.bfloat16, torch.float16), (1, 2), (False, True))
    with ThreadPoolExecutor(1) as thread:  # as gradient checkpointing runs it
        list(thread.map(lambda kind: run(*kind), kinds))
    assert len(graphs) == 12


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
    for kernels in (None, PLAIN):
        torch.manual_seed(0)
        compute = Compute("cpu", torch.float32, bf16, kernels)
        model = prepare(MistralForCausalLM(config), settings, compute)
        network = Network(model, make_head(model, settings, Verdicts(0, 1), bf16), compute)
        assert (model.config._attn_implementation == NAME) is (kernels is not None)
        margins = [network(micro) for micro in micro_batches(examples, 10 if kernels is None else 99, bool(kernels))]
        torch.cat(margins).sum().backward()
        found.append((torch.cat(margins), torch.cat([p.grad.flatten() for p in network.parameters()])))
    (expected, slopes), (margins, again) = found
    assert torch.allclose(margins, expected, atol=0.05 if bf16 else 1e-5)
    assert (again - slopes).norm() < (0.05 if bf16 else 1e-5) * slopes.norm()
