"""Sampling with transformers, against the plain computation one token at a time."""

import asyncio
import math
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.tiny import write_base, write_probe
from tests.unprm.engines.torch.probe_reference import reference
from tests.unprm.engines.torch.stand_ins import Recorder
from training.data.sample import make_mini
from unprm import mini, steps
from unprm.checkpoints.files import load_base
from unprm.engines.torch.probe import FILE
from unprm.errors import ModelInvalid, SamplerFailed
from unprm.samplers import decoding
from unprm.samplers.decoding import DecodingBatch, Row
from unprm.samplers.load import load_sampler
from unprm.samplers.transformers_sampler import ADMITTED_TOKENS, ON_GPU, TransformersSampler, fitting_rows
from unprm.types import Encoded, SamplingSettings


@pytest.fixture(scope="module")
def network(base):
    return load_base(base, torch.float32)


def _sampler(network, base, **settings):
    return TransformersSampler(network, base, "tiny", SamplingSettings(**{"max_tokens": 12} | settings))


def _ask(sampler, *calls):
    async def all_of_them():
        try:
            return await asyncio.gather(*(sampler.complete(*call, affinity="") for call in calls))
        finally:
            await sampler.close()

    return asyncio.run(all_of_them())


def _logits(network, ids):
    with torch.inference_mode():
        return network(input_ids=torch.tensor([ids])).logits[0].float()


def test_log_probabilities_are_the_model_s_own_before_temperature(network, base):
    sampler = _sampler(network, base, temperature=0.7)
    prompt = sampler.prompt("12 + 34?")
    for completion in _ask(sampler, (prompt, 5, 1))[0]:
        assert len(completion.ids) == len(completion.logprobs) <= 12
        logprobs = torch.log_softmax(_logits(network, [*prompt, *completion.ids]), dim=-1)
        places = range(len(prompt) - 1, len(prompt) + len(completion.ids) - 1)
        expected = [logprobs[place, token].item() for place, token in zip(places, completion.ids, strict=True)]
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
        assert completion.text == sampler.decode(completion.ids)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(4, 4, 8), (4, 2, 8), (4, 1, 8), (4, 4, 6)])
def test_a_new_token_attends_as_by_transformers(heads, key_heads, width, masked):
    """`width`: the values', which models with latent attention have narrower than the keys'."""
    random, layer = torch.Generator().manual_seed(0), torch.nn.Module()
    layer.num_key_value_groups = heads // key_heads
    shapes = (3, heads, 1, 8), (3, key_heads, 5, 8), (3, key_heads, 5, width)
    states = [torch.randn(shape, generator=random) for shape in shapes]
    mask = (torch.arange(5) <= torch.tensor([4, 0, 2])[:, None])[:, None, None] if masked else None
    expected, _ = sdpa_attention_forward(layer, *states, mask, scaling=0.3)
    found, _ = decoding.attention(layer, *states, mask, scaling=0.3)
    torch.testing.assert_close(found, expected)


def test_temperature_zero_takes_the_most_likely_token(network, base):
    sampler = _sampler(network, base, temperature=0.0)
    prompt = sampler.prompt("12 + 34?")
    written = list(prompt)
    for _ in range(12):
        written.append(_logits(network, written)[-1].argmax().item())
    first, second = _ask(sampler, (prompt, 2, 9))[0]
    assert first == second
    assert list(first.ids) == written[len(prompt) : len(prompt) + len(first.ids)]


def test_tokens_are_drawn_with_the_model_s_probabilities_at_the_temperature(network, base):
    sampler = _sampler(network, base, temperature=2.0, max_tokens=1)
    prompt = sampler.prompt("12 + 34?")
    count = 2000
    drawn = Counter(completion.ids[0] for completion in _ask(sampler, (prompt, count, 0))[0])
    expected = torch.softmax(_logits(network, list(prompt))[-1] / 2.0, dim=-1)
    for token in expected.topk(5).indices.tolist():
        p = expected[token].item()
        assert abs(drawn[token] / count - p) < 4 * math.sqrt(p * (1 - p) / count)


