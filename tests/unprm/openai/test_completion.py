"""The objects of OpenAI's API, in the forms in which servers send them."""

import asyncio
import math
from typing import Any

import pytest

from tests.fakes import openai_server
from unprm.openai.client import Completions, OpenAIClient
from unprm.openai.completion import Completion, Samples, TokenUsage

TOKENS = [
    {"id": 7, "logprob": 1e-9, "top_logprobs": [{"token": "a", "logprob": 1e-9}, {"token": "b", "logprob": -2.0}]},
    {"id": 8, "logprob": -0.5, "top_logprobs": None},
]
LISTS = {"token_logprobs": [1e-9, -0.5], "top_logprobs": [{"a": 1e-9, "b": -2.0}, None]}


@pytest.mark.parametrize(
    ("sent", "ids", "sampled"),
    [
        ({"logprobs": {"content": TOKENS}}, (7, 8), (0.0, -0.5)),
        ({"logprobs": LISTS, "token_ids": [7, 8]}, (7, 8), (0.0, -0.5)),
        ({"logprobs": LISTS}, None, (0.0, -0.5)),
        ({"logprobs": {"content": [TOKENS[0], {"logprob": -1.0}]}}, None, (0.0, -1.0)),
        ({"logprobs": {"content": []}}, (), ()),
        ({"logprobs": None}, None, None),
        ({}, None, None),
    ],
)
def test_tokens_are_read_in_either_form(sent: Any, ids: Any, sampled: Any) -> None:
    read = Completion.read({"index": 0, "text": "ab", **sent})
    assert read is not None
    assert (read.text, read.ids, read.logprobs.sampled) == ("ab", ids, sampled)


@pytest.mark.parametrize(
    ("sent", "counts"),
    [
        ({}, (0, 0, None)),
        ({"prompt_tokens": None, "completion_tokens": 3, "prompt_tokens_details": None}, (0, 3, None)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 12}}, (9, 3, 9)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}}, (9, 0, None)),
    ],
)
def test_what_a_server_does_not_count_is_none(sent: Any, counts: tuple[int, int, int | None]) -> None:
    usage = TokenUsage.read(sent)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == counts


def test_of_the_details_only_what_is_told_as_a_number_is_known() -> None:
    told = {"prompt_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 0}, "cost": 0.5}
    details = TokenUsage.read(told).details
    assert details is not None
    assert details.model_dump() == {"reasoning_tokens": 0, "cost": 0.5}
    odd = {"prompt_tokens_details": {"cached_tokens": -1}, "cost": {"total_cost": 1}}
    odd["completion_tokens_details"] = {"reasoning_tokens": "many"}
    for nothing in ({}, odd, {"cost": float("nan"), "completion_tokens_details": None}, {"cost": True}):
        assert TokenUsage.read(nothing).details is None


def test_what_is_no_count_is_not_told() -> None:
    counts = {"prompt_tokens": -1}, {"completion_tokens": 10**400}, {"prompt_tokens": 1.5}, {"prompt_tokens": "many"}
    for usage in (*counts, {"prompt_tokens_details": 7}, "x", [], 5):
        assert TokenUsage.read(usage) == TokenUsage()


def test_what_json_cannot_hold_is_refused_but_in_log_probabilities() -> None:
    choice = {"message": {"content": "a", "odd": 1}, "logprobs": {"content": [{"logprob": -math.inf}]}}
    kept = Completion.read(choice)
    assert kept is not None
    assert kept.raw == choice | {"finish_reason": None}
    assert Completion.read(choice | {"score": math.nan}) is None


def test_completions_come_in_their_order_in_as_many_requests_as_it_takes() -> None:
    def answer(body: Any) -> Any:
        number = min(2, body.get("n", 1))
        choices = [{"index": k, "message": {"content": str(body["seed"] + k)}} for k in range(number)]
        return {"choices": choices[::-1]}

    async def story() -> Samples:
        completions = Completions(OpenAIClient([url], None, timeout=20), "/chat/completions")
        try:
            return await completions.sample({"model": "m"}, 5, seed=10)
        finally:
            await completions.close()

    with openai_server(answer) as (url, seen):
        samples = asyncio.run(story())
    assert [completion.text for completion in samples.completions] == ["10", "11", "12", "13", "14"]
    assert sorted((request.body["seed"], request.body.get("n")) for request in seen) == [(10, 5), (12, 2), (14, None)]
