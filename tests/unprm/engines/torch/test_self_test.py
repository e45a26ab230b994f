"""What every load ends with: the tree is held against plain passes, and a model that it would score wrongly is not
served by it."""

import re
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from tests.support import ROOT, columns
from unprm import mini
from unprm.engines.torch import attention
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.passes import Pass
from unprm.engines.torch.plain import PlainEngine
from unprm.engines.torch.quantized import quantize
from unprm.engines.torch.readers import AtPositions
from unprm.engines.torch.self_test import TreeTest
from unprm.errors import ModelInvalid, SolutionTooLong
from unprm.models.load import load_engine, torch_engine
from unprm.types import Encoded, ModelDescription

CPU = torch.device("cpu")
WINDOW = 512
ABOUT = ModelDescription(name="m", family="f", engine="torch", device="cpu", dtype="float32", max_tokens=WINDOW)
SHAPE = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SLIDING = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
MODELS = {
    "Qwen2": ("Qwen2", {}),
    "Qwen2, some layers slide": ("Qwen2", SLIDING | {"use_sliding_window": True}),
    "Qwen3": ("Qwen3", {}),
    "Qwen3 MoE": ("Qwen3Moe", EXPERTS),
    "Llama": ("Llama", {}),
    "Llama 3 RoPE": (
        "Llama",
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    ),
    "YaRN": ("Qwen2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                                           "original_max_position_embeddings": 128}}),
    "Mistral, sliding": ("Mistral", {"sliding_window": 64}),
    "Mixtral": ("Mixtral", {"num_local_experts": 4}),
    "Phi-3": ("Phi3", {}),
    "OLMo 2": ("Olmo2", {}),
    "Gemma 3": ("Gemma3Text", SLIDING),
    "Granite": ("Granite", {}),
    "Gemma 2": ("Gemma2", SLIDING),
    "gpt-oss": ("GptOss", SLIDING | {"num_local_experts": 4}),
    "Qwen3.5": ("Qwen3_5Text", LINEAR),
    "Qwen3-Next": ("Qwen3Next", LINEAR | EXPERTS | {"shared_expert_intermediate_size": 32}),
    "Llama 4": ("Llama4Text", {"layer_types": ["chunked_attention", "full_attention"] * 2, "attention_chunk_size": 32,
                               "num_local_experts": 2, "intermediate_size_mlp": 48}),
    "Falcon-H1": ("FalconH1", {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16}),
    "Mamba": ("Mamba", {}),
    "Phi-3, long RoPE": ("Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 64}),
    "Llama, dynamic RoPE": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
                                      "max_position_embeddings": 64}),
    "Falcon, ALiBi": ("Falcon", {"alibi": True, "new_decoder_architecture": False}),
    "Falcon": ("Falcon", {"alibi": False, "new_decoder_architecture": False}),
}  # fmt: skip
"""Architectures, by their classes' names and what their configurations have beside the shape."""


REFUSED = ["Gemma 2", "gpt-oss", "Qwen3.5", "Qwen3-Next", "Llama 4", "Falcon-H1", "Mamba", "Phi-3, long RoPE",
           "Llama, dynamic RoPE", "Falcon, ALiBi", "Falcon"]  # fmt: skip


@pytest.fixture(scope="module")
def form():
    return load_engine(mini.NAME, device="cpu").format


class _Head(nn.Linear):
    def forward(self, hidden):
        return super().forward(hidden.float())[:, 0]


def _reader(name, dtype="float32"):
    kind, more = MODELS[name]
    library = import_module("transformers")
    shape = {key: value for key, value in (SHAPE | more).items() if (kind, key) != ("Falcon", "head_dim")}
    torch.manual_seed(0)
    network = getattr(library, f"{kind}Model")(getattr(library, f"{kind}Config")(**shape)).eval()
    head = _Head(network.config.hidden_size, 1)
    head.weight.data *= 4
    if dtype == "int8":
        quantize(network, widened=False)
    elif dtype == "bfloat16":
        network.bfloat16()
    return AtPositions(network, head, CPU)


