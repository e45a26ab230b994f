"""Tokens of the upstream count against the quota of a caller's key."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.lease import Admission, Lease
from tests.fakes import Refusal, openai_server, upstream
from tests.server.harness import bearer, serving
from unprm.errors import Overloaded
from unprm.fair_shares import Quota


def test_tokens_of_the_upstream_count_too(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one 11111111 1\n")
    message = {"model": "m", "messages": [{"role": "user", "content": "What is 3 + 4?"}], "unprm": {"budget": 3}}
    with (
        upstream("The answer is \\boxed{7}.") as reasoner,
        serving(upstream_url=reasoner.url, api_keys_file=file) as server,
    ):
        answer = server.post("/v1/chat/completions", message, headers=bearer("11111111")).json()
        refused = server.post("/v1/chat/completions", message, headers=bearer("11111111"))
    tokens = answer["usage"]["total_tokens"] + answer["unprm"]["usage"]["tokens"]
    assert answer["usage"]["total_tokens"] > 0
    assert 60 * (tokens - 1) < int(refused.headers["Retry-After"]) <= 60 * tokens


EVENTS = b'data: {"choices": [{"text": "a\\"total_tokens\\": 1"}]}\n\n' * 20
REPORT = b'data: {"choices": [], "usage": {"prompt_tokens": 30, "total_tokens": 50}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("path", "more", "answer", "tokens"),
    [
        ("/v1/completions", {"prompt": "p"}, b'{"choices": [{}], "usage": {"total_tokens": 50}}', 50),
        ("/v1/completions", {"prompt": "p" * 400}, b'{"choices": [{"text": "' + b"x" * 400 + b'"}]}', 214),
        ("/v1/completions", {"prompt": "p" * 400, "stream": True}, EVENTS, 130),
        ("/v1/completions", {"prompt": "p" * 400, "stream": True}, EVENTS + REPORT, 50),
    ],
    ids=["reported", "unreported", "events", "events, reported"],
)
def test_tokens_of_what_is_passed_on_count_too(
    path: str, more: dict[str, Any], answer: bytes, tokens: int, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text("one 11111111 1\n")
    with openai_server(lambda body: answer) as (url, _), serving(upstream_url=url, api_keys_file=file) as server:
        assert server.post(path, {"model": "m"} | more, headers=bearer("11111111")).content == answer
        refused = server.post(path, {"model": "m"} | more, headers=bearer("11111111"))
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) // 60 == pytest.approx(tokens - 1, abs=3)


CALLS = [
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "?"}], "unprm": {"strategy": "majority", "budget": 1}},
    ),
    ("/v1/completions", {"prompt": "?"}),
]


@pytest.mark.parametrize(("path", "body"), CALLS, ids=["chat", "relayed"])
def test_who_leaves_before_the_answer_pays_for_all_that_may_have_been_written(
    path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    file, came, go_on = tmp_path / "keys", threading.Event(), threading.Event()
    file.write_text("one 11111111 1\ntwo 22222222\n")

    def answer(_: Any) -> Any:
        came.set()
        go_on.wait(20)
        return {"choices": [{"message": {"content": "7"}, "text": "7"}], "usage": {"total_tokens": 5}}

    body = {"model": "m", "max_tokens": 700} | body
    with openai_server(answer) as (url, seen), serving(upstream_url=url, api_keys_file=file) as server:
        leaves = {**bearer("11111111"), "X-Request-Timeout": "0.7"}
        left = server.post(path, body, headers=leaves)
        assert (left.status_code, came.is_set()) == (504, True)
        refused = server.post(path, body, headers=leaves)
        go_on.set()
        assert server.post(path, body, headers=bearer("22222222")).status_code == 200
    assert len(seen) == 2, "nothing was asked for the refused request"
    assert 680 < int(refused.headers["Retry-After"]) / 60 < 800


@pytest.mark.parametrize(("path", "body"), CALLS, ids=["chat", "relayed"])
def test_a_quota_is_used_by_what_still_runs(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    file, came, go_on = tmp_path / "keys", threading.Event(), threading.Event()
    file.write_text("one 11111111 500\n")

    def answer(_: Any) -> Any:
        came.set()
        go_on.wait(20)
        usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
        return {"choices": [{"message": {"content": "7"}, "text": "7"}], "usage": usage}

    body = {"model": "m", "max_tokens": 700} | body
    with (
        openai_server(answer) as (url, seen),
        serving(upstream_url=url, api_keys_file=file) as server,
        ThreadPoolExecutor(1) as other,
    ):
        first = other.submit(server.post, path, body, headers=bearer("11111111"))
        assert came.wait(20)
        assert server.post(path, body, headers=bearer("11111111")).status_code == 429
        go_on.set()
        assert first.result().status_code == 200
        assert server.post(path, body, headers=bearer("11111111")).status_code == 200, "the rest was given back"
    assert len(seen) == 2


def test_a_refused_request_costs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one 11111111 500\n")
    body = {"model": "m", "max_tokens": 700, **CALLS[0][1]}
    with (
        openai_server(lambda _: Refusal(400, {"error": {"message": "no"}})) as (url, _),
        serving(upstream_url=url, api_keys_file=file) as server,
    ):
        statuses = [server.post("/v1/chat/completions", body, headers=bearer("11111111")).status_code for _ in range(3)]
    assert statuses == [400, 400, 400]


def test_requests_that_were_let_in_together_share_a_quota() -> None:
    async def run() -> None:
        admission, quota = Admission(2**20), Quota(50)
        first, second = (Lease(admission, quota=quota) for _ in range(2))
        async with first.admitted(9, 9), second.admitted(9, 9), first.reserving(90), first.reserving(90):
            with pytest.raises(Overloaded):
                await second.reserving(1).__aenter__()

    asyncio.run(run())
