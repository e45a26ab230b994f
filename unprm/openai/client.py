"""Client of servers that speak OpenAI's HTTP API: `vllm serve`, or a vendor's.

Bodies are JSON as the API defines it; fields that only some servers know pass in both directions.
"""

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import httpx
from pydantic_core import from_json

from unprm.openai.completion import Choices, Samples
from unprm.openai.errors import (
    APIConnectionError,
    APIError,
    APIResponseError,
    APIStatusError,
    ErrorFields,
)
from unprm.openai.facts import Facts
from unprm.retries import Attempts, retry_after

logger = logging.getLogger(__name__)

Observe = Callable[[float, str], None]
"""Gets the seconds of an attempt, to the end of its answer, and its outcome: `ok`, `4xx` and the like, `unreachable`,
`unreadable`, or `cancelled` by its caller."""

CONNECT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 60.0
"""Maximum seconds to wait for a server's `Retry-After`."""
PAUSE = 5.0
"""Seconds that a server rests after it did not answer; doubled while it stays dead, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE = 60.0
MAX_BYTES = 2**28
"""Maximum bytes of an answer."""
NEUTRAL: Mapping[str, float] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
"""Sampling settings that leave a model's distribution as it is. What a request leaves out, vLLM and SGLang take from
the model's `generation_config.json`, and llama.cpp, which says `repeat_penalty`, from its command line."""
_MAX_ERROR_BYTES = 2**16


def ignore(seconds: float, outcome: str) -> None:
    """Observes nothing."""


@dataclass(slots=True)
class _Server:
    """One server; it is avoided until `rests_until`, a time of the client's clock."""

    url: str
    base: httpx.URL
    failures: int = 0
    rests_until: float = 0.0


class OpenAIClient:
    """Client of one server, or of several of the same model, within one event loop.

    `urls` as in `base_url`. `api_key`: sent as a bearer token, to Azure's older addresses as `api-key`, too.
    `timeout`: seconds without a byte after which a server counts as dead; None: no limit. `attempts`: how often a
    request is sent at most, if a server does not answer or its status is one that may pass. `max_bytes` as `MAX_BYTES`.
    `observe` is called after every attempt. `sleep` and `clock`: how it waits, and by which seconds a server's rest is
    counted.

    A request goes to the server that its `affinity` points to (rendezvous hashing: adding or removing a server moves no
    more than its share), so that cached prefixes are reused; while that one rests, to the next. A cancelled call closes
    its connection, and the server stops its work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str | None,
        *,
        timeout: float | None,
        attempts: int = 1,
        max_bytes: int = MAX_BYTES,
        observe: Observe = ignore,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempts, self._max_bytes = attempts, max_bytes
        self._observe, self._sleep, self._clock = observe, sleep, clock
        self._servers = [_Server(url, base_url(url)) for url in urls]
        self.facts = Facts(clock)
        self._slots: int | None = None  # 0: not reported
        self._queue: AbstractAsyncContextManager[Any] = nullcontext()
        self._asking = asyncio.Lock()
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if api_key and any("api-version" in server.base.params for server in self._servers):
            headers["api-key"] = api_key
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def post(self, path: str, body: Mapping[str, Any], affinity: str = "") -> Any:
        """The JSON that is answered to a body at a path below the base URL. Raises an `APIError`."""
        content, attempts = encoded(body), Attempts(self._attempts)
        while True:
            try:
                return _parsed(await self.fetch(path, content, affinity=affinity))
            except APIError as error:
                error.attempts = attempts.failed + 1
                asked = min(LONGEST_RETRY_AFTER, error.retry_after or 0.0)
                wait = attempts.pause(error, again=error.retryable, retry_after=asked)
            await self._sleep(wait)

    async def sample(self, path: str, body: Mapping[str, Any], affinity: str = "") -> Any:
        """As `post`, for samples from the model's own distribution: `NEUTRAL` is sent, too, where the body does not say
        otherwise.

        No more requests are in flight than there are `slots`: what waits here, for as long as it takes, does not time
        out. Fields that the answer to a refused request names are left out in another try. If that one is accepted,
        it is a fact about the server, logged once it is known. An answer that names all fields repeats the request and
        blames none.
        """
        neutral = {name: value for name, value in NEUTRAL.items() if not self.facts.get(f"no {name}")}
        begun = neutral
        await self.slots()
        while True:
            sent = {**neutral, **body}
            try:
                async with self._queue:
                    answer = await self.post(path, sent, affinity)
            except APIStatusError as error:
                unnamed = {name for name in sent if not error.refuses(name)}
                kept = {name: value for name, value in neutral.items() if name in unnamed}
                if kept == neutral or not unnamed:
                    raise
                neutral = kept
                continue
            if refused := [name for name in begun if name not in neutral and self.facts.show(f"no {name}")]:
                logger.warning(
                    "the server refuses %s, so its own values are in force; where that is vLLM, start it with "
                    "--generation-config vllm",
                    ", ".join(refused),
                )
            return answer

    async def slots(self) -> int | None:
        """How many completions the servers write at a time, all together; None unless each reports it, as llama.cpp
        does. They are asked once."""
        async with self._asking:
            if self._slots is None:
                found = [await self._slots_of(server) for server in self._servers]
                if None not in found:
                    self._slots = sum(filter(None, found)) if all(found) else 0
                    self._queue = asyncio.Semaphore(self._slots) if self._slots else nullcontext()
        return self._slots or None

    async def _slots_of(self, server: _Server) -> int | None:
        """What llama.cpp says of itself; 0 from another server, None if it can't be reached."""
        try:
            root = server.base.path.removesuffix("/v1")
            async with self._http.stream("GET", server.base.copy_with(path=f"{root}/props")) as response:
                return max(0, int(from_json(await _read(response, self._max_bytes))["total_slots"]))
        except httpx.HTTPError:
            return None
        except (APIResponseError, ValueError, KeyError, TypeError):
            return 0

    async def fetch(self, path: str, body: bytes, affinity: str = "") -> bytes:
        """The bytes that are answered to a body in JSON, in one attempt. Raises an `APIError`."""
        async with self._answer(path, body, affinity, self._observe) as response:
            return await _read(response, self._max_bytes)

    async def parts(self, path: str, body: bytes | None, observe: Observe | None = None) -> AsyncGenerator[bytes, None]:
        """As `fetch`, but yields the answer's media type, and then its body as it arrives; without a body, what is at
        the path. `observe` is called in place of the client's."""
        async with self._answer(path, body, "", observe or self._observe) as response:
            yield response.headers.get("content-type", "").encode()
            async for part in response.aiter_bytes():
                yield part

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def _answer(
        self, path: str, body: bytes | None, affinity: str, observe: Observe
    ) -> AsyncGenerator[httpx.Response, None]:
        """The response with status 200, its body unread. Raises an `APIError`."""
        server = self._pick(affinity)
        method, headers = ("GET", {}) if body is None else ("POST", {"Content-Type": "application/json"})
        with self._connection_errors(server, observe):
            url = server.base.copy_with(path=f"{server.base.path}{path}")
            async with self._http.stream(method, url, content=body, headers=headers) as response:
                server.failures, server.rests_until = 0, 0.0
                if response.status_code != 200:
                    try:
                        content = await _read(response, _MAX_ERROR_BYTES)
                    except APIResponseError:
                        content = b""
                    asked = str(url.copy_with(query=None))
                    fields = ErrorFields.parse(content)
                    raise APIStatusError(asked, response.status_code, retry_after(response.headers), fields)
                yield response

    @contextmanager
    def _connection_errors(self, server: _Server, observe: Observe) -> Iterator[None]:
        """Observes an attempt. Lets the server rest after an error of httpx, which becomes `APIConnectionError`."""
        begun, outcome = self._clock(), "cancelled"
        try:
            yield
            outcome = "ok"
        except APIStatusError as error:
            outcome = f"{error.status // 100}xx"
            raise
        except APIResponseError:
            outcome = "unreadable"
            raise
        except httpx.HTTPError as error:
            outcome = "unreachable"
            server.failures += 1
            doublings = min(server.failures - 1, 10)  # a server may stay dead for ever
            pause = min(LONGEST_PAUSE, PAUSE * 2**doublings)
            server.rests_until = self._clock() + pause
            raise APIConnectionError(server.url, type(error).__name__) from error
        finally:
            observe(self._clock() - begun, outcome)

    def _pick(self, affinity: str) -> _Server:
        """The server nearest to the affinity among those not resting; if all rest, the first to be back."""
        now = self._clock()
        if awake := [server for server in self._servers if server.rests_until <= now]:
            return min(awake, key=lambda server: distance(affinity, server.url))
        return min(self._servers, key=lambda server: server.rests_until)


