"""A server with a gateway, called by OpenAI's client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
from openai.types.chat import ChatCompletion
from starlette.responses import JSONResponse, Response

from tests.fake_engine import FakeEngine
from tests.fakes import (
    Upstream,
)
from tests.server.harness import Running, serving

PROBLEM = "What is 3 + 4?"


def boxed(answer: object, *more: str) -> str:
    return "\n\n".join([*more, f"The answer is \\boxed{{{answer}}}."])


@contextmanager
def gateway(reasoner: Upstream, engine: FakeEngine | None = None, **options: Any) -> Iterator[Running]:
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
