"""Probes against the plainest reference: hidden states and logits of transformers' own forward pass of one solution."""

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch._dynamo.utils import counters

from tests.server.harness import serving
from tests.support import columns
from tests.tiny import write_probe
from tests.unprm.engines.torch.kinds import write
from tests.unprm.engines.torch.probe_reference import reference
from unprm.engines.torch.compiled import CompiledLayers
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.plain import PlainEngine
from unprm.engines.torch.probe import FILE, ProbeHead, ProbeReader
from unprm.errors import ModelInvalid
from unprm.formats.probe import ProbeConfig
from unprm.formats.unprm import CONFIG_NAME
from unprm.models.load import load_engine
from unprm.models.options import ModelSpec
from unprm.models.source import ModelSource
from unprm.types import Encoded

PROBLEM = "what is 12 + 34 - 5?"
WORDS = ["Step", "1", "2", "3", ":", "12", "+", "34", "=", "46", ".", "-", "5", "is", "The", "answer", "what"]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2": ("qwen2", {}),
    "tied": ("qwen2", {"tie_word_embeddings": True}),
    "sliding": ("mistral", {"sliding_window": 24, "head_dim": 8}),
    "logits are scaled": ("granite", {"logits_scaling": 4.0}),
    "output layer with a bias": ("phi", {}),
    "each sequence alone, layers of another name": ("gptj", {}),
}
ROUNDING = {"bfloat16": 0.02, "int8": 0.03}


def _write(directory: Path, name: str) -> Path:
    kind, more = KINDS[name]
    write(kind, directory / "base", **more)
    return write_probe(directory / "probe", layers=(1,) if name == "tied" else (1, 2))


@pytest.fixture(scope="module", params=KINDS)
def place(request, tmp_path_factory) -> Path:
    return _write(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return _write(tmp_path_factory.mktemp("probes"), "Qwen2")


def _items(form: Any, count: int = 12) -> list[Encoded]:
    """Solutions of a problem that begin with the same steps, and of another one."""
    rng = random.Random(0)

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 9)))

    common = [text(), text()]
    alike = [form.encode(PROBLEM, [*common[: rng.randint(0, 2)], text()]) for _ in range(count)]
    return [*alike, form.encode(text(), [text(), text(), text()])]


def _assert_near(found: Any, expected: Any, difference: float = 1e-5) -> None:
    for scores, values in zip(found, expected, strict=True):
        assert scores == pytest.approx(values, abs=difference)


@pytest.mark.parametrize("batch_tokens", [20, 1000])
def test_scores_are_those_of_hidden_states_and_logits(place, batch_tokens):
    engine = load_engine(str(place), device="cpu", batch_tokens=batch_tokens)
    items = _items(engine.format)
    expected = [reference(place, item) for item in items]
    assert max(map(max, expected)) - min(map(min, expected)) > 0.05
    _assert_near(columns(engine.score(items)).values, expected)
    if "alone" in place.parent.name:
        assert isinstance(engine, PlainEngine)
    else:
        assert engine.description.self_test.difference <= engine.description.self_test.tolerance < 0.01


@pytest.mark.parametrize("dtype", ROUNDING)
def test_other_types_differ_by_rounding(plain, dtype):
    engine = load_engine(str(plain), device="cpu", dtype=dtype)
    items = _items(engine.format)
    _assert_near(columns(engine.score(items)).values, [reference(plain, item) for item in items], ROUNDING[dtype])


def test_what_was_run_is_not_run_again(plain):
    engine = load_engine(str(plain), device="cpu", prefix_cache_gb=0.01)
    items = _items(engine.format)
    expected = [reference(plain, item) for item in items]
    distinct: set[tuple[int, ...]] = set()
    for item, values in zip(items, expected, strict=True):
        fresh = {item.ids[:count] for count in range(1, len(item.ids) + 1)} - distinct
        scores, computed, *_ = columns(engine.score([item]))
        _assert_near(scores, [values])
        # the log-probability of the first new token is read where the last known one is run again
        assert computed == [len(fresh) + (0 < len(fresh) < len(item.ids))]
        distinct |= fresh
    assert columns(engine.score([*items, *items])).computed == [0] * 2 * len(items)
    longer = engine.format.encode(PROBLEM, ["12", "34"])
    engine.score([longer])
    begun = Encoded(longer.ids, longer.positions[:1], longer.response)
    assert columns(engine.score([begun])).computed == [0]
    other = columns(engine.score([replace(longer, scope="another")]))
    assert other.computed == [len(longer.ids)]
    _assert_near(other.values, [reference(plain, longer)])


def test_layers_are_read_beside_compiled_ones(plain):
    source = ModelSource.find(ModelSpec(model=str(plain)))
    engine = TorchEngine(
        source.reader(torch.float32, torch.device("cpu")),
        source.format,
        load_engine(str(plain), device="cpu").description,
        1000,
        0,
    )
    torch._dynamo.reset()
    counters.clear()
    assert engine._reader is not None
    compiled = CompiledLayers(engine._reader.decoders[0], backend="eager")
    items = _items(engine.format)
    _assert_near(columns(engine.score(items[:5])).values, [reference(plain, item) for item in items[:5]])
    _assert_near(columns(engine.score(items)).values, [reference(plain, item) for item in items])
    assert not compiled.failed
    assert counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("fault", ["a layer", "the token before"])
