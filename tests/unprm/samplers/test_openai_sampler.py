"""The HTTP samplers, against servers that answer as vLLM and chat APIs do, and against failing ones."""

import asyncio
import json
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from unprm.errors import SamplerFailed
from unprm.openai_api import OpenAIClient
from unprm.samplers.openai_sampler import ATTEMPTS, ChatSampler, OpenAISampler
from unprm.samplers.prompts import INSTRUCTION, messages
from unprm.types import SamplingSettings

SETTINGS = SamplingSettings(temperature=0.7, max_tokens=9)


def _completions(body):
    """As vLLM answers: the prompt's last ids again, with a log-probability each; in any order."""
    choices = [
        {
            "index": index,
            "text": "not used",
            "finish_reason": "stop" if index else "length",
            "token_ids": body["prompt"][-2:],
            "logprobs": {"token_logprobs": [-0.5 - index, 1e-9], "tokens": ["a", "b"]},
        }
        for index in range(body["n"])
    ]
    return {"choices": choices[::-1], "usage": {}}


def _chat(body):
    tokens = [{"token": "4", "logprob": -0.25}, {"token": "2", "logprob": -0.5}]
    message = {"role": "assistant", "content": "Step 1: 42."}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": tokens}}
    return {"choices": [choice | {"index": index} for index in range(body["n"])]}


@contextmanager
def _server(answer, statuses=(), port=0):
    """A server that answers the first requests with `statuses`, the others with what `answer(body)` returns.

    Yields its address and the list of requests that it has seen: (path, body, authorization).
    """
    seen, pending = [], list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((self.path, body, self.headers.get("authorization")))
            status = pending.pop(0) if pending else 200
            payload = json.dumps(answer(body) if status == 200 else {"error": "no"}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()


def _client(*urls, key=None, pause=0.3):
    return OpenAIClient(urls, key, timeout=5, attempts=ATTEMPTS, first_wait=0.01, pause=pause)


def _ask(sampler, *calls):
    async def all_of_them():
        try:
            return [await sampler.complete(*call) for call in calls]
        finally:
            await sampler.close()

    return asyncio.run(all_of_them())


def test_token_ids_go_in_and_come_out(base):
    with _server(_completions) as (url, seen):
        sampler = OpenAISampler(_client(url + "/v1/", key="secret"), "some/model", base, SETTINGS)
        prompt = sampler.prompt("12 + 34?")
        completions = _ask(sampler, (prompt, 3, 77, "a"))[0]
    path, body, authorization = seen[0]
    assert path == "/v1/completions"
    assert authorization == "Bearer secret"
    assert body["prompt"] == list(prompt)
    assert (body["n"], body["seed"], body["temperature"], body["max_tokens"]) == (3, 77, 0.7, 9)
    assert [completion.ids for completion in completions] == [prompt[-2:]] * 3
    assert [completion.logprobs for completion in completions] == [(-0.5 - index, 0.0) for index in range(3)]
    assert [completion.finished for completion in completions] == [False, True, True]
    assert completions[0].text == sampler.decode(prompt[-2:])


def test_passing_errors_are_tried_again(base):
    with _server(_completions, statuses=[503, 429, 500]) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        assert len(_ask(sampler, ((1, 2), 2, 0, "a"))[0]) == 2
    assert len(seen) == 4


def test_errors_that_stay_are_reported_after_all_attempts(base):
    with _server(_completions, statuses=[503] * 99) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        with pytest.raises(SamplerFailed, match=f"answered 503.*{ATTEMPTS} attempts"):
            _ask(sampler, ((1, 2), 2, 0, "a"))
    assert len(seen) == ATTEMPTS


def test_a_request_that_is_refused_is_not_repeated(base):
    with _server(_completions, statuses=[400, 400]) as (url, seen):
        sampler = OpenAISampler(_client(url), "m", base, SETTINGS)
        with pytest.raises(SamplerFailed, match=r"answered 400 \(1 attempts\)"):
            _ask(sampler, ((1, 2), 2, 0, "a"))
    assert len(seen) == 1


def test_a_question_stays_with_its_server_and_questions_are_spread(base):
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(_completions)) for _ in range(3)]
        sampler = OpenAISampler(_client(*(url for url, _ in servers)), "m", base, SETTINGS)
        _ask(sampler, *(((1, number), 1, 0, f"question {number % 30}") for number in range(90)))
        shares = [Counter(body["prompt"][1] % 30 for _, body, _ in seen) for _, seen in servers]
    assert all(shares)
    assert not set(shares[0]) & set(shares[1]) | set(shares[1]) & set(shares[2]) | set(shares[0]) & set(shares[2])
    assert sum(len(share) for share in shares) == 30


