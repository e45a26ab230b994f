"""The server that candidates are sampled from: OpenAI's chat API over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from unprm.errors import Overloaded, UnprmError

_CONNECT_SECONDS = 10.0
_LONGEST_DETAIL = 500
"""Most characters of an upstream's error message that are passed on."""

Json = dict[str, Any]


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
    """One upstream; its address may end in `/v1`. The caller sets the deadline: a cancelled call closes its connection,
    and the upstream stops."""

    def __init__(self, url: str, key: str | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/").removesuffix("/v1") + "/v1",
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            limits=limits,
        )

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
        return _json(await self._request("GET", "/models"))

    async def relay(self, body: Json) -> httpx.Response:
        """The upstream's own response, whose body must still be read and closed. Raises as `sample`."""
        request = self._http.build_request("POST", "/chat/completions", json=body)
        try:
            response = await self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if response.status_code != 200:
            await response.aread()
            raise _refusal(response)
        return response

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _complete(self, body: Json, count: int) -> Sampled:
        answer = await self._request("POST", "/chat/completions", body | ({"n": count} if count > 1 else {}))
        try:
            parsed = _Completion.model_validate(_json(answer))
        except ValidationError:
            raise UpstreamFailed("the upstream's answer is no chat completion") from None
        usage = parsed.usage or {}
        prompt, completion = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        return Sampled(parsed.model, [choice.model_dump() for choice in parsed.choices], prompt, completion)

    async def _request(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if response.status_code != 200:
            raise _refusal(response)
        return response


async def read_on(response: httpx.Response) -> AsyncIterator[bytes]:
    """The rest of a response as it arrives; closes it at the end."""
    try:
        async for part in response.aiter_bytes():
            yield part
    finally:
        await response.aclose()


def _reseeded(body: Json, number: int) -> Json:
    return body | {"seed": body["seed"] + number} if isinstance(body.get("seed"), int) else body


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        raise UpstreamFailed("the upstream's answer is not JSON") from None


def _unreachable(error: httpx.HTTPError) -> UpstreamFailed:
    return UpstreamFailed(f"the upstream can't be reached ({type(error).__name__})")


def _refusal(response: httpx.Response) -> UnprmError:
    status = response.status_code
    if status in (429, 503):
        seconds = response.headers.get("retry-after", "")
        return Overloaded(f"the upstream asks for patience ({status})", float(seconds) if seconds.isdecimal() else 1.0)
    if status in (401, 403):
        return UpstreamFailed(f"the upstream refuses the gateway's key ({status}); it is set by --upstream-key")
    if 400 <= status < 500:
        return UpstreamRefused(f"the upstream answered {status}: {_words(response)}")
    return UpstreamFailed(f"the upstream answered {status}")


def _words(response: httpx.Response) -> str:
    """The message of an error in OpenAI's form."""
    try:
        error = response.json()["error"]
        return str(error["message"])[:_LONGEST_DETAIL]
    except (ValueError, KeyError, TypeError):
        return "without a reason"
