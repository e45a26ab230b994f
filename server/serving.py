"""The process: it serves one or several models until a signal, by uvicorn, which finishes running requests before it
stops."""

import asyncio
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from unprm.errors import ModelInvalid, RecordInvalid
from unprm.models.options import LoadModelRequest
from unprm.types import Engine

from .app import create_app
from .journal import JournalUnusable
from .middleware import KeysInvalid
from .models.load import load
from .observe import Metrics, configure_logs
from .reloading import Reloading
from .service import Service
from .settings import NONE, Settings
from .slow_connections import BoundedProtocol, serve
from .tracing import TracingUnavailable, configure_traces

_EVERY_IPV4 = str(ipaddress.IPv4Address(0))
logger = logging.getLogger(__name__)

LAST_SECONDS = 5
"""Time for callers to read their responses once all of them are ready."""
_SWITCH_SECONDS = 0.0005
"""Python's thread switch interval, a tenth of the default. The model's thread releases the interpreter for each of its
many operations; with the default, under steady requests, it would wait ten times as long to get it back each time."""
_FILES = 65_536
"""Open files that are enough."""


class CertificateInvalid(Exception):
    """The certificate or its key can't be used for HTTPS."""


class AddressUnusable(Exception):
    """The server can't listen at its address, for example because the port is in use."""


def run(settings: Settings) -> int:
    """Returns the exit status: 0 after a signal; 2 if keys, a calibration, an address or a model can't be used; 1 if
    loading fails otherwise, or the model hangs or fails for good. If it is not 0, the last line on stderr says why."""
    configure_logs(settings.log_level, settings.log_format)
    sys.setswitchinterval(_SWITCH_SECONDS)
    _open_more_files()
    if settings.otlp_endpoint:
        try:
            configure_traces(settings.otlp_endpoint)
        except TracingUnavailable as error:
            print(error, file=sys.stderr)
            return 2

    metrics = Metrics()

    def open_model(request: LoadModelRequest, first: bool = False) -> Engine:
        """`first`: without this model the server ends."""
        try:
            return load(settings, request, metrics.count_judge_call)
        except ModelInvalid as error:
            message = f"the model can't be served: {error}"
            if first:
                server.give_up(2, message)
            else:
                logger.error(message)
            raise
        except BaseException as error:  # whatever ends the load, even a signal, ends the server with its reason
            if first:
                server.give_up(1, f"the model could not be loaded: {type(error).__name__}: {error}")
            raise

    def lose() -> None:
        server.give_up(1, "the model is lost: it hangs or always fails; see the lines above")

    models = {name: partial(open_model, request, first=True) for name, request in settings.models().items()}
    try:
        server = DrainingServer(create_app(settings, models, open_model, lose, metrics), settings)
        server.run()
    except (KeysInvalid, JournalUnusable, RecordInvalid, CertificateInvalid, AddressUnusable) as error:
        print(error, file=sys.stderr)
        return 2
    if server.reason:
        logger.error("ended with status %d: %s", server.status, server.reason)
    return server.status