def test_a_dead_server_is_left_out_and_taken_back_in(base):
    calls = [((1, number), 1, 0, f"question {number}") for number in range(20)]

    async def story():
        with _server(_completions) as (alive, kept):
            with _server(_completions) as (mortal, lost):
                sampler = OpenAISampler(_client(alive, mortal), "m", base, SETTINGS)
                for call in calls:
                    await sampler.complete(*call)
                shares = len(kept), len(lost)
            for call in calls:
                await sampler.complete(*call)
            taken_over = len(kept) - shares[0]
            with _server(_completions, port=int(mortal.rpartition(":")[2])) as (_, back):
                while not back:  # its pause grows with each attempt that was in vain
                    await sampler.complete(*calls[len(kept) % len(calls)])
                    await asyncio.sleep(0.02)
                back.clear()
                for call in calls:
                    await sampler.complete(*call)
                await sampler.close()
                return shares, taken_over, len(back)

    shares, taken_over, back = asyncio.run(story())
    assert min(shares) > 0
    assert sum(shares) == taken_over == 20
    assert back == shares[1]


def test_servers_that_are_all_dead_are_reported(base):
    with _server(_completions) as (url, _):
        pass
    sampler = OpenAISampler(_client(url, pause=0.01), "m", base, SETTINGS)
    with pytest.raises(SamplerFailed, match="ConnectError"):
        _ask(sampler, ((1, 2), 1, 0, "a"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda choice: choice.pop("token_ids"), "tells no token ids"),
        (lambda choice: choice.pop("logprobs"), "no log-probabilities"),
        (lambda choice: choice["token_ids"].append(3), "2 log-probabilities were told for 3 token ids"),
        (lambda choice: choice.pop("index"), "index"),
    ],
)
def test_an_answer_without_what_is_needed_is_refused(base, spoil, message):
    def spoiled(body):
        answer = _completions(body)
        spoil(answer["choices"][0])
        return answer

    with _server(spoiled) as (url, _), pytest.raises(SamplerFailed, match=message):
        _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 1, 0, "a"))


def test_too_few_completions_are_refused(base):
    with _server(lambda body: _completions(body | {"n": 1})) as (url, _), pytest.raises(SamplerFailed, match="1 came"):
        _ask(OpenAISampler(_client(url), "m", base, SETTINGS), ((1, 2), 4, 0, "a"))


def test_a_chat_api_is_shown_worked_examples():
    with _server(_chat) as (url, seen):
        sampler = ChatSampler(_client(url), "gpt", replace(SETTINGS, worked_examples=True))

        async def story():
            await sampler.solve("What is 40 + 2?", 2, 5)
            await sampler.close()

        asyncio.run(story())
    assert seen[0][1]["messages"] == messages("What is 40 + 2?", worked_examples=True)


def test_a_chat_api_gives_candidates_and_refuses_prefixes():
    with _server(_chat) as (url, seen):
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
    assert body["messages"] == [{"role": "user", "content": f"{INSTRUCTION}\n\nWhat is 40 + 2?"}]
    assert [(s.text, s.ids, s.logprobs) for s in solutions] == [("Step 1: 42.", (), (-0.25, -0.5))] * 2
