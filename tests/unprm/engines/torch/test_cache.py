"""The torch engine across requests: whatever came before, the scores are those of a model that knows nothing yet, and
only what it did not know is run."""

import copy
import math
import random
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tests.support import columns
from tests.unprm.engines.torch.stand_ins import CALLS, Recorder, varlen_attn
from unprm.engines.torch import attention, segments, varlen
from unprm.engines.torch.attention import KeyValues
from unprm.engines.torch.engine import RECOVERY, SMALLEST, TorchEngine
from unprm.engines.torch.graphs import Size
from unprm.engines.torch.readers import AtPositions, LikelihoodRatios
from unprm.engines.torch.segments import Packed
from unprm.types import Encoded, ModelDescription

WINDOW, BETA = 64, 0.5
CPU = torch.device("cpu")
ABOUT = ModelDescription(name="m", family="f", engine="torch", device="cpu", dtype="float32", max_tokens=WINDOW)
SHAPE = {
    "vocab_size": 12,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "initializer_range": 0.3,
}


@dataclass
class Case:
    """A way of reading a model, and the scores of an item as the plain model gives them."""

    name: str
    reader: AtPositions | LikelihoodRatios
    plain: list[torch.nn.Module]
    head: torch.nn.Module

    def expected(self, item: Encoded) -> list[float]:
        with torch.no_grad():
            if self.name == "ratio":
                logprobs = [network(torch.tensor([item.ids])).logits[0].log_softmax(-1) for network in self.plain]
                ratio = [
                    float(logprobs[0][k - 1, item.ids[k]] - logprobs[1][k - 1, item.ids[k]])
                    for k in range(item.response, len(item.ids))
                ]
                margins = [BETA * sum(ratio[: p - item.response + 1]) for p in item.positions]
            else:
                hidden = self.plain[0].model(torch.tensor([item.ids])).last_hidden_state[0]
                margins = self.head(hidden[list(item.positions)]).tolist()
        return [1 / (1 + math.exp(-margin)) for margin in margins]

    def engine(self, pass_tokens: int, cached_tokens: int, **more: int) -> TorchEngine:
        size = sum(KeyValues.bytes_per_token(decoder) for decoder in self.reader.decoders)
        return TorchEngine(self.reader, None, ABOUT, pass_tokens, size * cached_tokens, **more)


class _First(torch.nn.Linear):
    def forward(self, hidden):
        return super().forward(hidden)[:, 0]


@pytest.fixture(scope="module", params=["head", "sliding", "ratio"])
def case(request):
    torch.manual_seed(0)
    if request.param == "sliding":
        networks = [MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=7)).eval()]
    else:
        networks = [LlamaForCausalLM(LlamaConfig(**SHAPE)).eval() for _ in range(2)]
    plain, head = copy.deepcopy(networks), _First(32, 1)
    if request.param == "ratio":
        return Case("ratio", LikelihoodRatios(*networks, BETA, CPU), plain, head)
    return Case(request.param, AtPositions(networks[0].model, head, CPU), plain, head)


@pytest.fixture(scope="module")
def items():
    """Sequences that begin alike, each twice: scored at several of its tokens, and at a single one."""
    rng = random.Random(0)
    made: list[Encoded] = []
    for _ in range(16):
        begun = list(rng.choice(made).ids[: rng.randint(2, 30)]) if made else [1, 2, 3]
        ids = (begun + rng.choices(range(12), k=rng.randint(1, 20)))[:WINDOW]
        positions = sorted(rng.sample(range(2, len(ids)), k=min(len(ids) - 2, rng.randint(1, 4))))
        made.append(Encoded(tuple(ids), tuple(positions), response=2))
        others = sorted(rng.sample(range(2, len(ids)), k=1))
        made.append(Encoded(tuple(ids), tuple(others), response=2))
    return made


