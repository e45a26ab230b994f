"""The server that candidates are sampled from: OpenAI's chat API over HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from unprm.errors import Overloaded, UnprmError
from unprm.openai.choices import Choices
from unprm.openai.client import (
    LONGEST_RETRY_AFTER,
    APIConnectionError,
    APIError,
    APIStatusError,
    OpenAIClient,
    Take,
    encoded,
    read_on,
)
from unprm.openai.models import Json, RawChatResponse, RawModelList, UsageInfo
from unprm.trajectories import TOKEN

from ...admission import Context
from ...service import Service

MAX_CONCURRENT = 64
"""Maximum number of concurrent requests to the upstream for one caller; further ones wait for their turn."""
_TOTAL = re.compile(rb'(?<!\\)"total_tokens"\s*:\s*(\d{1,15})')
"""Tokens in a report; quotes inside a text come after a backslash."""
_REPORT_BYTES = 65_536
"""Bytes at the end of an answer in which a report is looked for."""
_LONG, _MAX_LONG = 2**20, 2
"""Answers of more bytes than this are read two at a time for each caller."""
_PER_REQUEST = 16
"""Maximum number of candidates per request; with log-probabilities, which are long, one."""
_WITH_LOGPROBS = 8
"""An answer may be as long as a request's body; with log-probabilities, this many times as long."""


class UpstreamRefused(UnprmError):
    """The upstream rejects the request, for instance an unknown model or a context that is too long."""

    code = "upstream_refused"


class UpstreamFailed(UnprmError):
    """The upstream did not answer, or not as OpenAI's API does."""

    code = "upstream_failed"


@dataclass(slots=True)
class Sampled:
    """Completions of one prompt, as the upstream sent them, in `size` bytes; `usage`: the tokens of all of them
    together."""

    model: str = ""
    choices: list[Json] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    size: int = 0

    def add(self, other: "Sampled") -> None:
        """Adds the other's completions and tokens."""
        self.model = other.model or self.model
        self.choices += other.choices
        self.size += other.size
        self.add_tokens(other)

    def add_tokens(self, other: "Sampled") -> None:
        """Adds the other's tokens alone."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens

    def __len__(self) -> int:
        return len(self.choices)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def usage(self) -> Json:
        """The token usage in the form of OpenAI's API."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.tokens,
        }


Arrived = Callable[[int, Sampled], None]
"""Gets the completions of each request to the upstream as soon as they have come, and the number of the first."""


class Upstream:
    """One upstream; its address may end in `/v1`. The caller sets the deadline.

    What is sent and answered is encoded and parsed as the service reads texts, and counted in the caller's share of
    memory meanwhile. `context`: of the request that it is done for.
    """

    def __init__(self, url: str, key: str | None, service: Service) -> None:
        self._client = OpenAIClient([url], key, timeout=None, observe=service.metrics.called_upstream)
        self._service = service
        self._choices = Choices()
        self._places: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def sample(
        self, body: Json, count: int, context: Context, brief: bool, apart: bool, arrived: Arrived
    ) -> None:
        """Asks for `count` completions in as many requests as it takes; the upstream may return fewer. `brief`: of
        tokens, only the log-probabilities are kept. `apart`: each completion is requested on its own.

        Raises `UpstreamRefused`, `UpstreamFailed` or `Overloaded`, if all fail.
        """

        async def ask(first: int, size: int) -> Sampled:
            sampled = await self._complete(_reseeded(body, first), size, context, brief)
            arrived(first, sampled)
            return sampled

        size = 1 if apart or body.get("logprobs") else _PER_REQUEST
        results = await self._choices.gather(ask, count, size)
        if isinstance(results[0], Exception) and not any(isinstance(each, Sampled) for each in results):
            with _upstream_errors():
                raise results[0]

    async def models(self, context: Context) -> tuple[bytes, list[Json]]:
        """The upstream's models: its answer in JSON, and what is in it. Raises as `sample`."""
        async with self._taking(context, {}) as take:
            with _upstream_errors():
                answer = await self._client.fetch("/models", None, take)
            return answer, await self._service.read(context, partial(_cards, answer), len(answer))

    async def model(self, name: str, context: Context) -> Json:
        """One of the upstream's models. Raises `HTTPException` if it lists none of this name, and as `sample`."""
        for card in (await self.models(context))[1]:
            if card.get("id") == name:
                return card
        raise HTTPException(404, "the upstream has no model of this name; /v1/models lists those that it has")

    async def relay(self, path: str, body: Json, context: Context) -> AsyncGenerator[bytes, None]:
        """The upstream's answer as it arrives: first its media type, then its parts. Its tokens are charged when it
        ends, however that is. Raises as `sample`."""
        content = await self._service.read(context, partial(encoded, body))
        async with self._place(context, MAX_CONCURRENT):
            with _upstream_errors():
                response = await self._client.stream(path, content)
            used = _Used(len(content), bool(body.get("stream")))
            try:
                async with aclosing(read_on(response)) as parts:
                    yield response.headers.get("content-type", "").encode()
                    async for part in parts:
                        used.read(part)
                        yield part
            finally:
                context.claims.charge(used.tokens)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _place(self, context: Context, limit: int) -> asyncio.Semaphore:
        """One of the caller's `limit` places."""
        return self._places.setdefault((context.claims.share, limit), asyncio.Semaphore(limit))

    @asynccontextmanager
    async def _taking(self, context: Context, body: Json) -> AsyncGenerator[Take, None]:
        """Yields a function that takes memory for the answer to a body until the end of the block. It waits before an
        answer becomes long while two others of the caller are, so that together they find room; raises
        `UpstreamFailed` for one that is too long, and `Overloaded`."""
        limit = self._service.settings.max_body_bytes * (_WITH_LOGPROBS if body.get("logprobs") else 1)
        taken = 0
        async with AsyncExitStack() as turn:
            hold = turn.enter_context(context.claims.holding())

            async def take(size: int) -> None:
                nonlocal taken
                if taken <= _LONG < taken + size:
                    await turn.enter_async_context(self._place(context, _MAX_LONG))
                taken += size
                if taken > limit:
                    raise UpstreamFailed(f"the upstream's answer is longer than {limit} bytes")
                hold(size)

            yield take

    async def _complete(self, body: Json, count: int, context: Context, brief: bool) -> Sampled:
        async with self._place(context, MAX_CONCURRENT):
            asked = body | ({"n": count} if count > 1 else {})
            content = await self._service.read(context, partial(encoded, asked))
            async with self._taking(context, body) as take:
                answer = await self._client.fetch("/chat/completions", content, take)
                return await self._service.read(context, partial(_sampled, answer, count, brief), len(answer))


