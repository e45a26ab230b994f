"""What a run takes of the memory is counted before; here it is held against what PyTorch's allocator really gives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MambaConfig, MistralConfig, Qwen2Config
from typer.testing import CliRunner

from training.__main__ import app
from training.prm.attention import of_cuda
from training.prm.collate import Example, micro_batches
from training.prm.heads import make_head
from training.prm.memory import (
    CORE_RATE,
    MOST_TOKENS,
    PASS_SECONDS,
    footprint,
    free_memory,
    left_to_container,
    plan,
)
from training.prm.network import Compute, Network, compute_in_float32, prepare, read_shape
from training.prm.train_settings import LINEAR, TrainSettings
from unprm.engines.torch.quantized import WidenedLinear
from unprm.errors import ModelInvalid
from unprm.formats.family import Verdicts
from unprm.types import Encoded

LAYERS = 3
SHAPE = {
    "vocab_size": 30_000,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SETTINGS = TrainSettings("", (), Path())
ALL = replace(SETTINGS, tune="all")
SLOW, FAST = (Compute.of(SETTINGS, "cpu", fast) for fast in (False, True))
CARD = Compute.of(SETTINGS, "cuda", True)
TEXTS, LENGTH = 6, 64


def allocated(work):
    """Bytes that PyTorch's allocator has given at most, beyond what it had before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    events = sorted(watched.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    now = most = 0
    for event in events:
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