def _items(form):
    texts = [("1 + 2 = ?", ["1 + 2 = 3"]), ("1 + 2 = ?", ["1 + 2 = 3", "The answer is 3."]), ("5 - 2 = ?", ["4", "3"])]
    return [form.encode(problem, steps) for problem, steps in texts]


def _by_hand(reader, item):
    """Scores by a forward pass over the item alone."""
    with torch.no_grad():
        hidden = reader.decoders[0](torch.tensor([item.ids]), use_cache=False).last_hidden_state[0]
        return torch.sigmoid(reader.read([hidden[list(item.positions)]], torch.tensor(0))).tolist()


@pytest.fixture(scope="module")
def loaded(form):
    """Every model by name: its engine that shares prefixes, or why there is none."""
    made = {}
    for name in MODELS:
        try:
            made[name] = torch_engine(_reader(name), form, ABOUT, 64, 2**20)
        except ModelInvalid as error:
            made[name] = str(error)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_scored_as_its_authors_wrote_it_or_refused(name, form, loaded):
    items = _items(form)
    expected = [_by_hand(_reader(name), item) for item in items]
    if name in REFUSED:
        assert re.search(r"by the torch engine: .* Use --engine vllm, or --prefix-cache-gb 0, which", loaded[name])
        engine = torch_engine(_reader(name), form, ABOUT, 64, 0)
        assert isinstance(engine, PlainEngine)
        assert engine.description.self_test is None
    else:
        engine = loaded[name]
        found = engine.description.self_test
        assert found.difference < found.tolerance < 2e-3
        assert found.cached
    for batch in ([0], [2, 1, 0], [1, 1]):
        for index, scores in zip(batch, columns(engine.score([items[k] for k in batch])).values, strict=True):
            assert scores == pytest.approx(expected[index], abs=1e-4)


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "Mamba"])
def test_what_the_list_of_refused_models_would_miss_is_measured(name, form, monkeypatch):
    monkeypatch.setattr(attention, "unsupported", lambda config: None)
    with pytest.raises(ModelInvalid, match=r"in the self-test margins differ|which are not computed here"):
        torch_engine(_reader(name), form, ABOUT, 64, 2**20)


def test_the_page_lists_what_was_tried(loaded):
    """If this fails, put the table that it prints into docs/lab/benchmarks.md."""
    tried: dict[str, list[str]] = {}
    for name, found in loaded.items():
        tried.setdefault(_outcome(found), []).append(f"{name} (`{MODELS[name][0]}Model`)")
    table = "\n".join(f"| {outcome} | {'; '.join(names)} |" for outcome, names in tried.items())
    assert table in (ROOT / "docs/lab/benchmarks.md").read_text("utf-8"), table


def _outcome(found):
    if not isinstance(found, str):
        return "yes"
    reason = found.partition("engine: ")[2].partition(". Use")[0]
    return f"no: {re.sub(r' by [0-9.e+-]+, at most .*', '', reason)}"


def _sees_what_follows(monkeypatch):
    kind = attention._one_by_one

    def wrong(query, keys, values, *others):
        return kind(query, keys.roll(-1, 0), values.roll(-1, 0), *others)

    monkeypatch.setattr(attention, "_one_by_one", wrong)


def _begins_every_run_of_tokens_anew(monkeypatch):
    kind = Pass._run

    def wrong(self, path, first, last=None):
        kind(self, path, first, last)
        self.depths[-self.segments[-1].length :] = range(self.segments[-1].length)

    monkeypatch.setattr(Pass, "_run", wrong)


def _sees_one_token_more_than_the_window(monkeypatch):
    kind = attention._one_by_one
    monkeypatch.setattr(attention, "_one_by_one", lambda *parts: kind(*parts[:-1], parts[-1] + 1))


