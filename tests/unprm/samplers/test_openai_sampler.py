"""The HTTP samplers, against servers that answer as vLLM and chat APIs do, and against failing ones."""

import asyncio
import math
from dataclasses import replace

import pytest

from tests.fakes import at_once, openai_server
from unprm import mini
from unprm.checkpoints.files import load_tokenizer
from unprm.errors import SamplerFailed
from unprm.openai.client import NEUTRAL, OpenAIClient
from unprm.samplers.openai_sampler import ATTEMPTS, ChatSampler, OpenAISampler
from unprm.samplers.prompts import INSTRUCTION, messages
from unprm.types import SamplingSettings

SETTINGS = SamplingSettings(temperature=0.7, max_tokens=9)


def _completions(body):
    """As vLLM answers: the prompt's last ids again, with a log-probability each; in any order."""
    choices = [
        {
            "index": index,
            "text": "".join(chr(32 + each) for each in body["prompt"][-2:] if each < 95),  # as the tiny base's tokens
            "finish_reason": "stop" if index else "length",
            "token_ids": body["prompt"][-2:],
            "logprobs": {"token_logprobs": [-0.5 - index, 1e-9], "tokens": ["a", "b"]},
        }
        for index in range(body.get("n", 1))
    ]
    return {"choices": choices[::-1], "usage": {}}


def _chat(body):
    tokens = [{"token": "4", "logprob": -0.25}, {"token": "2", "logprob": -0.5}]
    message = {"role": "assistant", "content": "Step 1: 42."}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": tokens}}
    return {"choices": [choice | {"index": index} for index in range(body.get("n", 1))]}


def _client(*urls, key=None):
    return OpenAIClient(urls, key, timeout=5, attempts=ATTEMPTS, sleep=at_once)


def _ask(sampler, *calls):
    async def all_of_them():
        try:
            return [await sampler.complete(*call) for call in calls]
        finally:
            await sampler.close()

    return asyncio.run(all_of_them())


def test_token_ids_go_in_and_come_out(base):
    with openai_server(_completions) as (url, seen):
        sampler = OpenAISampler(_client(url + "/v1/", key="secret"), "some/model", base, SETTINGS)
        prompt = sampler.prompt("12 + 34?")
        completions = _ask(sampler, (prompt, 3, 77, "a"))[0]
    path, body, authorization = seen[0]
    assert path == "/v1/completions"
    assert authorization == "Bearer secret"
    assert body["prompt"] == list(prompt)
    assert (body["n"], body["seed"], body["temperature"], body["max_tokens"]) == (3, 77, 0.7, 9)
    assert body.items() >= NEUTRAL.items()
    assert [completion.ids for completion in completions] == [prompt[-2:]] * 3
    assert [completion.logprobs for completion in completions] == [(-0.5 - index, 0.0) for index in range(3)]
    assert [completion.finished for completion in completions] == [False, True, True]
    assert completions[0].text == sampler.decode(prompt[-2:])


def test_passing_errors_are_tried_again(base):
    with openai_server(_completions, statuses=[503, 429, 500]) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        assert len(_ask(sampler, ((1, 2), 2, 0, "a"))[0]) == 2
    assert len(seen) == 4


def test_errors_that_stay_are_reported_after_all_attempts(base):
    with openai_server(_completions, statuses=[503] * 99) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        with pytest.raises(SamplerFailed, match=f"answered 503.*{ATTEMPTS} attempts"):
            _ask(sampler, ((1, 2), 2, 0, "a"))
    assert len(seen) == ATTEMPTS


def test_a_request_that_is_refused_is_not_repeated(base):
    with openai_server(_completions, statuses=[400, 400]) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        with pytest.raises(SamplerFailed, match=r"answered 400 \(1 attempts\): no: "):
            _ask(sampler, ((1, 2), 1, 0, "a"))
    assert len(seen) == 1


def test_a_question_stays_with_its_server(base):
    with openai_server(_completions) as (first, seen), openai_server(_completions) as (second, others):
        sampler = OpenAISampler(_client(first, second), "m", base, SETTINGS)
        _ask(sampler, *(((1, number), 1, 0, f"question {number % 12}") for number in range(24)))
        questions = [{request.body["prompt"][1] % 12 for request in requests} for requests in (seen, others)]
    assert all(questions)
    assert not questions[0] & questions[1]