@pytest.fixture(scope="module")
def expected(case, items):
    scores = [case.expected(item) for item in items]
    assert max(map(max, scores)) - min(map(min, scores)) > 0.1
    return scores


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.integers(0, 31), min_size=1, max_size=6), min_size=1, max_size=10),
    st.sampled_from([5, 40, 1000]),
    st.sampled_from([0, 60, 5000]),
)
def test_any_order_of_requests_gives_the_stateless_answer(case, items, expected, several, pass_tokens, cached):
    engine = case.engine(pass_tokens, cached)
    known: set[tuple[int, ...]] = set()
    for numbers in several:
        scores, computed, *_ = columns(engine.score([items[number] for number in numbers]))
        for number, values in zip(numbers, scores, strict=True):
            assert values == pytest.approx(expected[number], abs=1e-5)
        wanted = {items[n].ids[:k] for n in numbers for k in range(1, items[n].positions[-1] + 2)}
        read = sum(len(case.reader.indices(items[number])) for number in numbers)
        fewest = len(wanted - known) if cached == 5000 else len(wanted) if cached == 0 else 0
        # to read what was not read before, known tokens are run again, one by one
        assert fewest <= sum(computed) <= (fewest if cached != 60 else len(wanted)) + read
        known |= wanted
    if cached == 5000:
        assert columns(engine.score([items[number] for numbers in several for number in numbers])).computed == [
            0
        ] * sum(map(len, several))


def test_scopes_share_no_computation_and_get_the_same_scores(case, items, expected):
    engine = case.engine(5000, 5000)
    first, second = ([replace(item, scope=scope) for item in items] for scope in ("first", "second"))
    alone = columns(case.engine(5000, 5000).score(items)).computed
    scores, together, *_ = columns(engine.score([*first, *second]))
    for values, reference in zip(scores, expected * 2, strict=True):
        assert values == pytest.approx(reference, abs=1e-5)
    assert sum(together) == 2 * sum(alone)
    assert sum(columns(engine.score(second)).computed) == 0
    assert sum(columns(engine.score(items)).computed) == sum(alone)


def test_where_positions_are_those_of_tags_nothing_is_run_twice(case, items):
    tagged = [Encoded(item.ids, tuple(k for k, token in enumerate(item.ids) if token == 5)) for item in items]
    tagged = [item for item in tagged if item.positions]
    assert len(tagged) > 10
    engine = case.engine(50, 5000)
    computed = 0
    for item in tagged:
        new = engine.new_tokens(item)
        (scored,) = engine.score([item])
        assert new <= scored.computed <= new + len(item.positions)
        computed += scored.computed
    distinct = len({item.ids[:k] for item in tagged for k in range(1, item.positions[-1] + 2)})
    again = len(tagged) * max(case.reader.sources)  # a ratio is read off at the token before it
    assert distinct <= computed <= distinct + again


def test_a_known_token_that_was_not_read_is_run_again_once(case):
    ids = (1, 2, 3, 4, 5, 6, 7, 8)
    engine = case.engine(50, 5000)
    engine.score([Encoded(ids, (7,), response=7)])
    others = [Encoded((*ids, token), (4, 8), response=4) for token in (9, 10)]
    scores, computed, *_ = columns(engine.score(others))
    again = 4 if case.name == "ratio" else 1  # read off at 3, 4, 5 and 7: the value of 7 is known
    assert computed == [again + 1, 1]
    for item, values in zip(others, scores, strict=True):
        assert values == pytest.approx(case.expected(item), abs=1e-5)


def test_what_is_kept_stays_within_the_budget(case, items):
    engine = case.engine(50, 60)
    for item in items:
        engine.score([item])
        assert len(engine._tree) <= 60
    assert engine.cache_used == len(engine._tree) / 60 > 0.5


class _Failing:
    """A decoder that raises what `failures(call, tokens)` returns, and where that is `None` passes the call on."""

    def __init__(self, decoder, failures):
        self._decoder, self._failures, self.sizes = decoder, failures, []

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def __call__(self, input_ids, **more):
        self.sizes.append(input_ids.shape[1])
        if failure := self._failures(len(self.sizes) - 1, input_ids.shape[1]):
            raise failure
        return self._decoder(input_ids=input_ids, **more)


