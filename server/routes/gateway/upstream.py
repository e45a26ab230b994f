"""The server that candidates are sampled from: OpenAI's chat API over HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from unprm.engines.judge.chat import Refused, cost_of
from unprm.engines.judge.selector import Selector
from unprm.errors import UnprmError, UpstreamBusy, UpstreamFailed, UpstreamRefused, UpstreamUnavailable
from unprm.openai.client import LONGEST_RETRY_AFTER, Observe, OpenAIClient, base_url, encoded
from unprm.openai.completion import Choices, Completion, Samples, TokenUsage, is_json
from unprm.openai.errors import APIConnectionError, APIResponseError, APIStatusError
from unprm.openai.models import Json, JsonList
from unprm.openai.stream import CompletionStream
from unprm.types import Usage

from ...lease import Lease
from ...service import Service
from ...settings import UpstreamOptions
from ...tracing import annotate_generation, span

SLOW, _WHOLE = 10.0, 6
"""Seconds without a byte of a stream after which a call is slow, and how many times as long an answer may take that
comes as a whole."""
MAX_CONCURRENT = 64
"""Maximum number of concurrent requests to the upstream for one caller; further ones wait for their turn."""
_LONG, _MAX_LONG = 2**20, 2
"""Answers of more bytes than this are read two at a time for each caller."""
_PER_REQUEST = 16
"""Maximum number of candidates per request; with log-probabilities, which are long, one."""
_STREAMED: Json = {"stream": True, "stream_options": {"include_usage": True}}
_NAMES_OF_LIMIT = ("max_tokens", "max_completion_tokens")
"""The names that upstreams have for the maximum number of tokens."""
_LEAST_LIMIT = 64
_BYTES = 4
"""Bytes that count as one token where the upstream tells no number of them."""
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_MOST_TOKENS = 131_072
"""Tokens that are reserved for a completion at most: hardly any model writes more, whatever limit a request names."""
_KEPT = {400, 404, 413, 422}
"""Statuses of refusals that are answered as they are; 400 for others, which are about the gateway's own access."""
_WITH_LOGPROBS = 8
"""An answer may be as long as a request's body; with log-probabilities, this many times as long."""
_TOTAL = re.compile(rb'(?<!\\)"total_tokens"\s*:\s*(\d{1,15})')
"""Tokens in a report; quotes inside a text come after a backslash."""
_REPORT_BYTES = 65_536
"""Bytes at the end of an answer in which a report is looked for."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Receives completions, by the number of the first.

    `arrive`: gets completions at their end, and their cost with them or later. `show`: gets a text piece by piece, if
    the upstream streams it. `keeps_tokens`: whether tokens are kept whole, with text and alternatives, not only their
    log-probabilities.
    """

    arrive: Callable[[int, Samples], None]
    show: Callable[[int, str], None] | None = None
    keeps_tokens: bool = False