class _Used:
    """The tokens of an answer that is passed on: as many as it reports at last; without a report, or before it comes, a
    token for every four bytes of the request, and of the answer, or for each event of a stream."""

    def __init__(self, asked: int, streamed: bool) -> None:
        self._asked, self._streamed, self._end = asked, streamed, b""
        self._size = self._events = 0

    def read(self, part: bytes) -> None:
        """Counts a part of the answer."""
        self._size += len(part)
        self._events += part.count(b"data:")
        self._end = (self._end + part)[-_REPORT_BYTES:]

    @property
    def tokens(self) -> int:
        """Of what has been read so far."""
        reported = _TOTAL.findall(self._end)
        return (
            int(reported[-1])
            if reported
            else self._asked // TOKEN + (self._events if self._streamed else self._size // TOKEN)
        )


def _parsed(answer: bytes, keep: Callable[[Json], Json]) -> Any:
    """The value of an answer in JSON, of each object what `keep` returns. Raises `UpstreamFailed`."""
    try:
        if b"\\ud" in answer or b"\\uD" in answer:
            from_json(answer)  # unlike Python's, it refuses half a surrogate pair, which nobody could be sent
        # whatever `keep` does, other threads get a turn when it is called: a long answer takes seconds
        return json.loads(answer.decode(), object_hook=keep)
    except (ValueError, RecursionError):
        raise UpstreamFailed("the upstream's answer is not JSON") from None


def _unchanged(value: Json) -> Json:
    return value


def _logprobs(value: Json) -> Json:
    """Of a token, what a vote needs: the rest is several times as much to keep, and for the garbage collector."""
    return {"logprob": value["logprob"]} if "logprob" in value else value


def _sampled(answer: bytes, count: int, brief: bool) -> Sampled:
    """The completions of an answer, at most as many as were asked for. Raises `UpstreamFailed`."""
    value = _parsed(answer, _logprobs if brief else _unchanged)
    try:
        completion = RawChatResponse.model_validate(value)
    except ValidationError:
        raise UpstreamFailed("the upstream's answer is not a chat completion") from None
    choices, usage = value["choices"][:count], completion.usage or UsageInfo()
    if "timings" in value:  # llama.cpp, which counts the first choice alone: the others' tokens are as their lengths
        first, *others = (len(encoded(choice["message"])) for choice in choices)
        written = usage.completion_tokens
        usage.completion_tokens = written + round(written * sum(others) / first)
    return Sampled(completion.model, choices, usage.prompt_tokens, usage.completion_tokens, len(answer))


def _cards(answer: bytes) -> list[Json]:
    """The models in a list of them. Raises `UpstreamFailed`."""
    try:
        return RawModelList.model_validate(_parsed(answer, _unchanged)).data
    except ValidationError:
        raise UpstreamFailed("the upstream's answer is not a list of models") from None


def _reseeded(body: Json, number: int) -> Json:
    return body | {"seed": body["seed"] + number} if isinstance(body.get("seed"), int) else body


@contextmanager
def _upstream_errors() -> Iterator[None]:
    """Turns the client's errors into those of a gateway, which name no address."""
    try:
        yield
    except APIConnectionError as error:
        raise UpstreamFailed(f"the upstream can't be reached ({error.reason})") from error
    except APIStatusError as error:
        raise _refusal(error) from error
    except APIError as error:
        raise UpstreamFailed(f"the upstream's answer is {error}") from error


def _refusal(error: APIStatusError) -> UnprmError:
    status = error.status
    if status in (429, 503):
        seconds = 1.0 if error.retry_after is None else min(error.retry_after, LONGEST_RETRY_AFTER)
        return Overloaded(f"the upstream is overloaded ({status})", seconds)
    if status in (401, 403):
        return UpstreamFailed(f"the upstream refuses the gateway's key ({status}); it is set by --upstream-key")
    if 400 <= status < 500:
        return UpstreamRefused(f"the upstream answered {status}: {error.message or 'without a reason'}")
    return UpstreamFailed(f"the upstream answered {status}")
