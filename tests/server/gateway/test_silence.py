"""An upstream that hangs is found out: by its metrics, the log, and the sentence of a 504."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from server.routes.gateway import upstream as sampled
from server.settings import UpstreamOptions
from tests.fakes import Upstream, listening, upstream
from tests.server.gateway.harness import PROBLEM, boxed, gateway
from tests.server.harness import Background, Running
from tests.support import until

CHAT = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}]}
FOREVER = threading.Event()


@pytest.fixture
def hung() -> Iterator[Upstream]:
    """It sends not a byte."""
    with upstream(boxed(1), held=dict.fromkeys(range(9), FOREVER)) as reasoner:
        yield reasoner


def calls(running: Running, outcome: str, upstream: str = "first") -> float:
    return running.metric(f'unprm_upstream_seconds_count{{upstream="{upstream}",outcome="{outcome}"}}')


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.message == message]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("chat/completions", {}),
        ("chat/completions", {"stream": True}),
        ("chat/completions", {"unprm": {"budget": 1}}),
        ("messages", {"max_tokens": 9}),
        ("responses", {"input": PROBLEM, "messages": None, "stream": True}),
    ],
)
def test_callers_who_give_up_count_against_the_upstream(
    path: str, more: dict[str, Any], hung: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with gateway(hung, drain_seconds=5) as running:
        with suppress(httpx.ReadTimeout):
            httpx.post(f"{running.url}/v1/{path}", json=CHAT | more, timeout=0.4)
        until(lambda: bool(logged(caplog, "request")))
        (line,) = logged(caplog, "request")
        assert (line["code"], line["status"]) == ("upstream_silent", 200 if more.get("stream") else 499)
        assert calls(running, "timed_out") == 1
        assert running.metric('unprm_requests_total{code="upstream_silent"}') == 1
        (call,) = logged(caplog, "upstream call")
        assert (call["upstream"], call["outcome"]) == ("first", "timed_out")


def test_a_504_says_that_the_upstream_had_not_answered(hung: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with gateway(hung, gateway_seconds=30) as running:
        late = running.post("/v1/chat/completions", CHAT, headers={"X-Request-Timeout": "0.3"})
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        assert "the upstream 'first' had not answered" in late.json()["detail"]
        assert logged(caplog, "request")[0]["code"] == "upstream_silent"
        assert calls(running, "timed_out") == 1


def test_a_call_without_a_byte_is_slow_while_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    with upstream(boxed(1), held={0: gate}) as reasoner, gateway(reasoner, drain_seconds=5) as running:
        options = UpstreamOptions(reasoner.url, None, None)
        patient = sampled.Upstream("large", options, running.service, slow=0.05)
        running.app.state.upstreams = {"large": patient}
        waiting = Background(lambda: running.post("/v1/chat/completions", CHAT | {"unprm": {"budget": 2}}))
        until(lambda: calls(running, "slow", "large") == 1)
        assert logged(caplog, "upstream call") == [{"upstream": "large", "outcome": "slow", "ms": 50}]
        gate.set()
        assert waiting.result().status_code == 200
        assert [calls(running, outcome, "large") for outcome in ("slow", "ok", "timed_out")] == [1, 1, 0]


def test_a_head_without_a_body_is_no_answer() -> None:
    async def silent() -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    async def respond(request: Request) -> Response:
        return StreamingResponse(silent(), media_type="text/event-stream")

    with (
        listening([Route("/v1/{path:path}", respond, methods=["POST"])]) as url,
        gateway(Upstream([], url=url), drain_seconds=5) as running,
    ):
        late = running.post("/v1/chat/completions", CHAT, headers={"X-Request-Timeout": "0.4"})
        assert "the upstream 'first' had not answered" in late.json()["detail"]
        assert calls(running, "timed_out") == 1


def test_a_call_that_is_not_needed_any_more_counts_against_nobody() -> None:
    texts = [boxed(1)] * 4
    with upstream(*texts, takes_n=False, held={3: FOREVER}) as reasoner, gateway(reasoner, drain_seconds=5) as running:
        answer = running.post("/v1/chat/completions", CHAT | {"unprm": {"budget": 4, "strategy": "majority"}})
        assert answer.json()["unprm"]["stopped"] == "stable"
        assert calls(running, "cancelled") >= 1
        assert calls(running, "timed_out") == 0