def test_a_completion_does_not_depend_on_what_else_is_asked(network, base):
    calls = [((*range(20, 20 + length),), 3, 100 * length) for length in (2, 7, 30, 11)]
    together = _ask(_sampler(network, base), *calls)
    for call, completions in zip(calls, together, strict=True):
        alone = _ask(_sampler(network, base), call)[0]
        assert [c.ids for c in alone] == [c.ids for c in completions]
        for one, other in zip(alone, completions, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("rows", [4, 128])
def test_recorded_steps_write_the_same_texts(network, base, rows, monkeypatch):
    """Of rows that come and go, through stores that grow."""
    calls = [((*range(20, 20 + length),), 3, 100 * length) for length in (2, 30, 11, 60)]
    expected = _ask(_sampler(network, base, max_tokens=90), *calls)
    monkeypatch.setattr(decoding, "TOGETHER", rows)
    sampler, recorder = _sampler(network, base, max_tokens=90), Recorder()
    sampler._batch._record = recorder
    for answer, others in zip(_ask(sampler, *calls), expected, strict=True):
        assert [c.ids for c in answer] == [c.ids for c in others]
        for one, other in zip(answer, others, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert recorder.replays > 50


def test_steps_that_can_t_be_recorded_are_run_as_they_are(network, base, caplog):
    def fails(run):
        raise RuntimeError("not while a stream is capturing")

    call = ((21, 22), 3, 7)
    sampler = _sampler(network, base)
    sampler._batch._record = fails
    found, expected = (_ask(each, call)[0] for each in (sampler, _sampler(network, base)))
    assert [completion.ids for completion in found] == [completion.ids for completion in expected]
    assert "steps are not recorded, they are slower: RuntimeError: not while a stream is capturing" in caplog.messages


def test_the_nth_completion_is_the_same_however_calls_are_cut(network, base):
    prompt = (21, 22, 23)
    whole = _ask(_sampler(network, base), (prompt, 6, 50))[0]
    parts = _ask(_sampler(network, base), (prompt, 2, 50), (prompt, 4, 52))
    assert [c.ids for c in whole] == [c.ids for part in parts for c in part]
    assert len({c.ids for c in whole}) > 1


def test_callers_that_leave_make_room(network, base):
    async def story():
        sampler = _sampler(network, base, max_tokens=200)
        gone = [asyncio.create_task(sampler.complete((21 + n, 22), 60, n, "")) for n in range(4)]
        await asyncio.sleep(0.05)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        kept = await sampler.complete((50, 51), 3, 9, "")
        await sampler.close()
        return kept

    alone = _ask(_sampler(network, base, max_tokens=200), ((50, 51), 3, 9))[0]
    assert [c.ids for c in asyncio.run(story())] == [c.ids for c in alone]


def test_those_who_stay_are_not_disturbed_by_those_who_leave(network, base):
    async def story():
        sampler = _sampler(network, base, max_tokens=120)
        gone = asyncio.create_task(sampler.complete((21, 22), 20, 1, ""))
        staying = asyncio.create_task(sampler.complete((50, 51), 5, 9, ""))
        await asyncio.sleep(0.05)
        gone.cancel()
        kept = await staying
        await sampler.close()
        return kept

    alone = _ask(_sampler(network, base, max_tokens=120), ((50, 51), 5, 9))[0]
    assert [c.ids for c in asyncio.run(story())] == [c.ids for c in alone]


def test_closing_answers_whoever_waits(network, base):
    async def story():
        sampler = _sampler(network, base, max_tokens=200)
        tasks = [asyncio.create_task(sampler.complete((21 + n, 22), 60, n, "")) for n in range(4)]
        await asyncio.sleep(0.05)
        await sampler.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=20)

    assert all(isinstance(answer, SamplerFailed) for answer in asyncio.run(story()))


def test_nobody_waits_for_a_sampler_that_is_closed(network, base):
    async def story():
        sampler = _sampler(network, base)
        await sampler.close()
        await asyncio.wait_for(sampler.complete((21, 22), 1, 0, ""), timeout=20)

    with pytest.raises(SamplerFailed, match="is closed"):
        asyncio.run(story())


def test_prompts_come_and_go_without_disturbing_those_who_stay(network, base):
    lengths = (3, decoding.GROWTH - 5, 2, 17, decoding.GROWTH, 5, 2 * decoding.GROWTH - 3, 1)
    calls = [(tuple(20 + k % 20 for k in range(length)), 2, 100 * length) for length in lengths]

    async def story():
        sampler = _sampler(network, base, max_tokens=12)
        answers = []
        for call in calls:  # each comes in while others write
            answers.append(asyncio.create_task(sampler.complete(*call, "")))
            await asyncio.sleep(0.02)
        done = await asyncio.gather(*answers)
        await sampler.close()
        return done

    alone = [_ask(_sampler(network, base, max_tokens=12), call)[0] for call in calls]
    assert [[c.ids for c in completions] for completions in asyncio.run(story())] == [
        [c.ids for c in completions] for completions in alone
    ]


def test_a_prompt_is_computed_once_for_all_its_completions(network, base):
    async def story():
        sampler, computed = _sampler(network, base, max_tokens=3), []
        handle = network.get_decoder().register_forward_pre_hook(
            lambda module, args, kwargs: computed.append(kwargs["input_ids"].shape), with_kwargs=True
        )
        await sampler.complete((21, 22, 23, 24), 8, 0, "")
        handle.remove()
        await sampler.close()
        return [shape for shape in computed if shape[1] > 1]

    assert asyncio.run(story()) == [(1, 4)]


def test_a_model_with_a_sliding_window_is_refused(network, base):
    config = Qwen2Config(**network.config.to_dict() | {"layer_types": ["full_attention", "sliding_attention"]})
    with pytest.raises(ModelInvalid, match="sliding_attention"):
        _sampler(Qwen2ForCausalLM(config), base)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_model_whose_rotary_embedding_depends_on_the_longest_row_is_refused(kind):
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if kind == "longrope" else {}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64, **factors}
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=50, num_key_value_heads=2, **shape, rope_parameters=rope))
    with pytest.raises(ModelInvalid, match=rf"rotary embedding \({kind}\).* sample with vLLM"):
        DecodingBatch(model, SamplingSettings(), [1], 4)


