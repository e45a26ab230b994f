"""The PyTorch engine against the plainest possible reference: one solution at a time, all logits."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from tests.support import columns
from unprm import mini
from unprm.checkpoints.files import load_tokenizer, read_tokenizer
from unprm.errors import ModelInvalid, SolutionTooLong
from unprm.formats.unprm import CONFIG_NAME, PrmConfig
from unprm.models.load import load_engine
from unprm.types import Encoded, StepScores

WORDS = ["Step", "1", "2", "3", ":", "12", "+", "34", "=", "46", ".", "-", "5", "is", "The", "answer", "what"]


@pytest.fixture(scope="module")
def engine(adapter):
    return load_engine(str(adapter), device="cpu")


@pytest.fixture(scope="module")
def reference(base, adapter, engine):
    """Scores by full logits of the unmerged model, softmax over `+` and `-`, one item at a time."""
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    config = engine.format.config

    def score(item: Encoded) -> list[float]:
        with torch.no_grad():
            logits = model(torch.tensor([item.ids])).logits[0]
        verdicts = logits[list(item.positions)][:, [config.positive_id, config.negative_id]].float()
        return verdicts.softmax(-1)[:, 0].tolist()

    return score


def _solutions(form, count, seed=0):
    rng = random.Random(seed)

    def text():
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 14)))

    return [form.encode(text(), [text() for _ in range(rng.randint(1, 6))]) for _ in range(count)]


@pytest.mark.parametrize(("batch_tokens", "count"), [(1, 4), (200, 12), (100_000, 12)])
def test_equal_to_the_reference_in_every_batch_and_order(adapter, engine, reference, batch_tokens, count):
    batched = load_engine(str(adapter), device="cpu", batch_tokens=batch_tokens)
    items = _solutions(engine.format, count)
    expected = [reference(item) for item in items]
    assert max(map(max, expected)) - min(map(min, expected)) > 0.1  # a reference that tells solutions apart
    for order in (list(range(count)), random.Random(1).sample(range(count), count), [2], [3, 3, 3]):
        scores = columns(batched.score([items[index] for index in order])).values
        for index, values in zip(order, scores, strict=True):
            assert values == pytest.approx(expected[index], abs=1e-5)


def test_bfloat16_is_close(adapter, engine, reference):
    half = load_engine(str(adapter), device="cpu", dtype="bfloat16")
    items = _solutions(engine.format, 10)
    for item, values in zip(items, columns(half.score(items)).values, strict=True):
        assert values == pytest.approx(reference(item), abs=0.05)
    assert half.description.dtype == "bfloat16"


def test_nothing_to_score(engine):
    assert engine.score([]) == []


def test_what_is_longer_than_the_window_is_refused(engine):
    item = engine.format.encode("what is 12", ["Step 1 : 12 + 34"] * 40)
    with pytest.raises(SolutionTooLong) as refused:
        engine.score([engine.format.encode("1", ["2"]), item])
    assert (refused.value.index, refused.value.tokens, refused.value.limit) == (1, len(item.ids), 256)


def test_room_is_kept_for_what_a_solution_may_come_to(adapter):
    small = load_engine(str(adapter), device="cpu", batch_tokens=10, max_solution_tokens=100)
    assert small.description.max_tokens == 100  # of a window of 256
    assert [len(keys) for keys, _ in small._stores[0].layers] == [101, 101]
    assert load_engine(str(adapter), device="cpu", max_solution_tokens=1000).description.max_tokens == 256


def test_the_description_tells_what_is_served(engine, adapter):
    model = engine.description
    assert (model.name, model.family, model.base, model.adapter) == ("tiny-prm", "unprm", "base", adapter.name)
    assert (model.device, model.dtype, model.max_tokens, model.demo) == ("cpu", "float32", 256, False)


def test_base_and_adapter_may_be_named_apart(base, adapter, engine):
    items = _solutions(engine.format, 3)
    assert load_engine(str(base), adapter=str(adapter), device="cpu").score(items) == engine.score(items)


def _copy(directory, tmp_path):
    return shutil.copytree(directory, tmp_path / directory.name)


MARKS = {"step_tag": " ş", "positive": "right", "negative": "wrong"}


@pytest.mark.parametrize("merged", [True, False])
def test_a_prm_without_configuration_is_read_as_its_options_say(tmp_path, base, adapter, merged):
    tokenizer = read_tokenizer(base)
    tokenizer.add_tokens([*MARKS.values()])
    shutil.copytree(base, tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    network = AutoModelForCausalLM.from_pretrained(base)
    network.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    network.save_pretrained(tmp_path / "base")
    shutil.copytree(adapter, tmp_path / "adapter")
    place = tmp_path / ("base" if merged else "adapter")
    (place / CONFIG_NAME).unlink(missing_ok=True)
    PrmConfig.for_base(load_tokenizer(tmp_path / "base"), "x", "." if merged else "../base", **MARKS).write(place)
    configured = load_engine(str(place), device="cpu")
    (place / CONFIG_NAME).unlink()
    options = {} if merged else {"adapter": str(place)}
    with pytest.raises(ModelInvalid, match=r"--step-tag, --positive and --negative|neither a prm_config.json nor"):
        load_engine(str(tmp_path / "base"), device="cpu", **options)
    engine = load_engine(str(tmp_path / "base"), device="cpu", **options, **MARKS)
    item = engine.format.encode("12 + 34", ["Step 1: 12 + 34 = 46.", "The answer is 5."])
    assert [item.ids[k] for k in item.positions] == [tokenizer.convert_tokens_to_ids(" ş")] * 2
    assert columns(engine.score([item])).values == columns(configured.score([item])).values


def test_options_that_contradict_the_configuration_are_refused(adapter):
    with pytest.raises(ModelInvalid, match=r"says in prm_config.json how it is read: leave out --positive"):
        load_engine(str(adapter), device="cpu", positive="+")


def test_models_that_cannot_be_served_are_refused(tmp_path, base, adapter):
    with pytest.raises(ModelInvalid, match=r"neither a prm_config\.json nor a known name"):
        load_engine(str(base))
    for place in (str(tmp_path / "nowhere" / "to be found"), "./nowhere", "no/such/model"):
        with pytest.raises(ModelInvalid, match=f"model '{place}' is not a directory here, and the hub"):
            load_engine(place)
    with pytest.raises(ModelInvalid, match="'to be found' is not a directory here and could not be fetched"):
        load_engine("to be found")
    unsafe = _copy(adapter, tmp_path)
    (unsafe / "adapter_model.safetensors").rename(unsafe / "adapter_model.bin")
    with pytest.raises(ModelInvalid, match=r"no adapter_model\.safetensors"):
        load_engine(str(base), adapter=str(unsafe))
    pickled = _copy(base, tmp_path)
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ModelInvalid, match="no safetensors"):
        load_engine(str(pickled), adapter=str(adapter))
    broken = _copy(base, tmp_path / "again")
    (broken / "model.safetensors").write_bytes(b"not a tensor")
    with pytest.raises(ModelInvalid, match="can't be loaded"):
        load_engine(str(broken), adapter=str(adapter))


def test_attention_that_the_engine_does_not_compute_is_refused_at_the_start(tmp_path, base):
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    words = read_tokenizer(base)
    config = Gemma2Config(**shape, num_key_value_heads=1, head_dim=16, vocab_size=len(words))
    assert config.attn_logit_softcapping
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    PrmConfig.for_base(load_tokenizer(tmp_path), "capped", ".").write(tmp_path)
    with pytest.raises(
        ModelInvalid, match="capped can't be scored with shared prefixes by the torch engine: its attention"
    ):
        load_engine(str(tmp_path), device="cpu", prefix_cache_gb=0.1)


def test_an_adapter_of_another_shape_is_refused(tmp_path, adapter):
    from tests.tiny import write_base

    deeper = write_base(tmp_path / "deeper", layers=1)
    with pytest.raises(ModelInvalid, match="does not fit the base"):
        load_engine(str(deeper), adapter=str(adapter), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without CUDA")
def test_cuda_is_refused_where_there_is_none(adapter):
    with pytest.raises(ModelInvalid, match="PyTorch finds none"):
        load_engine(str(adapter), device="cuda")


def _candidates(form, count, seed=3):
    """Solutions of one problem that begin with the same steps, some of them equal."""
    rng = random.Random(seed)
    problem, common = "what is 12 + 34 - 5 is the answer", ["Step 1 : 12 + 34 = 46 .", "Step 2 : 46 - 5 = 12"]
    tails = [[" ".join(rng.choices(WORDS, k=rng.randint(1, 4)))] for _ in range(count - 1)]
    return [form.encode(problem, common[: rng.randint(0, 2)] + tail) for tail in [*tails, tails[0]]]


@pytest.mark.parametrize("batch_tokens", [7, 60, 200, 100_000])
def test_every_distinct_token_is_run_once_and_no_score_changes(adapter, reference, batch_tokens):
    engine = load_engine(str(adapter), device="cpu", batch_tokens=batch_tokens)
    items = _candidates(engine.format, 24) + _solutions(engine.format, 6)
    random.Random(5).shuffle(items)
    scores, computed, *_ = columns(engine.score(items))
    for item, values in zip(items, scores, strict=True):
        assert values == pytest.approx(reference(item), abs=1e-5)
    assert sum(computed) == _distinct(items) < sum(len(item.ids) for item in items)


def test_nothing_is_kept_without_a_cache(engine):
    items = _candidates(engine.format, 4)
    assert columns(engine.score(items)).computed == columns(engine.score(items)).computed
    assert sum(columns(engine.score(items)).computed) == _distinct(items)


def test_a_path_that_grew_by_a_step_runs_that_step_alone(adapter, reference):
    engine = load_engine(str(adapter), device="cpu", prefix_cache_gb=0.1)
    form = engine.format
    steps = ["Step 1 : 12 + 34 = 46 .", "Step 2 : 46 - 5 = 12", "The answer is 41"]
    known = 0
    for count in (1, 2, 3):
        item = form.encode("what is 12 + 34 - 5", steps[:count])
        scores, computed, *_ = columns(engine.score([item]))
        assert scores[0] == pytest.approx(reference(item), abs=1e-5)
        assert computed == [len(item.ids) - known]
        known = len(item.ids)
        assert engine.score([item, item]) == [StepScores(scores[0], 0, known)] * 2


def _distinct(items):
    return len({item.ids[:k] for item in items for k in range(1, len(item.ids) + 1)})


def test_attention_that_slides(tmp_path):
    from transformers import MistralConfig, MistralForCausalLM

    from tests import checkpoints

    place = checkpoints.write("math-shepherd", tmp_path / "sliding")
    config = MistralConfig.from_pretrained(place, sliding_window=40)
    MistralForCausalLM.from_pretrained(place, config=config).save_pretrained(place)
    engine = load_engine(str(place), family="math-shepherd", device="cpu")
    items = _candidates(engine.format, 8)
    assert any(len(item.ids) > 40 for item in items)
    assert any(len(item.ids) <= 40 for item in [*items, engine.format.encode("x", ["y"])])
    network = AutoModelForCausalLM.from_pretrained(place).eval()
    verdicts = [engine.format.readout.positive, engine.format.readout.negative]
    for item, values in zip(items, columns(engine.score(items)).values, strict=True):
        with torch.no_grad():
            logits = network(torch.tensor([item.ids])).logits[0, list(item.positions)]
        assert values == pytest.approx(logits[:, verdicts].softmax(-1)[:, 0].tolist(), abs=1e-5)


def test_several_may_be_loaded_at_the_same_time():
    first = load_engine(mini.NAME, device="cpu")
    items = _solutions(first.format, 3)
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(lambda _: load_engine(mini.NAME, device="cpu"), range(4)))
    assert all(other.score(items) == first.score(items) for other in others)


def test_both_embedded_models_tell_a_right_solution_from_a_wrong_one():
    problem = "Zoe has 23 coins. Zoe finds 45 coins. How many coins does Zoe have now?"
    right, wrong = (
        ["Step 1: 23 + 45 = 68. The answer is \\boxed{68}."],
        ["Step 1: 23 + 45 = 78. The answer is \\boxed{78}."],
    )
    for name in mini.ADAPTERS:
        engine = load_engine(name, device="cpu")
        good, bad = columns(
            engine.score([engine.format.encode(problem, right), engine.format.encode(problem, wrong)])
        ).values
        assert good[0] > 0.5 > bad[0]
        assert (engine.description.name, engine.description.demo) == (name, True)
