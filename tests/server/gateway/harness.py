"""A server with a gateway, called by OpenAI's client."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import openai
from openai.types.chat import ChatCompletion
from starlette.responses import JSONResponse, Response

from server.routes.gateway import upstream as sampled
from server.settings import UpstreamOptions
from tests.fake_engine import FakeEngine
from tests.fakes import Upstream
from tests.server.harness import Running, serving
from tests.support import PATIENCE
from unprm.types import Engine

PROBLEM = "What is 3 + 4?"


def boxed(answer: object, *more: str) -> str:
    return "\n\n".join([*more, f"The answer is \\boxed{{{answer}}}."])


SHARED = ExitStack()
"""Closed at the end of the session."""


@cache
def _shared() -> Running:
    """A server for tests that leave it as it was."""
    return SHARED.enter_context(serving(FakeEngine(), upstream_url="http://127.0.0.1:9"))


@contextmanager
def before(**upstreams: UpstreamOptions) -> Iterator[Running]:
    """The shared server before these upstreams, of which it knows nothing yet."""
    running = _shared()
    asked = {name: sampled.Upstream(name, options, running.service) for name, options in upstreams.items()}
    running.app.state.upstreams = asked
    try:
        yield running
    finally:
        loop = running.server.servers[0].get_loop()
        for each in asked.values():
            asyncio.run_coroutine_threadsafe(each.close(), loop).result(PATIENCE)


@contextmanager
def gateway(reasoner: Upstream, engine: Engine | None = None, **options: Any) -> Iterator[Running]:
    """A gateway before an upstream; with an engine or options of its own a server of its own."""
    if engine is None and not options:
        with before(first=UpstreamOptions(reasoner.url, None, None)) as running:
            yield running
    else:
        with serving(engine or FakeEngine(), upstream_url=reasoner.url, **options) as running:
            yield running


def client(running: Running, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)


def ask(running: Running, content: Any = PROBLEM, key: str = "none", **more: Any) -> Any:
    options = {"model": "m", "messages": [{"role": "user", "content": content}], **more}
    with client(running, key) as api:
        answer = api.chat.completions.create(**options)
        return list(answer) if more.get("stream") else answer


def elected(running: Running, content: Any = PROBLEM, **unprm: Any) -> tuple[ChatCompletion, dict[str, Any]]:
    answer = ask(running, content, extra_body={"unprm": unprm})
    return answer, dict(answer.unprm)


def refusal(status: int, message: str = "no", **headers: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "x", "code": None}}, status, headers)
