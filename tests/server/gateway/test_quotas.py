"""Tokens of the upstream count against the quota of a caller's key."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import openai_server, upstream
from tests.server.harness import bearer, serving


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
        ("/v1/responses", {"input": "p" * 400, "stream": True}, EVENTS + REPORT, 50),
    ],
    ids=["reported", "unreported", "events", "events, reported", "responses"],
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
