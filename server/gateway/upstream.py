"""The server that candidates are sampled from: OpenAI's chat API over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from unprm.errors import Overloaded, UnprmError
from unprm.openai_api import APIConnectionError, APIError, APIStatusError, Json, OpenAIClient


class UpstreamRefused(UnprmError):
    """The upstream rejects the request, for instance an unknown model or a context that is too long."""

    code = "upstream_refused"


class UpstreamFailed(UnprmError):
    """The upstream did not answer, or not as OpenAI's API does."""

    code = "upstream_failed"


class _Choice(BaseModel):
    model_config = ConfigDict(extra="allow")

    message: Json
    finish_reason: str | None = None


class _Completion(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str = ""
    choices: list[_Choice]
    usage: Json | None = None


@dataclass(slots=True)
class Sampled:
    """Completions of one prompt, as the upstream sent them; `usage`: the tokens of all of them together."""

    model: str = ""
    choices: list[Json] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, other: "Sampled") -> None:
        """Adds the other's completions and tokens."""
        self.model = other.model or self.model
        self.choices += other.choices
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens

    @property
    def usage(self) -> Json:
        """The token usage in the form of OpenAI's API."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


class Upstream:
    """One upstream; its address may end in `/v1`. The caller sets the deadline."""

    def __init__(self, url: str, key: str | None) -> None:
        self._client = OpenAIClient([url], key, timeout=None)

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
        return sampled

    async def models(self) -> Any:
        """The upstream's models. Raises as `sample`."""
        with _upstream_errors():
            return await self._client.get("/models")

    async def relay(self, body: Json) -> httpx.Response:
        """The upstream's own response, as `OpenAIClient.stream` returns it. Raises as `sample`."""
        with _upstream_errors():
            return await self._client.stream("/chat/completions", body)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _complete(self, body: Json, count: int) -> Sampled:
        with _upstream_errors():
            answer = await self._client.post("/chat/completions", body | ({"n": count} if count > 1 else {}))
        try:
            parsed = _Completion.model_validate(answer)
        except ValidationError:
            raise UpstreamFailed("the upstream's answer is no chat completion") from None
        usage = parsed.usage or {}
        prompt, completion = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        return Sampled(parsed.model, [choice.model_dump() for choice in parsed.choices], prompt, completion)


def _reseeded(body: Json, number: int) -> Json:
    return body | {"seed": body["seed"] + number} if isinstance(body.get("seed"), int) else body


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


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