class Completions:
    """Asks a server for completions at `path`, in as many requests as it takes. A request waits for one of `places`."""

    def __init__(self, client: OpenAIClient, path: str, places: AbstractAsyncContextManager[Any] | None = None) -> None:
        self._client, self._path = client, path
        self._places = places or nullcontext()
        self._choices = Choices(client.facts)

    async def sample(self, body: Mapping[str, Any], count: int, seed: int | None = None, affinity: str = "") -> Samples:
        """`count` completions, or fewer if the server returns none any more, those of each answer in the order of
        `index`. `seed`: of the first one; each further one has the next number. `affinity` as in `OpenAIClient`.

        Raises the first `APIError` of a request.
        """

        async def ask(first: int, size: int) -> Samples:
            fields = dict(body)
            if size > 1:
                fields["n"] = size
            if seed is not None:
                fields["seed"] = seed + first
            async with self._places:
                answer = Samples.read(await self._client.sample(self._path, fields, affinity))
            answer.completions = sorted(answer.completions, key=attrgetter("index"))[:size]
            return answer

        total = Samples()
        for part in await self._choices.gather(ask, count):
            if isinstance(part, Exception):
                raise part
            total.add(part)
        return total

    async def close(self) -> None:
        await self._client.close()


def base_url(url: str) -> httpx.URL:
    """The base URL that clients of OpenAI's API append paths to: as given; a bare host's is `/v1`, and the address of
    an endpoint is that of its base."""
    given = httpx.URL(url)
    base = re.sub(r"(/chat)?/completions$", "", given.path.rstrip("/"))
    return given.copy_with(path=base or "/v1")


def distance(affinity: str, url: str) -> bytes:
    """By which servers are compared for an affinity; the least is its own (Thaler and Ravishankar, 1998)."""
    return hashlib.blake2b(f"{affinity}\n{url}".encode()).digest()


def encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def _read(response: httpx.Response, limit: int) -> bytes:
    """A response's body. Raises `APIResponseError` if it has more than `limit` bytes."""
    content = bytearray()
    async for part in response.aiter_bytes():
        if len(content) + len(part) > limit:
            raise APIResponseError(f"longer than {limit} bytes")
        content += part
    return bytes(content)


def _parsed(content: bytes) -> Any:
    """The value of an answer in JSON; raises `APIResponseError`."""
    try:
        return from_json(content)
    except ValueError:
        raise APIResponseError("not JSON") from None
