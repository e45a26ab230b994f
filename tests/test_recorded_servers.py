"""Sampler, judge and gateway with the answers of llama.cpp, vLLM, Ollama and LM Studio, after their public sources."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import Refusal, openai_server
from tests.server.harness import serving
from unprm.engines.judge.chat import JudgeChat
from unprm.errors import SamplerFailed
from unprm.openai import completion
from unprm.openai.client import OpenAIClient
from unprm.samplers.openai_sampler import ChatSampler, OpenAISampler
from unprm.types import Completion, SamplingSettings, Usage

SERVERS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "servers.json").read_text("utf-8"))
LOGPROBS = {"llama.cpp", "vLLM"}
"""Those that told log-probabilities."""
SETTINGS = SamplingSettings(max_tokens=3)


@contextmanager
def running(name: str) -> Iterator[str]:
    """The server's address. It gives as many of the recorded choices as are asked for, or refuses more."""
    recorded = SERVERS[name]

    def answer(body: Any) -> Any:
        kept = recorded["props" if body is None else "chat" if "messages" in body else "completions"]
        content = kept["body"]
        if body is not None and kept["status"] == 200:
            if (number := body.get("n", 1)) > len(content["choices"]) and "refusal" in recorded:
                kept, content = recorded["refusal"], recorded["refusal"]["body"]
            else:
                content = content | {"choices": content["choices"][:number]}
        return content if kept["status"] == 200 else Refusal(kept["status"], content)

    with openai_server(answer, props=True) as (url, _):
        yield url


def client(url: str) -> OpenAIClient:
    return OpenAIClient([url], None, timeout=20)


def asked(sampler: OpenAISampler | ChatSampler, count: int) -> list[Completion]:
    async def story() -> list[Completion]:
        try:
            if isinstance(sampler, ChatSampler):
                return await sampler.solve("What is 40 + 2?", count, 0)
            return await sampler.complete((1, 2), count, 0, "a")
        finally:
            await sampler.close()

    return asyncio.run(story())


@pytest.mark.parametrize("name", SERVERS)
def test_slots_are_those_that_llama_cpp_tells(name: str) -> None:
    async def story() -> int | None:
        try:
            return await asking.slots()
        finally:
            await asking.close()

    with running(name) as url:
        asking = client(url)
        assert asyncio.run(story()) == (4 if name == "llama.cpp" else None)


@pytest.mark.parametrize("name", sorted(LOGPROBS))
def test_tokens_with_their_log_probabilities(base: Path, name: str) -> None:
    with running(name) as url:
        first, second = asked(OpenAISampler(client(url), "m", base, SETTINGS), 2)
    assert first == Completion("42", (20, 18, 0), (-0.25, -0.5, 0.0), True)
    assert second == Completion("4", (20,), (-0.25,), False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Ollama", r"answered 400 .*: json: cannot unmarshal array into Go struct field CompletionRequest\.prompt"),
        ("LM Studio", "sends no token ids .* or no log-probabilities"),
    ],
)
def test_a_server_that_cannot_continue_tokens_is_refused(base: Path, name: str, message: str) -> None:
    with running(name) as url, pytest.raises(SamplerFailed, match=message):
        asked(OpenAISampler(client(url), "m", base, SETTINGS), 2)


@pytest.mark.parametrize("name", SERVERS)
def test_candidates_of_a_chat(name: str) -> None:
    with running(name) as url:
        sampler = ChatSampler(client(url), "m", SETTINGS)
        if name in LOGPROBS:
            found = asked(sampler, 5)
            assert found == [Completion("42", (), (-0.25, -0.5, 0.0), True)] * 5
        else:
            with pytest.raises(SamplerFailed, match="sends no log-probabilities"):
                asked(sampler, 5)


@pytest.mark.parametrize("name", SERVERS)
def test_answers_of_a_judge_and_their_cost(name: str) -> None:
    async def story() -> tuple[list[completion.Completion], Usage]:
        chat = JudgeChat(url, None, "m", 4, 20)
        try:
            return await chat.complete([{"role": "user", "content": "?"}], max_tokens=3, temperature=1.0, count=5)
        finally:
            await chat.close()

    with running(name) as url:
        choices, usage = asyncio.run(story())
    assert [(choice.text, len(choice.tokens)) for choice in choices] == [("42", 3 * (name in LOGPROBS))] * 5
    requests = 3 if name in LOGPROBS else 5  # 2 + 2 + 1, or one by one
    tokens, cached = requests * 5 + 5 * 3, requests * (name == "llama.cpp")
    if name == "vLLM":  # its last answer, of one choice, has the recorded usage of two
        tokens += 3
    assert usage == Usage(tokens, tokens - cached, cached)


@pytest.mark.parametrize("name", SERVERS)
def test_candidates_of_the_gateway_and_their_tokens(name: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "What is 40 + 2?"}]}
    terms = {"budget": 2, "strategy": "hmr"}  # a vote that needs no more than answers would not wait for the second
    with running(name) as url, serving(upstream_url=url) as server:
        answer = server.post("/v1/chat/completions", body | {"unprm": terms}).json()
    assert answer["choices"][0]["message"]["content"] == "42"
    assert [each["count"] for each in answer["unprm"]["candidates"]] == [2]
    assert answer["usage"]["completion_tokens"] == 6
