"""The torch engine against plain passes of transformers."""

import copy
import random
from contextlib import closing

import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from tests.support import columns
from unprm.engines.torch.engine import TorchEngine
from unprm.engines.torch.memory import CACHED
from unprm.engines.torch.readers import AtPositions
from unprm.engines.torch.segments import TOGETHER
from unprm.models.load import load_engine, load_model
from unprm.models.options import EngineOptions, ModelSpec
from unprm.types import Encoded, ModelDescription

WINDOW, WORDS = 1024, 500
ABOUT = ModelDescription(name="m", family="f", engine="torch", device="", dtype="", max_tokens=WINDOW)
SHAPE = {
    "vocab_size": WORDS,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.1,
}
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}


class _First(nn.Linear):
    def forward(self, hidden):
        return super().forward(hidden.float())[:, 0]


class Case:
    """A random network in an engine, and as transformers runs it."""

    def __init__(self, device, dtype, pass_tokens=700, cache_bytes=2**26, together=TOGETHER, **changes):
        torch.manual_seed(0)
        network = MistralForCausalLM(MistralConfig(**SHAPE | {"sliding_window": None} | changes)).to(device, dtype)
        self._plain, self._head = copy.deepcopy(network.model).eval(), _First(128, 1).to(device)
        reader = AtPositions(network.model, self._head, device)
        self.engine = TorchEngine(reader, None, ABOUT, pass_tokens, cache_bytes, together)
        self._tolerance = TOLERANCES[dtype]

    def check(self, items):
        """Scores the items, compares each score, and returns how many tokens were run."""
        result = columns(self.engine.score(items))
        for item, values in zip(items, result.values, strict=True):
            with torch.no_grad():
                ids = torch.tensor([item.ids], device=self._plain.device)
                margins = self._head(self._plain(ids).last_hidden_state[0, list(item.positions)])
            assert values == pytest.approx(torch.sigmoid(margins).tolist(), abs=self._tolerance)
        return sum(result.computed)


def _words(rng, count):
    return rng.choices(range(WORDS), k=count)


def _scored(ids, every=50):
    return Encoded(tuple(ids), tuple(range(len(ids) - 1, -1, -every))[::-1])


def _tree(rng, count=12):
    """Sequences that begin with parts of earlier ones."""
    made: list[Encoded] = []
    for _ in range(count):
        begun = list(rng.choice(made).ids[: rng.randint(1, 300)]) if made else [1, 2, 3]
        made.append(_scored(begun + _words(rng, rng.randint(1, 200))))
    return made


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_scores_are_those_of_the_plain_model(device, dtype, window):
    case, items = Case(device, dtype, sliding_window=window), _tree(random.Random(0))
    assert case.check(items) > 700  # more than a pass
    assert case.check(items) == 0  # from the cache


def _whole(rng):
    return [[_scored(_words(rng, 120)) for _ in range(4)]]


def _one_token(rng):
    ids = _words(rng, 200)
    return [[_scored(ids)], [_scored([*ids, word]) for word in range(5)]]


def _in_parts(rng):
    return [[_scored(_words(rng, 900))]]


def _ragged(rng):
    question = _words(rng, 60)
    return [[_scored(question + _words(rng, length)) for length in (1, 2, 40, 41, 150, 300)]]


def _deep(rng):
    beams, batches = [_words(rng, 40)], []
    for _ in range(6):
        grown = [beam + _words(rng, rng.randint(5, 25)) for beam in beams for _ in range(3)]
        batches.append(list(map(_scored, grown)))
        beams = rng.sample(grown, 3)
    return batches


def _read_later(rng):
    ids = tuple(_words(rng, 200))
    return [[Encoded(ids, (199,))], [Encoded(ids, (3, 50, 51, 120))]]


@pytest.mark.parametrize("batches", [_whole, _one_token, _in_parts, _ragged, _deep, _read_later])
@pytest.mark.parametrize("together", [TOGETHER, 400], ids=["one run", "many runs"])
def test_every_layout_of_segments(device, batches, together):
    case = Case(device, torch.bfloat16, pass_tokens=500, together=together)
    for batch in batches(random.Random(1)):
        case.check(batch)


def test_a_pass_that_runs_out_of_memory_is_halved(cuda, caplog):
    """On a CPU nothing runs out; what the engine then does is tested with errors that are raised, in test_cache.py."""
    case = Case(cuda, torch.bfloat16, pass_tokens=8192, cache_bytes=0, intermediate_size=65_536, num_hidden_layers=1)
    rng = random.Random(2)
    items = [_scored(_words(rng, 500)) for _ in range(16)]
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info(cuda)[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(cuda) + 10**9) / total)
    try:
        case.check(items)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory with" in caplog.text


def test_an_adapter_is_merged(device, base, adapter):
    with closing(load_engine(str(adapter), device=device.type, dtype="bfloat16")) as engine:
        config = engine.format.config
        plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter)
        items = [engine.format.encode("what is 12 + 34", ["12 + 34 = 46", f"The answer is {k}"]) for k in range(4)]
        for item, values in zip(items, columns(engine.score(items)).values, strict=True):
            with torch.no_grad():
                logits = plain.eval()(torch.tensor([item.ids])).logits[0, list(item.positions)]
            expected = logits[:, [config.positive_id, config.negative_id]].softmax(-1)[:, 0].tolist()
            assert values == pytest.approx(expected, abs=0.05)
        assert engine.description.self_test.difference <= engine.description.self_test.tolerance


def test_the_cache_takes_the_share_of_the_gpu_that_is_left(cuda, adapter):
    options = EngineOptions(engine="torch", device="cuda", memory=0.5)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(cuda)
    with closing(load_model(ModelSpec(model=str(adapter)), options)) as engine:
        taken = free - torch.cuda.mem_get_info(cuda)[0]
        memory = engine.description.memory
        assert memory.slots % (CACHED + options.batch_tokens) == 0  # a small model's cache is bounded by its tokens
        assert taken <= 0.5 * total