def _failing(case, failures, pass_tokens=512):
    reader = copy.copy(case.reader)
    reader.decoders = [_Failing(case.reader.decoders[0], failures), *case.reader.decoders[1:]]
    size = sum(KeyValues.bytes_per_token(decoder) for decoder in case.reader.decoders)
    return TorchEngine(reader, None, ABOUT, pass_tokens, size * 5000), reader.decoders[0]


def test_a_pass_that_runs_out_of_memory_is_halved_and_the_engine_learns(case):
    rng = random.Random(1)
    unlike = [Encoded(tuple(rng.choices(range(12), k=50)), (20, 49), 2) for _ in range(30)]
    engine, decoder = _failing(case, lambda call, size: torch.OutOfMemoryError() if size > 300 else None)
    for item, values in zip(unlike, columns(engine.score(unlike[:15])).values, strict=False):
        assert values == pytest.approx(case.expected(item), abs=1e-5)
    assert max(decoder.sizes) > 300
    decoder.sizes.clear()
    engine.score(unlike[15:])
    assert 128 < max(decoder.sizes) <= 300  # not tried again at once
    for k in range(RECOVERY):
        engine.score([Encoded((*rng.choices(range(12), k=40), k % 12), (40,), 2)])
    decoder.sizes.clear()
    engine.score(unlike[:15])
    assert max(decoder.sizes) > 300  # what took the memory may be gone


def test_memory_that_is_never_enough_is_reported(case, items):
    engine, decoder = _failing(case, lambda call, size: torch.OutOfMemoryError())
    with pytest.raises(torch.OutOfMemoryError):
        engine.score(items)
    assert decoder.sizes[-1] <= SMALLEST


def test_a_failed_pass_leaves_nothing_that_was_not_computed(case, items, expected):
    engine, decoder = _failing(case, lambda call, size: RuntimeError("lost") if call == 1 else None, pass_tokens=60)
    with pytest.raises(RuntimeError, match="lost"):
        engine.score(items)
    decoder.sizes = [0, 0]
    for scores, values in zip(columns(engine.score(items)).values, expected, strict=True):
        assert scores == pytest.approx(values, abs=1e-5)
    other, untroubled = _failing(case, lambda call, size: None, pass_tokens=60)
    other.score(items)
    assert decoder.sizes[2:] == untroubled.sizes  # no pass is larger because something was taken as known


def test_hidden_states_that_are_no_numbers_are_neither_scores_nor_kept(case, items, expected):
    parameter = next(case.reader.decoders[0].parameters())
    kept = parameter.data.clone()
    engine = case.engine(50, 5000)
    parameter.data.fill_(math.nan)
    with pytest.raises(RuntimeError, match="not finite"):
        engine.score(items)
    parameter.data.copy_(kept)
    assert columns(engine.score(items[:1])).values[0] == pytest.approx(expected[0], abs=1e-5)


def _of_2_11(query, key, value, first_queries, first_keys, longest_query, longest_key, *, scale, window_size):
    """Refuses fewer key heads."""
    assert query.shape[1] == key.shape[1] == value.shape[1]
    return _sharing(
        query, key, value, first_queries, first_keys, longest_query, longest_key, scale=scale, window_size=window_size
    )


def _sharing(query, key, value, first_queries, first_keys, longest_query, longest_key, *, scale, window_size):
    """Takes fewer key heads without being told."""
    return varlen_attn(
        query, key, value, first_queries, first_keys, longest_query, longest_key,
        scale=scale, window_size=window_size, enable_gqa=True,
    )  # fmt: skip


@pytest.fixture
def flash(monkeypatch):
    """Makes engines use a function as FlashAttention."""

    def use(function):
        fitted = varlen.fitted(function, "cpu")
        monkeypatch.setattr(varlen, "installed", lambda: fitted)
        monkeypatch.setattr(segments, "has_flash", lambda device, dtype: True)
        CALLS.clear()

    return use


