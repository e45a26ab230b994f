"""HTTP/1.1 as uvicorn reads it, bounded where it reads for ever: a head that doesn't end, trailers that don't."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS, HEAD_BYTES = 10.0, 65_536
"""Time for a request's line and headers to arrive, from the connection's start or the answer before, and their size;
the size also of what else is no part of a body: trailers, and the frames of its chunks."""


class BoundedProtocol(HttpToolsProtocol):
    """Hangs up on who sends the head of a request too slowly, or without end, or trailers without end. Trailers are
    read by nobody and not kept."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bytes = 0
        """Received since the request began, or the last of its body came."""
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is expected."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """More of a request; the bound of its body is the application's."""
        self._bytes += len(data)
        super().data_received(data)
        if self._bytes > HEAD_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        """A head comes."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; uvicorn would add a trailer to the headers that the application has already."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A body comes, if there is one."""
        self._in_head, self._bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body, unless the answer is out."""
        if not self._waiting:
            self._bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """The next head is expected."""
        super().on_response_complete()
        self._expect()

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing is expected any more."""
        super().connection_lost(error)
        if self._late is not None:
            self._late.cancel()

    @property
    def _waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _expect(self) -> None:
        self._bytes = 0
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._waiting:
            self.transport.close()
