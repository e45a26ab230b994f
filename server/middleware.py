"""Pure ASGI middleware: request ids, logging and metrics for every response, and authorization by keys, which are read
again when they change. A request counts against its caller's share of the server."""

import asyncio
import hashlib
import logging
import re
import string
import uuid
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unprm.fair_shares import Quota

from . import page
from .lease import LEASE, Lease
from .observe import log_request
from .problem_details import CALLER_LEFT, UPSTREAM_SILENT, respond
from .reloading import Reloading
from .service import Service
from .settings import Settings
from .tracing import annotate_request, span

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# ASCII: a key may contain any non-ASCII character, even one that Unicode counts as white space
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64})\s+(?P<key>\S{8,})(\s+(?P<tokens>[1-9]\d{0,17}))?", re.ASCII)
_OPEN = {"/", "/health", "/healthz", "/readyz", "/version", "/docs", "/openapi.json"}
"""Paths that need no key, like all below `page.BELOW`: probes, documentation, the page; nothing of the deployment."""
_METRICS = "/metrics"
_FORWARDED = {"forwarded", "x-forwarded-for"}
"""Headers by which an ingress tells whose request it passes on."""
_STREAMED_BYTES = 2**20
"""Bytes of a stream that the journal keeps."""
_ADMIN = "/admin/"
"""Prefix of the paths that need the admin key; without an admin key, no route exists there."""

_LOCAL = (".localhost", ".local", ".internal")
"""Ends of names that public DNS never has (RFC 6761, RFC 6762, and ICANN's resolution of 2024)."""

CLIENT_GONE = 499
"""Status in logs and metrics of a request whose caller disconnected before the response."""


class Envelope:
    """The one layer around the app: assigns the request id, admits the caller, answers uncaught errors, logs and counts
    the outcome."""

    def __init__(self, app: ASGIApp, service: Service, access: "Access") -> None:
        self.app, self._service, self._access = app, service, access
        service.files += access.files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; errors end here, so that no other layer logs a caller's text."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = Headers(scope=scope)
        sent = headers.get("x-request-id", "")
        request_id = sent if _SANE_ID.fullmatch(sent) else uuid.uuid4().hex
        lease = scope[LEASE] = Lease(self._service.admission, request_id, asyncio.get_running_loop().time())
        status, kept = None, 0
        answer = bytearray()
        journalled = self._service.journal is not None and not scope["path"].startswith(_ADMIN)  # where keys are sent

        async def send_with_id(message: Message) -> None:
            nonlocal status, kept
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                headers["X-Request-ID"], lease.media_type = lease.request_id, headers.get("content-type", "")
                kept = int(headers.get("content-length", _STREAMED_BYTES)) if journalled else 0
            elif len(answer) < kept:
                answer.extend(message.get("body", b"")[: kept - len(answer)])
            await send(message)

        with span("request", "SERVER", headers.get("traceparent", "")):
            try:
                self._access.admit(scope["path"], headers, scope.get("client"), lease)
                await self.app(scope, receive, send_with_id)
            except ClientDisconnect:
                lease.code = UPSTREAM_SILENT if lease.unheard else CALLER_LEFT
            except Exception as error:  # the outermost layer: every caller gets an answer
                if status is not None:  # part of the response is sent: the connection can only be closed
                    raise
                await respond(error, scope)(scope, receive, send_with_id)
            finally:
                self._record(scope, status or CLIENT_GONE, lease, answer, journalled)

    def _record(self, scope: Scope, status: int, lease: Lease, answer: bytearray, journalled: bool) -> None:
        """Counts, traces, logs and, if it is to be, journals the request."""
        seconds = asyncio.get_running_loop().time() - lease.arrived
        # the route's template; one fixed name for all other paths, which are callers' text
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        works, named = lease.seconds > 0 and not route.startswith(_ADMIN), not self._service.settings.open_metrics
        self._service.metrics.count_request(route, status, seconds, lease, works=works, named=named)
        if journalled and self._service.journal is not None:
            self._service.journal.note_request(lease, route, status, seconds, bytes(answer))
        level = logging.DEBUG if route in {*_OPEN, _METRICS} or route.startswith(page.BELOW) else logging.INFO
        annotate_request(log_request(scope["method"], route, status, seconds, lease, level))


class KeysInvalid(ValueError):
    """The key file can't be used; the message says where and contains no key."""


class Caller(NamedTuple):
    """Whose key was sent; `quota`: of tokens, if there is one."""

    name: str = ""
    quota: Quota | None = None