def test_servers_that_are_all_dead_are_reported(base):
    with openai_server(_completions) as (url, _):
        pass
    sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
    with pytest.raises(SamplerFailed, match="ConnectError"):
        _ask(sampler, ((1, 2), 1, 0, "a"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda choice: choice.pop("token_ids"), "sends no token ids"),
        (lambda choice: choice.pop("logprobs"), "no log-probabilities"),
        (lambda choice: choice["token_ids"].append(3), "2 log-probabilities were sent for 3 token ids"),
        (lambda choice: choice["logprobs"]["token_logprobs"].append(math.nan), "token_logprobs.2: .* finite number"),
    ],
)
def test_an_answer_without_what_is_needed_is_refused(base, spoil, message):
    def spoiled(body):
        answer = _completions(body)
        spoil(answer["choices"][0])
        return answer

    with openai_server(spoiled) as (url, _), pytest.raises(SamplerFailed, match=message):
        _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 1, 0, "a"))


def test_a_server_that_knows_no_n_is_asked_again(base):
    with openai_server(lambda body: _completions(body | {"n": 1})) as (url, seen):
        (found,) = _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 3, 70, "a"))
    assert len(found) == 3
    assert [(request.body["n"], request.body["seed"]) for request in seen[:1]] == [(3, 70)]
    assert sorted((request.body.get("n", 1), request.body["seed"]) for request in seen[1:]) == [(1, 71), (1, 72)]


def test_too_few_completions_are_refused(base):
    with openai_server(lambda body: {"choices": []}) as (url, _), pytest.raises(SamplerFailed, match=r"4 .* 0 came"):
        _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 4, 0, "a"))


def test_tokens_that_end_within_a_character_are_put_back():
    """llama.cpp leaves them out, and tells their bytes with the next token: as recorded for `8 ÷ 2`, here in bytes."""
    tokenizer = load_tokenizer(mini.BASE)
    *begun, last = ids = tokenizer.encode("÷", add_special_tokens=False).ids
    eight = tokenizer.token_to_id("8")

    def answer(body):
        told = [(eight, [56], -0.2), (last, [195, 183], -0.1), (eight, [56], -0.3)]
        content = [{"id": id, "bytes": each, "logprob": value} for id, each, value in told]
        choice = {"index": 0, "text": "8÷8", "finish_reason": "stop", "logprobs": {"content": content}}
        return {"choices": [choice]}

    with openai_server(answer) as (url, _):
        sampler = OpenAISampler(_client(url), "m", mini.BASE, SETTINGS)
        ((completion,),) = _ask(sampler, ((1, 2), 1, 0, "a"))
    assert len(begun) == 1
    assert completion.ids == (eight, *ids, eight)
    assert completion.text == "8÷8"
    assert completion.logprobs == (-0.2, 0.0, -0.1, -0.3)


def test_tokens_of_another_tokenizer_are_refused(base):
    def other(body):
        answer = _completions(body)
        answer["choices"][0]["text"] = "something else"
        return answer

    with openai_server(other) as (url, _), pytest.raises(SamplerFailed, match=r"give that of m \(--tokenizer\)"):
        _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 1, 0, "a"))


def test_a_chat_api_is_shown_worked_examples():
    with openai_server(_chat) as (url, seen):
        sampler = ChatSampler(_client(url), "gpt", replace(SETTINGS, worked_examples=True))

        async def story():
            await sampler.solve("What is 40 + 2?", 2, 5)
            await sampler.close()

        asyncio.run(story())
    assert seen[0][1]["messages"] == messages("What is 40 + 2?", worked_examples=True)


def test_a_chat_api_gives_candidates_and_refuses_prefixes():
    with openai_server(_chat) as (url, seen):
        sampler = ChatSampler(_client(url), "gpt", SETTINGS)

        async def story():
            solutions = await sampler.solve("What is 40 + 2?", 2, 5)
            with pytest.raises(SamplerFailed, match="can't go on from the tokens"):
                await sampler.complete((1, 2), 1, 0, "a")
            await sampler.close()
            return solutions

        solutions = asyncio.run(story())
    path, body, _ = seen[0]
    assert path == "/v1/chat/completions"
    assert body.items() >= NEUTRAL.items()
    assert body["messages"] == [{"role": "user", "content": f"{INSTRUCTION}\n\nWhat is 40 + 2?"}]
    assert [(s.text, s.ids, s.logprobs) for s in solutions] == [("Step 1: 42.", (), (-0.25, -0.5))] * 2