@pytest.mark.parametrize("function", [varlen_attn, _of_2_11, _sharing], ids=["told to share", "repeated", "shares"])
def test_flash_attention_takes_all_spans_in_runs_of_a_bounded_size(case, items, expected, function, flash):
    flash(function)
    engine = case.engine(512, 5000, together=100)
    for _ in range(2):
        for values, scores in zip(expected, columns(engine.score(items)).values, strict=True):
            assert scores == pytest.approx(values, abs=1e-5)
    assert all(keys <= 100 or segments == 1 for keys, segments in CALLS)
    assert len(CALLS) > 8


SIZES = [Size(8, 2, 8, 64), Size(8, 8, 4, 128), Size(40, 5, 40, 200), Size(40, 10, 12, 400), Size(60, 30, 60, 900)]


@pytest.mark.parametrize("sizes", [SIZES, SIZES[-1:]], ids=["the smallest", "the largest"])
def test_recorded_passes_of_any_size_give_the_same_scores_in_any_company(case, items, flash, sizes):
    flash(varlen_attn)
    plain, engine, recorder = case.engine(60, 700), case.engine(60, 700), Recorder()
    engine.record(recorder, sizes)
    expected = [plain.score([item])[0].values for item in items]
    batches = [items[:1], items[:3], items[2:9], items, items[::-1], items[5:6]]
    rng = random.Random(2)
    batches += [rng.sample(items, rng.randint(1, 6)) for _ in range(20)]
    for forgets, batch in enumerate(batches):
        if forgets % 3 == 0:
            engine.forget()
        for item, scores in zip(batch, engine.score(batch), strict=True):
            assert scores.values == pytest.approx(expected[items.index(item)], abs=1e-6)
    assert recorder.replays > 20


def test_a_pass_that_has_room_in_no_graph_is_run_as_it_is(case, items, flash):
    flash(varlen_attn)
    engine, recorder = case.engine(60, 700), Recorder()
    engine.record(recorder, [Size(4, 1, 4, 10)])
    plain = case.engine(60, 700)
    assert [each.values for each in engine.score(items)] == [each.values for each in plain.score(items)]
    assert recorder.replays == 0


def test_what_can_t_be_recorded_is_run_as_it_is(case, items, flash, caplog):
    def fails(run):
        run()
        raise RuntimeError("operation not permitted when stream is capturing\nand much more")

    flash(varlen_attn)
    engine = case.engine(60, 700)
    engine.record(fails)
    (record,) = caplog.records
    assert record.message == (
        "passes are not recorded, small ones are slower: RuntimeError: operation not permitted when stream is "
        "capturing and much more"
    )
    assert [each.values for each in engine.score(items)] == [each.values for each in case.engine(60, 700).score(items)]


class _Attended(TorchFunctionMode):
    """Notes the shapes of queries, keys and values."""

    def __init__(self):
        self.shapes = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is functional.scaled_dot_product_attention:
            self.shapes.append([*map(tuple, map(torch.Tensor.size, args))])
        return func(*args, **(kwargs or {}))


def test_segments_share_key_heads_on_a_cpu_alone():
    """Elsewhere no kernel takes shared heads and a mask, but one that holds all products in memory."""
    for device, heads in (("meta", 4), ("cpu", 2)):
        query, keys = torch.ones(10, 4, 8, device=device), torch.ones(30, 2, 8, device=device)
        ends = torch.empty(0, device=device)
        packed = Packed(ends, ends, ends, 6, 20, 10, [(4, 10), (6, 20)])
        with _Attended() as seen:
            assert attention._one_by_one(query, keys, keys, packed, 1.0, None).shape == (10, 4, 8)
        assert seen.shapes == [[(1, 4, own, 8), *[(1, heads, seen, 8)] * 2] for own, seen in packed.shapes]