def test_a_fault_in_what_is_read_is_found_at_the_start(plain, dtype, fault, monkeypatch):
    kind = ProbeReader.read
    calls = []

    def read(self, hidden, tokens):
        if len(calls) < 4:  # what the tree is held against: three sequences, and all of them padded
            calls.append(tokens)
            if dtype != "bfloat16" and len(calls) == 3:
                calls.append(tokens)
            return kind(self, hidden, tokens)
        first, second, before = hidden
        return kind(self, [first.roll(1, 0), second, before] if fault == "a layer" else [first, second, second], tokens)

    monkeypatch.setattr(ProbeReader, "read", read)
    with pytest.raises(ModelInvalid, match="in the self-test margins differ"):
        load_engine(str(plain), device="cpu", dtype=dtype, prefix_cache_gb=0.01)


def test_a_server_scores_and_votes_with_it(plain):
    engine = load_engine(str(plain), device="cpu", prefix_cache_gb=0.01)
    expected = reference(plain, engine.format.encode(PROBLEM, ["12 + 34 = 46.", "The answer is \\boxed{41}."]))
    solutions = [["12 + 34 = 46.", "The answer is \\boxed{41}."], ["The answer is \\boxed{40}."]]
    with serving(engine) as server:
        model = server.get("/model").json()
        assert (model["family"], model["name"], model["base"]) == ("probe", "tiny-probe", "base")
        assert "layer 1, layer 2, surprisal_mean" in model["input_format"]
        scored = server.post("/score_steps", {"problem": PROBLEM, "solutions": solutions}).json()
        assert scored["solutions"][0]["step_scores"] == pytest.approx(expected, abs=1e-5)
        vote = server.post("/vote/wrf", {"problem": PROBLEM, "solutions": solutions}).json()
        assert vote["answer"] in ("41", "40")


def test_the_digest_is_that_of_all_parts(plain, tmp_path):
    def digest(place: Path) -> str:
        return ModelSource.find(ModelSpec(model=str(place))).digest("float32")

    shutil.copytree(plain.parent, tmp_path / "copy")
    place = tmp_path / "copy" / plain.name
    assert (first := digest(plain)) == digest(place)
    config = ProbeConfig.read(place)
    for change in ({"layers": (1,)}, {"measures": ("entropy",)}, {"before": "12"}, {"separator": "\n"}):
        config.model_copy(update=change).write(place)
        assert digest(place) != first
    config.write(place)
    head = load_file(place / FILE)
    save_file(head | {"measures.bias": head["measures.bias"] + 1}, place / FILE)
    assert digest(place) != first


def test_base_and_probe_may_be_named_apart(plain):
    engines = [
        load_engine(str(plain), device="cpu"),
        load_engine(str(plain.parent / "base"), adapter=str(plain), device="cpu"),
    ]
    items = _items(engines[0].format)
    assert engines[0].score(items) == engines[1].score(items)


def test_what_is_no_probe_of_its_base_is_refused(plain, adapter, tmp_path):
    def refused(message: str, place: Path, **options: Any) -> None:
        with pytest.raises(ModelInvalid, match=message):
            load_engine(str(place), device="cpu", **options)

    refused("is a probe, which reads its base as it is: leave out --adapter", plain, adapter=str(adapter))
    refused("vLLM does not give the hidden states of several layers", plain, engine="vllm")
    refused("says in prm_config.json how it is read: leave out --positive", plain, positive="+")
    refused("/family: Input should be 'unprm'", plain, family="unprm")
    shutil.copytree(plain.parent, tmp_path / "copy")
    place = tmp_path / "copy" / plain.name
    config = ProbeConfig.read(place)
    config.model_copy(update={"layers": (2, 3)}).write(place)
    refused(r"the probe reads layer 3, .*base has 2 layers", place)
    config.model_copy(update={"layers": (1,)}).write(place)
    refused(r"has tensors of the shapes .*\(1, 64\).*expected .*\(1, 32\)", place)
    config.model_copy(update={"base": str(adapter)}).write(place)
    refused("a probe reads a base as it is: .*adapter is an adapter, merge it first", place)
    config.write(place)
    (place / FILE).write_bytes(b"no tensors")
    refused("can't be read as a probe's weights", place)
    (place / CONFIG_NAME).write_text('{"family": "probe", "name": "x"}')
    refused("4 errors, the first: /base: Field required", place)


def test_logits_that_are_capped_are_refused(tmp_path):
    write("gemma2", tmp_path / "base")
    place = write_probe(tmp_path / "probe")
    with pytest.raises(ModelInvalid, match=r"\(gemma2\) caps its logits, or is otherwise not linear"):
        load_engine(str(place), device="cpu")


def test_the_memory_of_what_is_kept_is_planned(plain, tmp_path):
    config = ProbeConfig.read(plain)
    engine = load_engine(str(plain), device="cpu")
    shutil.copytree(plain.parent, tmp_path / "copy")
    last = write_probe(tmp_path / "copy" / "last", layers=(2,))
    without = load_engine(str(last), device="cpu").description.memory
    assert config.layers == (1, 2)
    # the hidden states of layer 1, 32 numbers of 4 bytes for each token of a pass; those of the last are made last
    assert engine.description.memory.activations - without.activations == 1024 * 32 * 4


def test_a_head_survives_the_disk(tmp_path):
    head = ProbeHead(8, 2)
    head.save(tmp_path)
    found = ProbeHead.read(tmp_path, ProbeConfig(
        name="x", base="y", before="", after="", layers=(1, 2), measures=("entropy", "surprisal_sum")
    ).readout, 4)  # fmt: skip
    tokens, pooled = torch.randn(5, 8), torch.randn(5, 3)
    assert torch.equal(found.tokens(tokens), head.tokens(tokens))
    assert torch.equal(found.steps(pooled), head.steps(pooled))
