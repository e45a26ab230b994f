"""llama.cpp's server with the embedded reasoner: its sampler, its gateway, and a judge that it is not."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.llama_server import NAME, SLOTS, llama_server
from tests.server.harness import serving
from tests.tiny import write_gguf
from training.cli.data import app
from unprm import mini
from unprm.errors import ModelInvalid, SamplerFailed
from unprm.models.judge import load_judge
from unprm.models.options import EngineOptions, JudgeOptions
from unprm.samplers.load import load_sampler
from unprm.types import Completion, Sampler, SamplingSettings

PROBLEM = "Zoe has 23 coins. Zoe buys 4 bags with 15 coins in each bag. How many coins does Zoe have now?"
SOLUTION = "Step 1: 4 * 15 = 60.\nStep 2: 23 + 60 = 83. The answer is \\boxed{83}."
GREEDY = SamplingSettings(temperature=0.0, max_tokens=100)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(write_gguf(mini.BASE, tmp_path_factory.mktemp("llama") / "mini.gguf")) as address:
        yield address


def drawn(sampler: Sampler, prompt: tuple[int, ...], count: int, seed: int = 7) -> list[Completion]:
    async def story() -> list[Completion]:
        try:
            return await sampler.complete(prompt, count, seed, "a")
        finally:
            await sampler.close()

    return asyncio.run(story())


def over_http(url: str, settings: SamplingSettings) -> Sampler:
    return load_sampler("openai", NAME, settings, (url,), mini.NAME)


def test_it_writes_the_tokens_that_the_model_writes_here(url: str) -> None:
    there, here = over_http(url, GREEDY), load_sampler("transformers", mini.NAME, GREEDY)
    prompt = there.prompt(PROBLEM)
    (found,), (expected,) = drawn(there, prompt, 1), drawn(here, prompt, 1)
    assert (found.text, found.ids, found.finished) == (SOLUTION, expected.ids, True)
    assert found.logprobs == pytest.approx(expected.logprobs, abs=0.01)
    (rest,) = drawn(over_http(url, GREEDY), prompt + found.ids[:12], 1)
    assert rest.ids == found.ids[12:]


def test_more_completions_than_slots_are_those_of_their_seeds(url: str) -> None:
    settings = SamplingSettings(temperature=2.0, max_tokens=8)
    prompt = over_http(url, settings).prompt(PROBLEM)
    together = drawn(over_http(url, settings), prompt, 2 * SLOTS + 1)
    assert len({completion.ids for completion in together}) > 1
    for number, completion in enumerate(together):
        (alone,) = drawn(over_http(url, settings), prompt, 1, seed=7 + number)
        assert alone.ids == completion.ids


def test_a_request_that_it_refuses_has_its_words(url: str) -> None:
    with pytest.raises(SamplerFailed, match=r"answered 400 .*: .*context"):
        drawn(over_http(url, GREEDY), (5,) * 2000, 1)


def test_the_gateway_gets_all_candidates_and_counts_their_tokens(url: str) -> None:
    body: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": PROBLEM}], "temperature": 0}
    with serving(upstream_url=url) as running:
        one, all_of_them = (
            running.post("/v1/chat/completions", body | {"unprm": {"budget": each, "strategy": "weighted"}}).json()
            for each in (1, 2 * SLOTS)
        )
    assert all_of_them["choices"][0]["message"]["content"] == SOLUTION
    assert all_of_them["unprm"]["answer"] == "83"
    assert one["usage"]["completion_tokens"] > 0
    assert all_of_them["usage"]["completion_tokens"] == 2 * SLOTS * one["usage"]["completion_tokens"]


def test_a_model_that_gives_no_verdict_is_no_judge(url: str) -> None:
    with pytest.raises(ModelInvalid, match="gives no verdict that can be read"):
        load_judge(JudgeOptions(judge_url=url, judge_model=NAME), EngineOptions(), patience=60)


def test_a_data_set_is_built(url: str, tmp_path: Path) -> None:
    options = ["--sampler", "openai", "--url", url, "--model", NAME, "--tokenizer", mini.NAME]
    sizes = ["--limit", "4", "--k", "6", "--n", "8", "--concurrency", "2", "--preset", "mini"]
    done = CliRunner().invoke(app, ["build", "--out", str(tmp_path / "made"), *options, *sizes])
    assert done.exit_code == 0, done.output
    place = tmp_path / "made" / NAME
    config = json.loads((place / "annotated.config.json").read_text("utf-8"))
    assert (config["model"], config["bayes"]["budget"], config["adaptive"]["most"]) == (NAME, 8, 8)
    solutions = [json.loads(line) for line in (place / "annotated.jsonl").read_text("utf-8").splitlines()]
    tried = [solution["samples"] for solution in solutions if solution["tried"]]
    assert tried
    assert max(tried) <= 8
    assert len((tmp_path / "made" / "dataset" / "data" / "train.jsonl").read_text("utf-8").splitlines()) > len(tried)