class Keys:
    """`callers` by the digests of their keys, none if no key is needed; `key` is that of a caller without a name.

    `file` has a line `NAME KEY [TOKENS]` for each caller, TOKENS being those that it may use in a minute; blank lines
    and those that begin with # are ignored. It is checked at every request, so that rewriting it changes the keys. If a
    new version is invalid, that is logged and the old keys stay; if the first is, raises `KeysInvalid`.
    """

    def __init__(self, key: SecretStr | None, file: Path | None) -> None:
        # by digests, so that the time of a look-up tells of no key
        self._own = {} if key is None else {_digest(key.get_secret_value().encode()): Caller()}
        self.callers = self._own
        self.files = [] if file is None else [Reloading("keys", partial(self._read, file), file)]

    def caller(self, sent: bytes) -> Caller | None:
        """The caller with this key, None if there is none."""
        for file in self.files:
            file.refresh()
        return self.callers.get(_digest(sent))

    def _read(self, file: Path) -> None:
        """Puts the keys of the file in place; a quota that stays the same goes on. Raises `KeysInvalid`."""
        try:
            lines = file.read_text("utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise KeysInvalid(f"the key file {file} can't be read ({type(error).__name__})") from None
        quotas = {(each.name, each.quota.per_minute): each.quota for each in self.callers.values() if each.quota}
        callers: dict[bytes, Caller] = {}
        names = set[str]()
        for number, line in enumerate((line.strip(string.whitespace) for line in lines), 1):
            if not line or line.startswith("#"):
                continue
            entry = _LINE.fullmatch(line)
            if entry is None:
                raise KeysInvalid(f"{file}, line {number}: expected NAME KEY [TOKENS], a key of at least 8 characters")
            name, key, tokens = entry["name"], _digest(entry["key"].encode()), int(entry["tokens"] or 0)
            if key in callers or name in names:
                raise KeysInvalid(f"{file}, line {number}: the name or the key is a duplicate")
            callers[key] = Caller(name, (quotas.get((name, tokens)) or Quota(tokens)) if tokens else None)
            names.add(name)
        if not callers:
            raise KeysInvalid(f"the key file {file} has no keys: nobody could use the server")
        self.callers = self._own | callers


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Access:
    """Admits callers with a known key; without keys, everybody here. `/admin/` has a key of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = Keys(settings.api_key, settings.api_keys_file)
        self._admin_keys = Keys(settings.admin_key, None)
        self.files = self._keys.files

    def admit(self, path: str, headers: Headers, client: tuple[str, int] | None, lease: Lease) -> None:
        """Notes whose request it is, before any of the body is read; `client`: the address it came from.

        Raises `HTTPException`: 401 without a known key; 403 where no key is needed, if a browser may have been led here
        by a site that has nothing to do with the server.
        """
        if path in _OPEN or path.startswith(page.BELOW):
            return
        if path == _METRICS and self._settings.open_metrics and _FORWARDED.isdisjoint(headers.keys()):
            return
        keys = self._admin_keys if path.startswith(_ADMIN) else self._keys
        if keys.callers:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            # Anthropic's clients send the other header
            key = token.strip(" \t") if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            caller = keys.caller(key.encode("latin-1"))
            if caller is None:
                detail = "send a key of the server as `Authorization: Bearer KEY`"
                raise HTTPException(401, detail, {"WWW-Authenticate": "Bearer"})
        else:
            caller = Caller()
            sites = [f"//{headers['host']}"] if "host" in headers else []
            if not all(_is_local(site, self._settings.host) for site in (*sites, *headers.getlist("origin"))):
                detail = (
                    "without a key, the server answers only under its address or a local name, and pages from there"
                )
                raise HTTPException(403, f"{detail}: set a key (--api-key) to use another name")
        lease.caller, lease.quota = caller
        lease.share = share_of(caller.name, client)
        lease.scope = "" if self._settings.share_caches else caller.name


def _is_local(site: str, hosts: Sequence[str]) -> bool:
    """Whether no stranger can own the name in a URL: an address, one that public DNS has not, or the server's own.

    Whoever owns a name can let it point here, and pages under it are then of the same origin (DNS rebinding).
    """
    try:
        name = (urlsplit(site).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        ip_address(name)
    except ValueError:
        return name in hosts or (name != "" and ("." not in name or name.endswith(_LOCAL)))
    return True


def share_of(caller: str, client: tuple[str, int] | None) -> str:
    """The share that a request counts against: the named caller's; without a name, that of its client address.

    Only the first 64 bits of an IPv6 address count: its owner chooses the others.
    """
    if caller or client is None:
        return caller
    try:
        address = ip_address(client[0])
    except ValueError:  # a socket without an address
        return ""
    if isinstance(address, IPv6Address):
        return f"{address.ipv4_mapped}/32" if address.ipv4_mapped else f"{address.exploded[:19]}::/64"
    return f"{address}/32"  # with a character that no caller's name has
