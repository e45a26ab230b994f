"""The bounds on a connection that no ASGI application can set, because it learns of a request only after its head, and
of no answer whether it is read: on TLS handshakes, request heads and trailers that don't end, on answers that aren't
read, and on the connections of one address. They are uvicorn's HTTP/1.1, in a subclass.
"""

import asyncio
import resource
from functools import cache
from socket import socket
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from unprm.errors import Overloaded
from unprm.fair_shares import Capacity, Reservation

from .middleware import share_of

HEAD_SECONDS, HEAD_BYTES = 10.0, 65_536
"""Time for a request's line and headers to arrive, from the connection's start or their own after a response, and their
size. The size also limits what else is not body: trailers and the framing of chunks."""
WRITE_SECONDS = 30.0
"""Time for a caller to read on, once as much of an answer waits as the connection takes; then it is cut off."""

MAX_CONNECTIONS = 8192
"""Maximum connections of a process, however many files it may open."""


@cache
def connections() -> Capacity:
    """The connections that the process has room for: half of the files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Capacity(min(files // 2, MAX_CONNECTIONS), "connections")


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection if a request's head is too slow or too large, its trailers too large, or its answer not read.
    Trailers are discarded. An address has its share of the connections; `refused` counts those beyond it."""

    refused = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bytes = 0
        """Bytes received since the request began, or since its head or the latest part of its body."""
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts waiting for a request head, if the address has room for one more connection."""
        super().connection_made(transport)
        self._place = Reservation(connections(), share_of("", self.client))
        try:
            self._place.take(1)
        except Overloaded:
            BoundedProtocol.refused += 1
            transport.abort()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        """Receives more of a request; the application limits the size of its body."""
        self._bytes += len(data)
        if self._late is None and self._waiting:
            self._expect()
        super().data_received(data)
        if self._bytes > HEAD_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Passes on headers, but not trailers, which uvicorn would add to the application's headers."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head ends; its body follows, if there is one."""
        self._in_head, self._bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receives a part of the body, which counts towards the size limit only after the response."""
        if not self._waiting:
            self._bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Uvicorn then waits for the next request, of which a part may be here."""
        super().on_response_complete()
        self._bytes = 0
        _cancel(self._late)
        self._late = None
        if self._in_head:
            self._expect()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._place.set(0)
        _cancel(self._late)
        _cancel(self._stuck)

    def pause_writing(self) -> None:
        """As much of an answer waits as the connection takes."""
        super().pause_writing()
        self._cut_off_later()

    def resume_writing(self) -> None:
        """The caller reads on."""
        super().resume_writing()
        if not self.transport.is_closing():  # else the rest has to be read, too
            _cancel(self._stuck)

    @property
    def _waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _expect(self) -> None:
        _cancel(self._late)
        self._late = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._waiting:
            self.transport.close()  # after what is still to be written
            self._cut_off_later()

    def _cut_off_later(self) -> None:
        _cancel(self._stuck)
        self._stuck = self.loop.call_later(WRITE_SECONDS, self.transport.abort)


async def serve(config: Config, state: ServerState, app_state: dict[str, Any], place: socket) -> asyncio.Server:
    """Listens, as uvicorn does, and hangs up on who does not end a TLS handshake in time."""
    return await asyncio.get_running_loop().create_server(
        lambda: BoundedProtocol(config, state, app_state),
        sock=place,
        ssl=config.ssl,
        backlog=config.backlog,
        ssl_handshake_timeout=HEAD_SECONDS if config.ssl else None,
    )


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