class DrainingServer(uvicorn.Server):
    """On SIGTERM or SIGINT it drains, then stops. While draining it listens, so that callers and probes get a response.

    A second SIGINT ends it at once. `status` is the process's exit status, and `reason` says in a sentence why it is
    not 0. Raises `CertificateInvalid`, and `AddressUnusable` when it is run.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        if settings.ssl_keyfile is not None and settings.ssl_certfile is None:
            raise CertificateInvalid("--ssl-keyfile goes with --ssl-certfile")
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_seconds,  # type: ignore[arg-type] # for the event loop's timer
            timeout_graceful_shutdown=LAST_SECONDS,
            ssl_certfile=settings.ssl_certfile,
            ssl_keyfile=settings.ssl_keyfile,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise CertificateInvalid(f"the certificate or its key can't be used ({error})") from None
        super().__init__(config)
        self._certificate: Reloading | None = None
        if (context := config.ssl) is not None and (file := settings.ssl_certfile) is not None:
            key = settings.ssl_keyfile  # None if it is in the certificate's file

            def load_certificate() -> None:  # for new connections
                # a context that is given a certificate without its key has none afterwards
                for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
                    each.load_cert_chain(file, key)

            self._certificate = Reloading("certificate", load_certificate, *filter(None, (file, key)))
        self._hosts, self._port, self._settings = settings.host, settings.port, settings
        self.status, self.reason = 0, ""
        self._service: Service = app.state.service
        self._service.files += filter(None, [self._certificate])
        self._open = not (settings.api_key or settings.api_keys_file or all(map(_is_loopback, settings.host)))
        self._refused = BoundedProtocol.refused

    def give_up(self, status: int, reason: str) -> None:
        """Ends a server that can't serve; the process exits with this status. May be called from any thread."""
        self.status, self.reason, self.should_exit = status, reason, True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, at all addresses. Raises `AddressUnusable`."""
        places = listening(self._hosts, self._port)
        await super().startup([])
        # uvicorn has no option for the time of a handshake
        self.servers = [await serve(self.config, self.server_state, self.lifespan.state, place) for place in places]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn's, but the process ends with its own status instead of by the signal."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def main_loop(self) -> None:
        """Serves until asked to stop, then drains."""
        port = self.servers[0].sockets[0].getsockname()[1]
        address = page_address(self._hosts[0], port, secure=self.config.is_ssl)
        logger.info("starts", extra={"fields": summary(self._settings)})
        logger.info("the page is at %s for browsers on this machine; the model is still loading", address)
        announcement = asyncio.create_task(self._announce(address))
        await super().main_loop()
        announcement.cancel()
        drain = asyncio.create_task(self._service.drain())
        while not (drain.done() or self.force_exit):
            await asyncio.wait({drain}, timeout=0.1)
        drain.cancel()

    async def on_tick(self, counter: int) -> bool:
        """As uvicorn's, ten times a second; every second it looks for a renewed certificate, every ten seconds it logs
        whether connections could not be accepted."""
        if self._certificate is not None and counter % 10 == 0:
            self._certificate.refresh()
        if counter % 100 == 0:
            self._report_shortage()
        return await super().on_tick(counter)

    def _report_shortage(self) -> None:
        refused, self._refused = BoundedProtocol.refused - self._refused, BoundedProtocol.refused
        if refused:
            logger.warning("%d connections were refused: their addresses already had their share", refused)
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            logger.error("no more connections can be accepted: %s", error.strerror)

    async def _announce(self, address: str) -> None:
        """Says, once the models are loaded, whether the server is open to others; last of all, where it is ready."""
        if not await self._service.models.loaded():
            return
        if self._open:
            logger.warning(
                "anyone who can reach %s can use the server: it has no key (--api-key, --api-keys-file)",
                ", ".join(self._hosts),
            )
        names = ", ".join(self._service.models.names) or "no model"
        base = f"{address}v1 for OpenAI's clients" if self._settings.upstream_url else address.removesuffix("/")
        logger.info("ready: %s serves %s; base URL of requests: %s", address, names, base)


def summary(settings: Settings) -> dict[str, str]:
    """What is on, without keys, and without what of an URL may be one."""
    keys = ["--api-key"] * (settings.api_key is not None) + [str(settings.api_keys_file)] * bool(settings.api_keys_file)
    upstreams = [
        f"{name} at {urlsplit(each.url).netloc.rpartition('@')[2]}" for name, each in settings.upstreams().items()
    ]
    return {
        "models": ", ".join(" + ".join(filter(None, (each.model, each.adapter))) for each in settings.models().values())
        or NONE,
        "keys": ", ".join(keys) or NONE,
        "upstreams": ", ".join(upstreams) or NONE,
        "calibration": str(settings.vote_calibration or NONE),
        "journal": str(settings.journal or NONE),
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of the hosts; `::` takes IPv4 too, unless `0.0.0.0` is listed. Port 0 is one
    that is free for the first. Raises `AddressUnusable`."""
    sockets: dict[str, socket.socket] = {}
    for host in hosts:
        try:
            for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                if (address := str(place[0])) in sockets:
                    continue
                dual = address == "::" and _EVERY_IPV4 not in hosts and socket.has_dualstack_ipv6()
                sockets[address] = opened = socket.create_server(place, family=family, dualstack_ipv6=dual)
                port = opened.getsockname()[1]
        except OSError as error:
            for each in sockets.values():
                each.close()
            reason = str(error.strerror or error).partition(" (")[0]  # the rest repeats the address
            raise AddressUnusable(
                f"the server can't listen at {host}, port {port}: {reason}; choose others by --host and --port"
            ) from None
    return list(sockets.values())


def page_address(host: str, port: int, *, secure: bool) -> str:
    """URL of the page for a browser on this machine; localhost if the server listens on every network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host
    else:
        name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"{'https' if secure else 'http'}://{name}:{port}/"


def _open_more_files() -> None:
    """Raises the soft limit of open files, often 1,024, towards the hard one: each connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
