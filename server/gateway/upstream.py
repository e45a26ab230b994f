"""The server that candidates are sampled from: OpenAI's chat API over HTTP."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Self

import httpx
from pydantic import ValidationError

from unprm.errors import Overloaded, UnprmError
from unprm.openai_api import APIConnectionError, APIError, APIStatusError, Json, Observe, OpenAIClient, ignore

from .answers import Chunk, Completion, ModelList, Token, Usage


class UpstreamRefused(UnprmError):
    """The upstream rejects the request, for instance an unknown model or a context that is too long."""

    code = "upstream_refused"


class UpstreamFailed(UnprmError):
    """The upstream did not answer, or not as OpenAI's API does."""

    code = "upstream_failed"


class UnknownToUpstream(UnprmError):
    """The upstream lists no model of this name."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__("the upstream has no model of this name; /v1/models lists those that it has")


Watch = Callable[[Sequence[float]], bool]
"""Whether to stop a completion, from the log-probabilities of the likeliest tokens at its latest place."""
STOPPED = "low_confidence"
"""Finish reason of a completion that its watch stopped."""


@dataclass(slots=True)
class Sampled:
    """Completions of one prompt, as the upstream sent them; `usage`: the tokens of all of them together."""

    model: str = ""
    choices: list[Json] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @classmethod
    def of(cls, model: str, choices: list[Json], usage: Usage | None) -> Self:
        """From what one answer says."""
        usage = usage or Usage()
        return cls(model, choices, usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def add(self, other: "Sampled") -> None:
        """Adds the other's completions and tokens."""
        self.model = other.model or self.model
        self.choices += other.choices
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens

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


class Upstream:
    """One upstream; its address may end in `/v1`. The caller sets the deadline. `observe` as in `OpenAIClient`."""

    def __init__(self, url: str, key: str | None, observe: Observe = ignore) -> None:
        self._client = OpenAIClient([url], key, timeout=None, observe=observe)

    async def sample(self, body: Json, count: int) -> Sampled:
        """`count` completions, or fewer if the upstream returns fewer; one that ignores `n` gets a request for each.

        Raises `UpstreamRefused`, `UpstreamFailed` or `Overloaded`.
        """
        sampled = await self._complete(body, count)
        missing = count - len(sampled.choices)
        if missing > 0:
            more = await asyncio.gather(
                *(self._complete(_reseeded(body, 1 + number), 1) for number in range(missing)), return_exceptions=True
            )
            for result in more:
                if isinstance(result, Sampled):
                    sampled.add(result)
        if not sampled.choices:
            raise UpstreamFailed("the upstream's answer has no completion")
        return sampled

    async def sample_watched(self, body: Json, count: int, watch: Callable[[], Watch]) -> Sampled:
        """`count` completions, each streamed, and broken off as soon as its watch says so; one that is broken off has
        no text and the finish reason `STOPPED`. Fewer if some fail.

        Raises as `sample`, if all fail.
        """
        streams = (self._watched(_reseeded(body, number), watch()) for number in range(count))
        results = await asyncio.gather(*streams, return_exceptions=True)
        sampled = Sampled()
        for result in results:
            if isinstance(result, Sampled):
                sampled.add(result)
        if not sampled.choices and isinstance(results[0], BaseException):
            raise results[0]
        return sampled

    async def models(self) -> Json:
        """The list of the upstream's models, as it was sent. Raises as `sample`."""
        with _upstream_errors():
            answer = await self._client.get("/models")
        try:
            return ModelList.model_validate(answer).model_dump()
        except ValidationError:
            raise UpstreamFailed("the upstream's answer is no list of models") from None

    async def model(self, name: str) -> Json:
        """One of the upstream's models. Raises `UnknownToUpstream`, and as `sample`."""
        cards: list[Json] = (await self.models())["data"]
        for card in cards:
            if card.get("id") == name:
                return card
        raise UnknownToUpstream

    async def relay(self, path: str, body: Json) -> httpx.Response:
        """The upstream's own response, as `OpenAIClient.stream` returns it. Raises as `sample`."""
        with _upstream_errors():
            return await self._client.stream(path, body)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _complete(self, body: Json, count: int) -> Sampled:
        with _upstream_errors():
            answer = await self._client.post("/chat/completions", body | ({"n": count} if count > 1 else {}))
        try:
            parsed = Completion.model_validate(answer)
        except ValidationError:
            raise UpstreamFailed("the upstream's answer is no chat completion") from None
        return Sampled.of(parsed.model, [choice.model_dump() for choice in parsed.choices], parsed.usage)

    async def _watched(self, body: Json, watch: Watch) -> Sampled:
        message: Json = {"role": "assistant", "content": ""}
        tokens: list[Token] = []
        reason, usage, model = None, None, ""
        options = {"stream_options": {"include_usage": True}}
        with _upstream_errors():
            async with aclosing(self._client.events("/chat/completions", body | options)) as events:
                async for event in events:
                    chunk = _parsed_chunk(event)
                    model, usage = chunk.model or model, chunk.usage or usage
                    for part in chunk.choices[:1]:
                        reason = part.finish_reason or reason
                        _append(message, part.delta)
                        new = (part.logprobs and part.logprobs.content) or []
                        tokens += new
                        if any(watch(token.likeliest) for token in new if token.top_logprobs):
                            reason = STOPPED
                    if reason == STOPPED:
                        message["content"] = ""
                        break
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": reason,
            "logprobs": {"content": [token.model_dump() for token in tokens]},
        }
        return Sampled.of(model, [choice], usage or Usage(completion_tokens=len(tokens)))


def _append(message: Json, delta: Json) -> None:
    """Appends the texts of a chunk to those of the message."""
    for name, value in delta.items():
        if isinstance(value, str) and name != "role":
            message[name] = message.get(name, "") + value


def _parsed_chunk(event: bytes) -> Chunk:
    try:
        return Chunk.model_validate_json(event)
    except ValidationError:
        raise UpstreamFailed("the upstream's stream has something else than chunks of a chat completion") from None


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
        seconds = 1.0 if error.retry_after is None else error.retry_after
        return Overloaded(f"the upstream asks for patience ({status})", seconds)
    if status in (401, 403):
        return UpstreamFailed(f"the upstream refuses the gateway's key ({status}); it is set by --upstream-key")
    if 400 <= status < 500:
        return UpstreamRefused(f"the upstream answered {status}: {error.message or 'without a reason'}")
    return UpstreamFailed(f"the upstream answered {status}")