@pytest.fixture
def one_thread():
    """Operations in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _network(base, settings, compute=SLOW, verdicts=Verdicts(0, 1)):  # noqa: B008  (it is frozen)
    model = prepare(base, settings, compute)
    return Network(model, make_head(model, settings, verdicts, compute.autocast), compute)


@pytest.mark.parametrize(
    ("kind", "changes", "fast"),
    [
        (Qwen2Config, {}, False),
        (Qwen2Config, {"lora_targets": LINEAR, "lora_dropout": 0.0}, False),
        (Qwen2Config, {"bf16": True}, False),
        (Qwen2Config, {"bf16": True}, True),
        (LlamaConfig, {"gradient_checkpointing": True}, False),
        (Qwen2Config, {"head": "classes"}, False),
        (LlamaConfig, {"tune": "all", "bf16": True}, False),
        (LlamaConfig, {"tune": "all", "bf16": True}, True),
        (MistralConfig, {"gradient_checkpointing": True, "tune": "all"}, False),
        (Qwen2Config, {"share_prefixes": True}, False),
    ],
)
def test_the_activations_are_about_those_of_a_real_pass(kind, changes, fast, one_thread):
    """`fast`: whether the processor is taken to multiply in bfloat16, whatever this one does."""
    settings, config = replace(SETTINGS, **changes), kind(**SHAPE)
    compute = Compute.of(settings, "cpu", fast)
    base = AutoModelForCausalLM.from_config(config, dtype=compute.base)
    network = _network(base, settings, compute)
    examples = [Example(Encoded((text,) * LENGTH, (33, 63), 0), (True, False)) for text in range(TEXTS)]
    (micro,) = micro_batches(examples, TEXTS * LENGTH, sharing=settings.share_prefixes)

    def work():
        network(micro).sum().backward()

    work()  # gradients of what is trained are there from now on
    made = plan(config, replace(settings, batch_tokens=TEXTS * LENGTH), compute, 10**12, LENGTH)
    assert made.gradient_checkpointing == bool(settings.gradient_checkpointing)
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    size, largest = sum(p.nbytes for p in trained.values()), max(p.nbytes for p in trained.values())
    # autocast keeps a copy in bfloat16 of each matrix that is trained
    copies = sum(p.nbytes // 2 for name, p in trained.items() if compute.autocast and "proj" in name)
    needed = made.footprint.activations * TEXTS * LENGTH + largest + copies
    assert 1 <= needed / allocated(work) < 2
    assert made.footprint.trained == pytest.approx(4 * size + largest + copies, abs=3000)
    assert made.footprint.frozen == sum(p.nbytes for p in network.parameters()) - size


CONFIG = Qwen2Config(**SHAPE)


def test_activations_are_computed_twice_only_where_it_takes_that_to_fit():
    longest, plain = 512, footprint(CONFIG, SETTINGS, SLOW)
    roomy = plan(CONFIG, SETTINGS, SLOW, 10**12, longest)
    assert (roomy.batch_tokens, roomy.gradient_checkpointing) == (MOST_TOKENS, False)
    assert "16,384 tokens without gradient checkpointing" in str(roomy)

    half = plan(CONFIG, SETTINGS, SLOW, plain.needed(8000), longest)
    assert not half.gradient_checkpointing
    assert 7990 <= half.batch_tokens <= 8000

    quarter = plan(CONFIG, SETTINGS, SLOW, plain.needed(4000), longest)
    assert quarter.gradient_checkpointing
    assert 4000 < quarter.batch_tokens < MOST_TOKENS
    assert quarter.footprint.needed(quarter.batch_tokens) <= quarter.free

    twice = replace(SETTINGS, gradient_checkpointing=True)
    least = quarter.footprint.needed(longest)
    assert plan(CONFIG, twice, SLOW, least + 999, longest).batch_tokens == longest
    with pytest.raises(ModelInvalid, match=r"needs .* of 512 tokens, with gradient checkpointing, but .* is free"):
        plan(CONFIG, twice, SLOW, least - 999, longest)


def test_on_a_cpu_a_pass_takes_some_seconds_and_on_a_gpu_what_fits(one_thread):
    wide = Qwen2Config(**(SHAPE | {"hidden_size": 2048, "intermediate_size": 16_384, "num_hidden_layers": 2}))
    layer = 2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 16_384
    for settings, products in ((SETTINGS, 2), (replace(SETTINGS, tune="all"), 3)):
        made = plan(wide, settings, SLOW, 10**12, 100)
        assert made.footprint.operations == pytest.approx(2 * products * 2 * layer, rel=0.01)
        assert made.batch_tokens * made.footprint.operations == pytest.approx(PASS_SECONDS * CORE_RATE, rel=0.01)
        assert not made.gradient_checkpointing
        assert plan(wide, settings, CARD, 10**12, 100).batch_tokens == MOST_TOKENS
    assert plan(wide, replace(SETTINGS, batch_tokens=9000), SLOW, 10**12, 100).batch_tokens == 9000


def test_on_a_gpu_the_plan_leaves_a_reserve_and_counts_a_byte_for_what_dropout_drops():
    made = plan(CONFIG, SETTINGS, CARD, 10**9, 100)
    assert made.footprint.needed(made.batch_tokens) <= 0.95 * 10**9
    # numbers of a token that go into the adapters of q_proj and v_proj; the first layer's inputs need no gradient
    dropped = (LAYERS - 1) * 2 * 64
    on_cpu, on_card = (footprint(CONFIG, SETTINGS, each) for each in (CARD._replace(device="cpu"), CARD))
    per_number = (on_cpu.activations - on_card.activations) / (dropped * (LAYERS + 1) / LAYERS)
    assert per_number == pytest.approx(4 - 1, rel=0.01)


@pytest.mark.parametrize("compute", [SLOW, CARD], ids=["cpu", "cuda"])
@pytest.mark.parametrize("kind", [GPT2Config, MambaConfig])
def test_other_architectures_are_counted(kind, compute):
    made = footprint(kind(hidden_size=96, num_hidden_layers=1, vocab_size=50_300), ALL, compute)
    assert min(made.activations, made.operations, made.trained) > 0


def test_on_a_card_bfloat16_is_the_default_and_a_cpu_s_speed_decides_how_it_computes():
    lora, whole = SETTINGS, replace(SETTINGS, tune="all")
    half, full = torch.bfloat16, torch.float32
    for settings, expected in (
        (lora, (half, True, of_cuda())),
        (whole, (full, True, of_cuda())),
        (replace(lora, bf16=False), (half, False, of_cuda())),
        (replace(whole, bf16=False), (full, False, None)),
    ):
        assert Compute.of(settings, "cuda", True)[1:] == expected
        old = Compute.of(settings, "cuda", False)
        assert old[1:] == (expected[0], False, None)
    assert Compute.of(lora, "cpu", True) == Compute.of(lora, "cpu", False) == ("cpu", full, False, None)
    wanted = replace(lora, bf16=True)
    fast, slow = (Compute.of(wanted, "cpu", each) for each in (True, False))
    assert (fast.base, fast.autocast, fast.widens) == (half, True, False)
    assert (slow.base, slow.autocast, slow.widens) == (half, False, True)
    for each in (fast, slow):
        base = AutoModelForCausalLM.from_config(CONFIG, dtype=each.base)
        widened = [module for module in prepare(base, wanted, each).modules() if isinstance(module, WidenedLinear)]
        assert bool(widened) is each.widens


def test_what_stays_in_float32_is_computed_in_tf32_on_a_card_alone():
    for compute, expected in ((CARD, "high"), (SLOW, "highest")):
        with compute.products():
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == "highest"


def test_what_is_given_is_kept():
    small = footprint(CONFIG, SETTINGS, SLOW).needed(800)
    assert plan(CONFIG, replace(SETTINGS, batch_tokens=1000), SLOW, small, 100).gradient_checkpointing
    with pytest.raises(ModelInvalid, match="passes of 9,000 tokens, with gradient"):
        plan(CONFIG, replace(SETTINGS, batch_tokens=9000), SLOW, small, 100)
    with pytest.raises(ModelInvalid, match="passes of 100 tokens, without gradient"):
        plan(CONFIG, replace(SETTINGS, gradient_checkpointing=False), SLOW, 0, 100)
    both = replace(SETTINGS, batch_tokens=1200, gradient_checkpointing=False)
    assert plan(CONFIG, both, SLOW, 0, 100).batch_tokens == 1200


def test_a_small_optimiser_batch_and_a_long_solution_bound_a_pass():
    few = replace(SETTINGS, batch_size=2, gradient_checkpointing=False)
    enough = footprint(CONFIG, few, SLOW).needed(201)
    assert plan(CONFIG, few, SLOW, enough, 100).batch_tokens == MOST_TOKENS
    with pytest.raises(ModelInvalid, match="of 300 tokens"):
        plan(CONFIG, few, SLOW, enough, 300)


def test_copies_of_weights_in_bfloat16_are_there_once_and_not_for_each_token():
    """Autocast makes them of weights in float32, which all are that are trained."""
    settings = [replace(SETTINGS, tune="all", bf16=bf16) for bf16 in (False, True)]
    plain, mixed = (footprint(CONFIG, each, Compute.of(each, "cuda", True)) for each in settings)
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160
    assert mixed.trained - plain.trained == pytest.approx(2 * LAYERS * layer, abs=1000)
    assert mixed.activations < plain.activations


def test_frozen_layers_in_bfloat16_compute_in_float32():
    torch.manual_seed(0)
    half = torch.nn.Linear(6, 4, dtype=torch.bfloat16).requires_grad_(False)
    full = torch.nn.Linear(6, 4).requires_grad_(False)
    full.load_state_dict(half.state_dict())
    network = torch.nn.Sequential(half)
    compute_in_float32(network)
    assert network[0].weight is half.weight
    inputs = torch.randn(3, 6, requires_grad=True)
    assert torch.equal(network(inputs), full(inputs))
    found, expected = (torch.autograd.grad(layer(inputs).square().sum(), inputs)[0] for layer in (network, full))
    assert torch.equal(found, expected)
    assert torch.equal(network(inputs.bfloat16()), full(inputs.bfloat16().float()))
    with pytest.raises(ModelInvalid, match="train without bf16"):
        compute_in_float32(torch.nn.Sequential(torch.nn.Conv1d(2, 2, 2, dtype=torch.bfloat16)))


def test_of_the_output_layer_two_rows_are_kept():
    for tied in (False, True):
        base = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE, tie_word_embeddings=tied))
        rows, size = base.get_output_embeddings().weight.detach().clone(), base.num_parameters()
        network = _network(base, replace(SETTINGS, tune="all"), SLOW, Verdicts(5, 9))
        (micro,) = micro_batches([Example(Encoded((7,) * LENGTH, (33, 63)), (True, False))], LENGTH)
        states = torch.randn(LENGTH, rows.shape[1])
        expected = states[[33, 63]] @ (rows[5] - rows[9])
        assert torch.allclose(network.head(lambda states=states: states, micro), expected, atol=1e-6)
        kept_size = sum(parameter.numel() for parameter in network.parameters())
        assert kept_size == size - (0 if tied else rows.numel() - 2 * rows.shape[1])


@pytest.mark.parametrize(("target", "reason"), [("lm_head", "include the output layer"), ("nothing", "no adapter")])
def test_layers_that_can_t_be_trained_are_refused(target, reason):
    settings = replace(SETTINGS, lora_targets=("q_proj", target) if target == "lm_head" else (target,))
    with pytest.raises(ModelInvalid, match=reason):
        prepare(AutoModelForCausalLM.from_config(CONFIG), settings, SLOW)


def test_a_container_s_limit_counts(tmp_path):
    assert 0 < free_memory(torch.device("cpu")) <= left_to_container(tmp_path)
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 200\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert left_to_container(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert left_to_container(tmp_path) > 10**15


def test_a_base_without_a_known_shape_is_refused(tmp_path):
    with pytest.raises(ModelInvalid, match="no configuration of a known language model"):
        read_shape(str(tmp_path / "nothing"))


def test_with_all_weights_there_is_no_adapter_to_set(tmp_path):
    options = ["train", "--base=x", f"--data={tmp_path}", f"--output={tmp_path / 'prm'}", "--tune=all", "--lora-rank=4"]
    result = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "with all weights trained there is no adapter" in result.output
