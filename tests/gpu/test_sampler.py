"""Sampling with transformers on a GPU, and the same on a CPU: what is drawn, in any company and with little memory."""

import asyncio
from contextlib import contextmanager

import pytest
import torch
from scipy import stats

from unprm.checkpoints.files import load_base
from unprm.errors import SamplerFailed
from unprm.samplers.drawing import counter, draw, uniform
from unprm.samplers.transformers_sampler import TransformersSampler
from unprm.types import SamplingSettings

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
CALLS = [(tuple(range(20, 20 + length)), 3, 100 * length) for length in (2, 30, 7, 11, 60)]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=CUDA)], scope="module")
def device(request):
    return request.param


@pytest.fixture(scope="module")
def network(base, device):
    return load_base(base, torch.float32).to(device)


def _ask(network, base, calls, **settings):
    async def all_of_them():
        sampler = TransformersSampler(network, base, "tiny", SamplingSettings(**{"max_tokens": 24} | settings))
        try:
            asked = (sampler.complete(*call, affinity="") for call in calls)
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await sampler.close()

    return [found if isinstance(found, Exception) else _ids(found) for found in asyncio.run(all_of_them())]


def _ids(completions):
    return [completion.ids for completion in completions]


@contextmanager
def _scarce(module, fits):
    """Memory runs out in passes of tokens, (rows, length), that don't fit; yields the shapes of all passes."""
    shapes = []

    def check(module, args, kwargs):
        shapes.append(tuple(kwargs["input_ids"].shape))
        if not fits(*shapes[-1]):
            raise torch.OutOfMemoryError

    handle = module.register_forward_pre_hook(check, with_kwargs=True)
    try:
        yield shapes
    finally:
        handle.remove()


def test_random_numbers_are_the_same_on_every_device(device):
    counters = torch.tensor([counter(seed, 9) for seed in range(100)])
    assert uniform(counters.to(device), 500).cpu().equal(uniform(counters, 500))


def test_tokens_are_drawn_as_a_multinomial_draws_them(device):
    logits = 3 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    weights, count = logits.softmax(dim=-1), 20_000
    counters = torch.tensor([counter(seed // 4, seed % 4) for seed in range(count)], device=device)
    drawn = draw(weights.to(device).expand(count, -1), counters).cpu()
    other = weights.multinomial(count, replacement=True, generator=torch.Generator().manual_seed(1))
    often = weights * count > 20
    table = torch.stack([tokens.bincount(minlength=2000) for tokens in (drawn, other)])
    cells = torch.cat([table[:, often], table[:, ~often].sum(dim=1, keepdim=True)], dim=1)
    assert stats.chi2_contingency(cells.numpy()).pvalue > 0.001


def test_the_first_tokens_have_the_model_s_probabilities(network, base):
    prompt, count = CALLS[1][0], 1000
    drawn = _ask(network, base, [(prompt, count, 0)], temperature=2.0, max_tokens=1)[0]
    with torch.inference_mode():
        logits = network(input_ids=torch.tensor([prompt], device=network.device)).logits[0, -1]
    expected = count * torch.softmax(logits.double() / 2.0, dim=-1).cpu()
    found = torch.tensor([token for (token,) in drawn]).bincount(minlength=len(expected))
    often = expected > 10
    pairs = [[*side[often].tolist(), float(side[~often].sum())] for side in (found, expected)]
    assert stats.chisquare(*pairs).pvalue > 0.001


def test_a_completion_does_not_depend_on_its_company(network, base):
    together = _ask(network, base, CALLS)
    assert together == [_ask(network, base, [call])[0] for call in CALLS]
    assert len({ids for found in together for ids in found}) > len(CALLS)


def test_texts_are_the_same_when_memory_runs_out_while_they_are_written(network, base, caplog):
    expected = _ask(network, base, CALLS)
    calls = []

    def fits(rows, length):
        calls.append(rows)
        return rows <= 15 if len(calls) < 10 else rows <= 4

    with _scarce(network, fits) as shapes:
        assert _ask(network, base, CALLS) == expected
    assert shapes[8] == (15, 1)
    assert max(rows for rows, _ in shapes[11:]) <= 4
    assert "out of memory with 15 completions; at most 7" in caplog.text
    assert "out of memory with 7 completions; at most 3" in caplog.text


def test_texts_are_the_same_when_memory_runs_out_for_their_prompts(network, base):
    expected = _ask(network, base, CALLS)
    with _scarce(network.get_decoder(), lambda rows, length: rows * length <= 120) as shapes:
        assert _ask(network, base, CALLS) == expected
    assert max(rows * length for rows, length in shapes) > 120


def test_a_text_that_does_not_fit_alone_fails_and_the_others_are_written(network, base):
    with _scarce(network.get_decoder(), lambda rows, length: length < 50):
        found = _ask(network, base, CALLS)
    assert isinstance(found[-1], SamplerFailed)
    assert "ran out of memory on one text of 60 tokens" in str(found[-1])
    assert found[:-1] == _ask(network, base, CALLS[:-1])
