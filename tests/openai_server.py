"""A server of OpenAI's HTTP API that answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A request as the server got it."""

    path: str
    body: Any
    authorization: str | None


async def at_once(seconds: float) -> None:
    """For an `OpenAIClient` to wait with: not at all."""


class Refusal(NamedTuple):
    """An answer with a status of its own."""

    status: int
    content: Any


@contextmanager
def openai_server(
    answer: Callable[[Any], Any],
    statuses: Sequence[int] = (),
    headers: Mapping[str, str] | None = None,
    port: int = 0,
    slots: int | None = None,
    props: bool = False,
) -> Iterator[tuple[str, list[Request]]]:
    """Answers the first requests with `statuses` and `headers`, the others with what `answer(body)` returns: bytes as
    they are, a value as JSON, or a `Refusal`. `slots`: as many as llama.cpp would say it has; `props`: what
    `answer(None)` returns is said where llama.cpp says it. Yields the address and the list of requests so far, without
    those."""
    seen: list[Request] = []
    pending = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "null")
            seen.append(Request(self.path, body, self.headers.get("authorization")))
            status = pending.pop(0) if pending else 200
            content = answer(body) if status == 200 else {"error": {"message": f"no: {json.dumps(body)}"}}
            if isinstance(content, Refusal):
                status, content = content
            self.answer(status, content if isinstance(content, bytes) else json.dumps(content).encode())

        def answer(self, status: int, payload: bytes) -> None:
            self.send_response(status)
            for name, value in ({} if status == 200 else headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def do_GET(self) -> None:
            if props or self.path != "/props":
                self.do_POST()
            elif slots is None:
                self.send_error(404)
            else:
                self.answer(200, json.dumps({"total_slots": slots}).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