def _keeps_keys_and_values_of_others(monkeypatch):
    kind = attention.attention

    def wrong(module, query, key, value, mask, segments, kept, **options):
        made = kind(module, query, key, value, mask, segments=segments, kept=kept, **options)
        keys, values = kept.layers[module.layer_idx]
        for tensor in (keys, values):
            tensor[segments.slots] = tensor[segments.slots.flip(0)]
        return made

    monkeypatch.setattr(attention, "attention", wrong)


def _reads_a_token_too_early(monkeypatch):
    kind = Pass.columns.func
    monkeypatch.setattr(Pass, "columns", property(lambda self: np.maximum(kind(self) - [[1], [0]], 0)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "spoil",
    [
        _sees_what_follows,
        _begins_every_run_of_tokens_anew,
        _sees_one_token_more_than_the_window,
        _keeps_keys_and_values_of_others,
        _reads_a_token_too_early,
    ],
)
def test_a_tree_that_went_wrong_is_not_served(spoil, dtype, form, monkeypatch):
    spoil(monkeypatch)
    with pytest.raises(ModelInvalid, match="in the self-test margins differ from those of plain passes by ") as refused:
        torch_engine(_reader("Mistral, sliding", dtype), form, ABOUT.model_copy(update={"dtype": dtype}), 64, 2**20)
    assert re.search(
        rf"by .*e.*, at most .*e.* is right \({dtype} on cpu, PyTorch [0-9.]+.*\)\. Use", str(refused.value)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_error_of_a_few_hundredths_is_found_in_every_type(dtype, monkeypatch):
    kind = Pass.end
    monkeypatch.setattr(Pass, "end", lambda work, values: kind(work, [value + 0.1 for value in values]))
    with pytest.raises(ModelInvalid, match="in the self-test margins differ"):
        load_engine(mini.NAME, device="cpu", dtype=dtype, prefix_cache_gb=0.1)


@pytest.mark.parametrize("window", [1, 2, 3, 40])
def test_a_small_window_is_enough(window, form):
    engine = torch_engine(_reader("Qwen2"), form, ABOUT.model_copy(update={"max_tokens": window}), 64, 0)
    assert isinstance(engine, TorchEngine)


def test_a_difference_that_does_not_come_again_is_logged(form, monkeypatch, caplog):
    kind, runs = TreeTest.compare, []

    def run(self, *given):
        runs.append(kind(self, *given))
        return replace(runs[0], difference=1.0) if len(runs) == 1 else runs[-1]

    monkeypatch.setattr(TreeTest, "compare", run)
    assert torch_engine(_reader("Qwen2"), form, ABOUT, 64, 2**20).description.self_test == runs[1]
    assert "m: in the self-test margins differ from those of plain passes by 1.0e+00, at most " in caplog.text


@pytest.mark.parametrize(("dtype", "least", "most"), [("bfloat16", 1e-4, 0.1), ("int8", 0.0, 1e-3)])
def test_rounding_is_no_reason_to_refuse(dtype, least, most):
    found = load_engine(mini.NAME, device="cpu", dtype=dtype).description.self_test
    assert least <= found.difference < found.tolerance < most  # of margins up to 12; 0.0007 is tolerated in float32


def test_what_is_too_long_for_a_plain_engine_is_refused_before_it_runs(form):
    engine = torch_engine(_reader("Mamba"), form, ABOUT, 64, 0)
    items = _items(form)
    with pytest.raises(SolutionTooLong) as refused:
        engine.score([items[0], Encoded((1,) * (WINDOW + 1), (WINDOW,))])
    assert (refused.value.index, refused.value.tokens, refused.value.limit) == (1, WINDOW + 1, WINDOW)
    assert columns(engine.score(items)).computed == [len(item.ids_to_last_position) for item in items]
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.score(items)


def test_sequences_differ_however_long_the_prompt_is(form):
    class Prompted:
        def encode(self, problem, steps):
            return form.encode("Is each step right? " * 20 + problem, steps)

    test = TreeTest(_reader("Qwen2"), Prompted(), WINDOW, exact=True)
    assert len({item.ids for item in test._items}) == 3
