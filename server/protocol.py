"""HTTP/1.1 as uvicorn reads it, bounded where it waits for ever: a head that doesn't end."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS, HEAD_BYTES = 10.0, 65_536
"""Time for a request's line and headers to arrive, from the connection's start or the answer before, and their size."""


class BoundedProtocol(HttpToolsProtocol):
    """Hangs up on who sends the head of a request too slowly, or without end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A head is expected."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """More of a head, or of a body, whose bound is the application's."""
        if self._waiting:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._waiting and self._head_bytes > HEAD_BYTES:
            self.transport.close()

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
        self._head_bytes = 0
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._waiting:
            self.transport.close()
