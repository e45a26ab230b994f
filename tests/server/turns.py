"""The turns of an event loop on which the app runs, by the processor time that each takes."""

import asyncio
import time
from typing import Any

from starlette.types import ASGIApp, Message

PART = 65_536
"""Bytes in which a body arrives, as with uvicorn."""


class Turns(asyncio.SelectorEventLoop):
    """`longest`: processor seconds of the longest turn since `begin`."""

    def begin(self) -> None:
        """Forgets the turns so far."""
        self._turn, self.longest = time.thread_time(), 0.0

    longest, _turn = 0.0, 0.0

    def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> asyncio.Handle:
        """As asyncio's; what is called is timed."""

        def timed(*given: Any) -> None:
            begun = time.thread_time()
            try:
                callback(*given)
            finally:
                self.longest = max(self.longest, time.thread_time() - begun)

        return super().call_soon(timed, *arguments, context=context)


async def post(app: ASGIApp, path: str, body: bytes, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
    """The status and the body of the app's answer."""
    parts = [body[start : start + PART] for start in range(0, len(body), PART)] or [b""]
    arriving: asyncio.Queue[Message] = asyncio.Queue()
    for number, part in enumerate(parts, 1):
        arriving.put_nowait({"type": "http.request", "body": part, "more_body": number < len(parts)})
    status, answer = 0, bytearray()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        answer.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, arriving.get, send)
    return status, bytes(answer)