class _Operations(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **kwargs or {})


def test_many_rows_take_no_more_operations_than_a_few(network):
    """On a GPU each costs the host's time, whatever it computes."""

    def operations(count):
        batch = DecodingBatch(network, SamplingSettings(), [], count)
        rows = [Row(tuple(range(20, 22 + number % 3)), number) for number in range(count)]
        with _Operations() as joining:
            batch.add(rows)
        with _Operations() as writing:
            batch.step()
        with _Operations() as leaving:
            batch.remove(rows[: count // 2])
        return joining.count, writing.count, leaving.count

    assert operations(64) == operations(8)


def test_a_recorded_step_takes_a_few_operations(network):
    """And one copy to the host, whatever is recorded."""
    batch = DecodingBatch(network, SamplingSettings(), [], 8, record=lambda run: int)
    batch.add([Row((20, 21), number) for number in range(8)])
    counts = []
    for _ in range(3):
        with _Operations() as step:
            batch.step()
        counts.append(step.count)
    assert counts[0] > 100
    assert counts[1] == counts[2] < 20


def test_prompts_join_by_their_tokens(network, base):
    computed = []
    handle = network.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: computed.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    length = network.config.max_position_embeddings - 1
    calls = [((20 + number, *[21] * (length - 1)), 1, number) for number in range(45)]
    try:
        answers = _ask(_sampler(network, base, max_tokens=1), *calls)
    finally:
        handle.remove()
    prompts = [shape for shape in computed if shape[1] > 1]
    assert len(answers) == sum(rows for rows, _ in prompts) == 45
    assert len(prompts) == 2
    assert all(rows * longest <= ADMITTED_TOKENS for rows, longest in prompts)


def test_rows_are_as_many_as_fit_a_gpu():
    config = Qwen2Config(  # of Qwen2.5-Math-1.5B
        vocab_size=151_936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    with torch.device("meta"):
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
    settings, free = SamplingSettings(), 84 * 10**9
    assert fitting_rows(model, settings, free) == ON_GPU
    assert fitting_rows(model, settings, 20 * 10**9) == pytest.approx(ON_GPU / 4, rel=0.1)
    assert fitting_rows(model, SamplingSettings(max_tokens=256), 20 * 10**9) > ON_GPU / 2
    assert fitting_rows(model, SamplingSettings(max_tokens=10**6), free) < ON_GPU  # the window is what limits
    assert fitting_rows(model, settings, 0) == 1


def test_after_a_while_as_many_rows_as_before_are_tried(network, base):
    rows = []

    def scarce(module, args, kwargs):
        rows.append(len(kwargs["input_ids"]))
        if len(rows) == 2:
            raise torch.OutOfMemoryError

    handle = network.register_forward_pre_hook(scarce, with_kwargs=True)
    try:
        settings = SamplingSettings(temperature=0.0, max_tokens=12)
        _ask(TransformersSampler(network, base, "tiny", settings, recovery=2), ((21, 22), 16, 0))
    finally:
        handle.remove()
    assert rows[:2] == [16, 16]
    assert rows[2] == 8
    assert max(rows[3:]) == 16


def test_rows_that_were_complete_when_memory_ran_out_get_no_more_tokens(network, base, monkeypatch):
    move, calls = decoding._Layer.move, []

    def scarce(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise torch.OutOfMemoryError
        move(*arguments)

    window = network.config.max_position_embeddings
    asked = [((21,) * (window - 2), 1, 3), ((23, 24), 12, 5)]  # the first is complete with two tokens
    expected = [_ask(_sampler(network, base), call)[0] for call in asked]
    monkeypatch.setattr(decoding._Layer, "move", scarce)
    found = _ask(_sampler(network, base), *asked)
    assert calls
    assert [[c.ids for c in answer] for answer in found] == [[c.ids for c in answer] for answer in expected]


def test_more_completions_than_a_batch_holds_all_come(network, base):
    sampler = _sampler(network, base, max_tokens=2)
    answers = _ask(sampler, *(((20 + number, 21), 40, number) for number in range(8)))
    assert [len(completions) for completions in answers] == [40] * 8


def test_an_ended_completion_ends_with_the_end_token(network, base):
    sampler = _sampler(network, base, temperature=3.0, max_tokens=200)
    completions = _ask(sampler, ((21, 22), 60, 0))[0]
    ended = [completion for completion in completions if completion.finished]
    assert ended
    end = network.config.eos_token_id
    for completion in completions:
        assert (completion.ids[-1] == end) is completion.finished
        assert end not in completion.ids[:-1]


def test_a_prompt_that_fills_the_window_is_refused_and_others_go_on(network, base):
    sampler = _sampler(network, base)
    window = network.config.max_position_embeddings

    async def story():
        good = asyncio.create_task(sampler.complete((21, 22), 1, 0, ""))
        for length in (0, window, window + 1):
            with pytest.raises(SamplerFailed, match=f"{length} were given"):
                await sampler.complete((21,) * length, 1, 0, "")
        near = await sampler.complete((21,) * (window - 3), 1, 0, "")
        await good
        await sampler.close()
        return near

    assert len(asyncio.run(story())[0].ids) <= 3


def test_a_failed_batch_answers_every_caller_and_the_next_works(network, base):
    sampler = _sampler(network, base)
    beyond = network.config.vocab_size + 5

    async def story():
        failed = await asyncio.gather(
            *(sampler.complete((beyond,), 1, seed, "") for seed in range(3)), return_exceptions=True
        )
        assert all(isinstance(error, SamplerFailed) for error in failed)
        return await sampler.complete((21,), 1, 0, "")

    assert len(asyncio.run(story())) == 1


class _Misreading(TransformersSampler):
    """Can make no text of three tokens."""

    def decode(self, ids):
        if len(ids) == 3:
            raise ValueError("no text")
        return super().decode(ids)


def test_a_completion_that_cannot_be_finished_fails_its_request_alone(network, base):
    window = network.config.max_position_embeddings
    sampler = _Misreading(network, base, "tiny", SamplingSettings(max_tokens=12, temperature=0.0))

    async def story():
        calls = [((21,) * (window - 3), 1), ((21, 22), 2), ((23,), 1)]
        asked = [sampler.complete(*call, seed=0, affinity="") for call in calls]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), timeout=60)

    failed, *written = asyncio.run(story())
    assert isinstance(failed, SamplerFailed)
    assert "tiny wrote completions and failed to read them: ValueError('no text')" in str(failed)
    assert [len(completions) for completions in written] == [2, 1]


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """A probe of the embedded reasoner, whose texts have steps."""
    place = write_probe(tmp_path_factory.mktemp("probes") / "probe", str(mini.BASE))
    head = load_file(place / FILE)
    save_file(head | {"token.weight": head["token.weight"] / 50}, place / FILE)  # its hidden states are large
    return place


def _scored(probe, *calls, network=None, **settings):
    sampler = load_sampler("transformers", mini.NAME, SamplingSettings(**settings, probe=str(probe)))
    if network:
        sampler._batch._network.register_forward_pre_hook(network, with_kwargs=True)
    return sampler, _ask(sampler, *((sampler.prompt(problem), count, seed) for problem, count, seed in calls))


def test_step_scores_are_those_of_hidden_states_and_logits_of_the_same_tokens(probe):
    """Memory runs out under them, and then rows join while others are written."""
    sizes = []

    def scarce(module, args, kwargs):
        sizes.append(len(kwargs["input_ids"]))
        if len(sizes) == 20:
            raise torch.OutOfMemoryError

    calls = [(question.problem, 2, 10 * number) for number, question in enumerate(make_mini(4, seed=3))]
    sampler, answers = _scored(probe, *calls, network=scarce, max_tokens=90)
    assert sizes[:21] == [8] * 20 + [4]
    asked = zip(calls, answers, strict=True)
    completions = [(sampler.prompt(call[0]), each) for call, answer in asked for each in answer]
    assert {each.finished for _, each in completions} == {True, False}
    assert max(len(each.step_scores) for _, each in completions) > 2
    for prompt, each in completions:
        parts = steps.split(each.text)
        # each step of this model ends with a line break of its own, and the last one with what was read last
        breaks = [at for at, token in enumerate(each.ids) if sampler.decode([token]) == "\n"][: len(parts) - 1]
        ends = [len(prompt) + at for at in [*breaks, len(each.ids) - 2]]
        item = Encoded((*prompt, *each.ids), tuple(ends), len(prompt))
        assert each.step_scores == pytest.approx(reference(probe, item), abs=2e-5)
    scores = [score for _, each in completions for score in each.step_scores]
    assert max(scores) - min(scores) > 0.2


def test_texts_are_the_same_with_and_without_a_probe(probe):
    calls = ("What is 3 + 4?", 4, 7)
    (scored,) = _scored(probe, calls, max_tokens=20)[1]
    plain = load_sampler("transformers", mini.NAME, SamplingSettings(max_tokens=20))
    (unscored,) = _ask(plain, (plain.prompt(calls[0]), *calls[1:]))
    assert [each.ids for each in scored] == [each.ids for each in unscored]
    assert {each.step_scores for each in unscored} == {None}


def test_a_step_of_which_no_token_was_read_leaves_a_text_without_scores(probe):
    ((completion,),) = _scored(probe, ("What is 3 + 4?", 1, 7), max_tokens=1)[1]
    assert completion.text
    assert completion.step_scores == ()


@pytest.mark.parametrize("kind", ["vllm", "openai", "chat"])
def test_samplers_without_hidden_states_take_no_probe(probe, kind):
    with pytest.raises(ModelInvalid, match=f"'{kind}' gives no hidden states, which the probe .*leave out --probe"):
        load_sampler(kind, mini.NAME, SamplingSettings(probe=str(probe)), ["http://127.0.0.1:9"])


def test_only_a_probe_of_the_model_itself_is_taken(probe, base, tmp_path):
    def load(model, name):
        return load_sampler("transformers", str(model), SamplingSettings(probe=str(name)))

    with pytest.raises(ModelInvalid, match=f"{probe} reads the model .*, whose files are not those of {base}"):
        load(base, probe)
    with pytest.raises(ModelInvalid, match="unprm-mini is not a probe but a model of the family unprm"):
        load(mini.NAME, mini.NAME)
    mine = write_probe(tmp_path / "probe", str(base))
    with pytest.raises(ModelInvalid, match="whose files are not"):
        load(write_base(tmp_path / "other", seed=1), mine)
    asyncio.run(load(write_base(tmp_path / "same"), mine).close())  # the files count, not where they are