class Upstream:
    """One upstream, whose model replaces a request's. The caller sets the deadline.

    `slow`: seconds without a byte after which a call counts as slow. What is sent and answered is encoded and parsed as
    the service reads texts, and counted in the caller's share of memory meanwhile. `lease`: of the request that it is
    done for.
    """

    def __init__(self, name: str, options: UpstreamOptions, service: Service, slow: float = SLOW) -> None:
        self._client = OpenAIClient([options.url], options.key, timeout=None)
        self._observe: Observe = partial(service.metrics.count_upstream_call, name)
        url = base_url(options.url)
        service.metrics.expect_upstream(name, f"{url.scheme}://{url.netloc.decode()}{url.path}")
        self._name, self._slow = name, slow
        self._model = {} if options.model is None else {"model": options.model}
        self._service = service
        self._facts = self._client.facts
        self._choices = Choices(self._facts)
        written, most = service.settings.judge_readout == "chain", service.settings.judge_tokens
        self.selector = Selector(self._compare, written=written, max_tokens=most, tested=False)
        self._places: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def sample(self, body: Json, count: int, lease: Lease, listener: Listener) -> None:
        """Asks for `count` completions in as many requests as it takes; the upstream may return fewer. For a listener
        to pieces each is requested on its own, and streamed unless it has log-probabilities.

        Raises `UpstreamRefused`, `UpstreamFailed` or `Overloaded`, if all fail.
        """
        apart = listener.show is not None or bool(body.get("logprobs"))

        async def ask(first: int, size: int) -> Samples:
            request = body | self._model | ({"n": size} if size > 1 else {})
            if isinstance(seed := body.get("seed"), int):
                request["seed"] = seed + first
            with span("chat", "CLIENT"):
                sampled = await self._ask(request, first, size, lease, listener)
                annotate_generation(request.get("model", ""), sampled, sampled.id)
                return sampled

        results = await self._choices.gather(ask, count, 1 if apart else _PER_REQUEST)
        if isinstance(results[0], Exception) and not any(isinstance(each, Samples) for each in results):
            with _upstream_errors():
                raise results[0]

    async def _compare(
        self, messages: JsonList, *, likeliest: int, lease: Lease, **sampling: Any
    ) -> tuple[list[Completion], Usage]:
        """The reply to a comparison of answers, as a judge's. Raises `Refused`, `UpstreamFailed` and `Overloaded`."""
        body: Json = {"messages": messages} | sampling
        if likeliest:
            body |= {"logprobs": True, "top_logprobs": likeliest}
        replies = Samples()
        listener = Listener(lambda _, sampled: replies.add(sampled), keeps_tokens=True)
        try:
            await self.sample(body, 1, lease, listener)
        except UpstreamRefused as error:
            raise Refused(str(error)) from None
        return replies.completions, cost_of(replies)

    async def _ask(self, body: Json, first: int, count: int, lease: Lease, listener: Listener) -> Samples:
        """The completions of one request. Fields added to it that the upstream refuses are left out in another try, and
        a limit of tokens is replaced. Raises an `APIError`."""
        # several are streamed, so that each comes as soon as it is written
        streamed = count > 1 or (listener.show is not None and not body.get("logprobs"))
        stream: Json = {
            name: value for name, value in _STREAMED.items() if streamed and not self._facts.get(f"no {name}")
        }
        limits = iter([{}]) if body.keys() & {*_NAMES_OF_LIMIT} else self._limits()
        limit = next(limits)
        while True:
            try:
                sampled = await self._complete(body | stream | limit, first, count, lease, listener)
                if _NAMES_OF_LIMIT[1] in limit:
                    self._facts.show("limits", _NAMES_OF_LIMIT[::-1])
                if count > 1 or len(sampled) > 0 or not stream:
                    return sampled
                stream = {}
            except APIStatusError as error:
                if any(map(error.refuses, limit)) and (smaller := next(limits, None)):
                    limit = smaller
                    continue
                refused = {*_STREAMED} if error.refuses("stream") else {*filter(error.refuses, stream)}
                if not refused & stream.keys():
                    raise
                for name in refused:
                    self._facts.show(f"no {name}")
                stream = {name: value for name, value in stream.items() if name not in refused}

    def _limits(self) -> Iterator[Json]:
        """The gateway's limit of tokens, in the forms in which it is tried: by its other name, then smaller, for there
        may be less room after a long prompt."""
        most = self._service.settings.gateway_max_tokens
        names = self._facts.get("limits", _NAMES_OF_LIMIT)
        yield {names[0]: most}
        yield {names[1]: most}
        while (most := most // 4) >= _LEAST_LIMIT:
            yield {names[0]: most}

    async def models(self, lease: Lease) -> list[Json]:
        """The upstream's models. Raises as `sample`."""
        async with (
            self._place(lease, MAX_CONCURRENT),
            self._memory_for(lease, {}) as take,
            aclosing(self._parts("/models", None, {}, lease)) as parts,
        ):
            with _upstream_errors():
                await anext(parts)
                answer = await _joined(parts, take)
                return await lease.read(partial(_read_models, answer), len(answer))

    async def model(self, name: str, lease: Lease) -> Json:
        """One of the upstream's models. Raises `HTTPException` if it lists none of this name, and as `sample`."""
        for card in await self.models(lease):
            if card.get("id") == name:
                return card
        raise HTTPException(404, "the upstream has no model of this name; /v1/models lists those that it has")

    async def relay(self, path: str, body: Json, count: int, lease: Lease) -> AsyncGenerator[bytes, None]:
        """The upstream's answer as it arrives, of `count` completions: first the media type, then the body in parts.
        Raises as `sample`.

        Tokens are reserved as by `_complete`. At the end, also of a broken answer, as many are charged as it reports at
        last; without a report one for every four bytes of the request, and of the answer, or each event of a stream.
        """
        content = await lease.read(partial(encoded, body | self._model))
        async with (
            lease.reserving(self._most_tokens(body, content, count)) as use,
            self._place(lease, MAX_CONCURRENT),
            aclosing(self._parts(path, content, body, lease)) as parts,
        ):
            with _upstream_errors():
                yield await anext(parts)
                size, events, end = 0, 0, b""
                try:
                    async for part in parts:
                        size, events = size + len(part), events + part.count(b"data:")
                        end = (end + part)[-_REPORT_BYTES:]
                        yield part
                finally:
                    written = events if body.get("stream") else size // _BYTES
                    use(int([len(content) // _BYTES + written, *_TOTAL.findall(end)][-1]))

    async def close(self) -> None:
        await self._client.close()

    def _most_tokens(self, body: Json, content: bytes, count: int) -> int:
        """Tokens that `count` completions may take: those of the prompt, by its bytes, and of each completion the limit
        that the body sets."""
        limits = [limit for name in _LIMITS if type(limit := body.get(name)) is int and limit > 0]
        limit = min([*limits, _MOST_TOKENS] if limits else [self._service.settings.gateway_max_tokens])
        return len(content) // _BYTES + count * limit

    async def _parts(self, path: str, content: bytes | None, body: Json, lease: Lease) -> AsyncGenerator[bytes, None]:
        """The parts of an answer as the client's. The call counts as `slow` if no byte comes for a while, for longer
        where no stream was asked for, and as `timed_out` if it is given up while the upstream has sent the request
        nothing."""
        seconds = self._slow if body.get("stream") else _WHOLE * self._slow
        timer = asyncio.get_running_loop().call_later(seconds, self._observe, seconds, "slow")
        lease.unheard.add(self._name)

        def observe(seconds: float, outcome: str) -> None:
            given_up = outcome == "cancelled" and self._name in lease.unheard
            self._observe(seconds, "timed_out" if given_up else outcome)
            if not given_up:
                lease.unheard.discard(self._name)

        try:
            async with aclosing(self._client.parts(path, content, observe)) as parts:
                yield await anext(parts)
                async for part in parts:
                    timer.cancel()
                    lease.unheard.discard(self._name)
                    yield part
        finally:
            timer.cancel()

    def _place(self, lease: Lease, limit: int) -> asyncio.Semaphore:
        """One of the caller's `limit` places."""
        return self._places.setdefault((lease.share, limit), asyncio.Semaphore(limit))

    @asynccontextmanager
    async def _memory_for(self, lease: Lease, body: Json) -> AsyncGenerator[Callable[[int], Awaitable[None]], None]:
        """Yields a function that takes memory for the answer to a body until the end of the block. At most two answers
        of a caller over 1 MiB are read at a time; the function waits for a place among the two. It raises
        `UpstreamFailed` for an answer that is too long, and `Overloaded`."""
        limit = self._service.settings.max_body_bytes * (_WITH_LOGPROBS if body.get("logprobs") else 1)
        taken = 0
        async with AsyncExitStack() as turn:
            held = turn.enter_context(lease.holding())

            async def take(size: int) -> None:
                nonlocal taken
                if taken <= _LONG < taken + size:
                    await turn.enter_async_context(self._place(lease, _MAX_LONG))
                taken += size
                if taken > limit:
                    raise UpstreamFailed(f"the upstream's answer is longer than {limit} bytes")
                held.take(size)

            yield take

    async def _complete(self, body: Json, first: int, count: int, lease: Lease, listener: Listener) -> Samples:
        """The listener gets the whole answer; or if it is streamed, each completion once it is written, and at last the
        tokens of all, estimated if not all were waited for. The most tokens that it may take are reserved meanwhile."""
        content = await lease.read(partial(encoded, body))
        async with (
            lease.reserving(self._most_tokens(body, content, count)) as use,
            self._place(lease, MAX_CONCURRENT),
            self._memory_for(lease, body) as take,
            aclosing(self._parts("/chat/completions", content, body, lease)) as parts,
        ):
            if not (await anext(parts)).startswith(b"text/event-stream"):
                whole = await _joined(parts, take)
                sampled = await lease.read(partial(_read_completions, whole, count, listener.keeps_tokens), len(whole))
                use(sampled.usage.total or (len(content) + len(whole)) // _BYTES)
                listener.arrive(first, sampled)
                return sampled
            stream, sampled = CompletionStream(count), Samples()

            async def read(data: bytes) -> None:
                before = stream.size
                for index, part in await lease.read(partial(stream.feed, data), len(data)):
                    if not isinstance(part, str):
                        sampled.completions.append(part)
                        listener.arrive(first + index, Samples([part], stream.model, size=part.length))
                    elif listener.show is not None:
                        listener.show(first + index, part)
                await take(stream.size - before)

            try:
                async for part in parts:
                    await read(part)
                await read(b"\n")
            finally:
                estimate = TokenUsage(prompt_tokens=len(content) // _BYTES, completion_tokens=stream.written)
                usage = stream.usage or estimate
                cost = Samples([], stream.model, stream.id, usage, usage.prompt_tokens)
                sampled.count(cost)
                use(usage.total)
                listener.arrive(first, cost)
        return sampled


async def _joined(parts: AsyncGenerator[bytes, None], take: Callable[[int], Awaitable[None]]) -> bytes:
    """What is left of an answer; `take` is called with the number of bytes of every part, and may raise."""
    joined = bytearray()
    async for part in parts:
        await take(len(part))
        joined += part
    return bytes(joined)


class _ModelList(BaseModel):
    data: JsonList


def _unchanged(value: Json) -> Json:
    return value


def _logprobs(value: Json) -> Json:
    """Of a token, what a vote needs: the rest is several times as much to keep, and for the garbage collector."""
    return {"logprob": value["logprob"]} if "logprob" in value else value


def _read_completions(answer: bytes, count: int, keeps_tokens: bool) -> Samples:
    """At most `count` completions. Raises `APIResponseError`, also if there is none."""
    try:
        if b"\\ud" in answer or b"\\uD" in answer:
            from_json(answer)  # unlike Python's, it refuses half a surrogate pair, which nobody could be sent
        # whatever the hook does, other threads get a turn when it is called: a long answer takes seconds
        value = json.loads(answer.decode(), object_hook=_unchanged if keeps_tokens else _logprobs)
    except (ValueError, RecursionError):
        raise APIResponseError("not JSON") from None
    if not (samples := Samples.read(value, count, len(answer))).completions:
        raise APIResponseError("not a chat completion")
    return samples


def _read_models(answer: bytes) -> list[Json]:
    """The models in a list of them. Raises `APIResponseError`."""
    with suppress(ValueError):  # pydantic's are such, too
        if is_json(models := _ModelList.model_validate_json(answer).data):
            return models
    raise APIResponseError("not a list of models")


@contextmanager
def _upstream_errors() -> Iterator[None]:
    """Turns the client's errors into those of a gateway, which don't contain the URL."""
    try:
        yield
    except APIConnectionError as error:
        raise UpstreamFailed(
            f"the upstream can't be reached ({error.reason}): does it run, and is --upstream-url right? The log of "
            "unprm's server has the address"
        ) from error
    except APIStatusError as error:
        raise _refusal(error) from error
    except APIResponseError as error:
        words = f": {error.message}" if error.message else ""
        raise UpstreamFailed(f"the upstream's answer is {error}{words}") from error


def _refusal(error: APIStatusError) -> UnprmError:
    status = error.status
    words = f": {error.message}" if error.message else ""
    if status in (429, 503):
        seconds = 1.0 if error.retry_after is None else min(error.retry_after, LONGEST_RETRY_AFTER)
        if status == 429:
            return UpstreamBusy(f"the upstream takes no more requests now (429){words}", seconds)
        unavailable = UpstreamUnavailable(f"the upstream is not available now (503){words}")
        unavailable.retry_after = seconds
        return unavailable
    if status in (401, 403):
        return UpstreamFailed(f"the upstream refuses the gateway's key ({status}); it is set by --upstream-key")
    if 400 <= status < 500:
        tried = f" to {urlsplit(error.url).path}" if error.url and status in (404, 405) else ""
        fields = {
            name: value for name in ("code", "type", "param") if (value := getattr(error.fields, name)) is not None
        }
        reason = words or ": without a reason"
        return UpstreamRefused(
            f"the upstream answered {status}{tried}{reason}", status if status in _KEPT else 400, fields
        )
    return UpstreamFailed(f"the upstream answered {status}{words}")
