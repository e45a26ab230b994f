"""Sampling with real vLLM: in this process, and through its server on loopback; `make test-vllm` runs this."""

import asyncio
import json
import subprocess
import sys

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

import torch

from tests.support import ROOT
from tests.training import lines
from unprm import mini
from unprm.checkpoints.files import load_base
from unprm.samplers.load import load_sampler
from unprm.types import SamplingSettings

# vLLM computes in bfloat16 here, which takes many times as long on a processor without instructions for it
pytestmark = pytest.mark.timeout(1500)
PROBLEM = "Mia has 30 marbles. Mia finds 12 marbles. Mia loses 5 marbles. How many marbles does Mia have now?"


def _build(output, *arguments):
    command = [sys.executable, "-m", "training", "build", "--preset", "mini", "--limit", "3", "--out", str(output)]
    return subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)


def _check_chain(output, done):
    assert done.returncode == 0, done.stderr[-2000:]
    place = output / mini.NAME
    assert len(lines.read(place / "samples.jsonl")) == 3
    labelled = lines.read(place / "annotated.jsonl")
    rows = [json.loads(line) for line in (output / "dataset" / "data" / "train.jsonl").read_text().splitlines()]
    assert 0 < len(rows) <= len(labelled)
    assert any(record["tried"] for record in labelled)


def test_the_whole_chain_with_vllm_in_this_process(tmp_path):
    _check_chain(tmp_path, _build(tmp_path, "--sampler", "vllm"))


@pytest.mark.xdist_group("reasoner")
def test_the_whole_chain_through_vllm_s_server(reasoner, tmp_path):
    _check_chain(tmp_path, _build(tmp_path, "--sampler", "openai", "--url", reasoner, "--tokenizer", mini.NAME))


@pytest.mark.xdist_group("reasoner")
def test_completions_through_the_server_are_the_model_s_own(reasoner):
    sampler = load_sampler("openai", mini.NAME, SamplingSettings(max_tokens=64), (reasoner,))

    async def story():
        first = await sampler.solve(PROBLEM, 4, 7)
        again = await sampler.solve(PROBLEM, 4, 7)
        prompt = (*sampler.prompt(PROBLEM), *first[0].ids[:12])
        rest = await sampler.complete(prompt, 2, 8, PROBLEM)
        await sampler.close()
        return first, again, rest, prompt

    first, again, rest, prompt = asyncio.run(story())
    assert [completion.ids for completion in first] == [completion.ids for completion in again]
    network = load_base(mini.BASE, torch.float32)
    for start, completion in [(sampler.prompt(PROBLEM), first[0]), (prompt, rest[0])]:
        with torch.inference_mode():
            logits = network(input_ids=torch.tensor([[*start, *completion.ids]])).logits[0].float()
        logprobs = torch.log_softmax(logits, dim=-1)[len(start) - 1 : -1]
        expected = logprobs.gather(1, torch.tensor(completion.ids)[:, None])[:, 0].tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)
        assert completion.text == sampler.decode(completion.ids)
