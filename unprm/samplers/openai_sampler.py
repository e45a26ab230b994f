"""Samples through servers that speak OpenAI's HTTP API: `vllm serve`, or a vendor's.

`OpenAISampler` sends token ids to `/v1/completions` and gets token ids back, so it can continue any prefix; vLLM and
similar servers support that. `ChatSampler` sends a problem to `/v1/chat/completions` and gets text with
log-probabilities: enough for candidate solutions, not for annotating them.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from unprm.affinity import ranked
from unprm.errors import SamplerFailed
from unprm.samplers.base import TokenSampler
from unprm.samplers.prompts import messages
from unprm.types import Completion, SamplingSettings

ATTEMPTS = 6
FIRST_WAIT = 0.5
"""Seconds before the second attempt; doubled for each further one, with jitter."""
PAUSE = 5.0
"""Seconds that an endpoint is avoided after it did not answer; doubled while it stays dead, up to a minute."""
_WORTH_REPEATING = {408, 409, 425, 429, 500, 502, 503, 504}


@dataclass(slots=True)
class Endpoint:
    """One server; it is avoided until `rests_until`, a time of `time.monotonic()`."""

    url: str
    failures: int = 0
    rests_until: float = 0.0


class Endpoints:
    """Servers of the same model. A call goes to the server that its affinity points to (rendezvous hashing), so
    that cached prefixes are reused; while that one rests, to the next.

    `seconds`: timeout of an answer; `first_wait` and `pause` as `FIRST_WAIT` and `PAUSE`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str | None,
        seconds: float,
        first_wait: float = FIRST_WAIT,
        pause: float = PAUSE,
    ) -> None:
        self._first_wait, self._pause = first_wait, pause
        self._endpoints = [Endpoint(url.rstrip("/").removesuffix("/v1")) for url in urls]
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(seconds, connect=10), limits=limits)

    async def post(self, path: str, body: dict[str, Any], affinity: str) -> Any:
        """The answer's JSON. Raises `SamplerFailed` for an error that a retry would not change, or after `ATTEMPTS`
        attempts."""
        reason = "never asked"
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
            endpoint = self._pick(affinity)
            try:
                response = await self._http.post(endpoint.url + path, json=body)
            except httpx.TransportError as error:
                self._failed(endpoint)
                reason = f"{endpoint.url}: {type(error).__name__}"
                continue
            endpoint.failures, endpoint.rests_until = 0, 0.0
            if response.status_code == 200:
                return response.json()
            reason = f"{endpoint.url} answered {response.status_code}"
            if response.status_code not in _WORTH_REPEATING:
                break
        raise SamplerFailed(f"POST {path}: {reason} ({attempt + 1} attempts)")

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _pick(self, affinity: str) -> Endpoint:
        """The server nearest to the affinity among those not resting; if all rest, the first to be back."""
        now = time.monotonic()
        awake = [endpoint for endpoint in self._endpoints if endpoint.rests_until <= now]
        if not awake:
            return min(self._endpoints, key=lambda endpoint: endpoint.rests_until)
        nearest = ranked(affinity, (endpoint.url for endpoint in awake))[0]
        return next(endpoint for endpoint in awake if endpoint.url == nearest)

    def _failed(self, endpoint: Endpoint) -> None:
        endpoint.failures += 1
        endpoint.rests_until = time.monotonic() + min(60.0, self._pause * 2 ** (endpoint.failures - 1))


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Logprobs(_Lenient):
    token_logprobs: list[float]


class _Choice(_Lenient):
    index: int
    text: str
    finish_reason: str | None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Completions(_Lenient):
    choices: list[_Choice]


class _Token(_Lenient):
    logprob: float


class _ChatLogprobs(_Lenient):
    content: list[_Token] | None = None


class _Message(_Lenient):
    content: str | None = None


class _ChatChoice(_Lenient):
    index: int
    message: _Message
    finish_reason: str | None
    logprobs: _ChatLogprobs | None = None


class _ChatCompletions(_Lenient):
    choices: list[_ChatChoice]


_Chosen = TypeVar("_Chosen", _Choice, _ChatChoice)


class OpenAISampler(TokenSampler):
    """Token ids in, token ids out, through one server or many. `directory` holds the model's tokenizer."""

    def __init__(self, endpoints: Endpoints, model: str, directory: Path, settings: SamplingSettings) -> None:
        super().__init__(directory, model, settings)
        self._endpoints = endpoints

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt. Raises `SamplerFailed` as `Endpoints.post` does, and if the server
        returns no token ids or log-probabilities."""
        body = {
            "model": self._name,
            "prompt": list(prompt),
            "n": count,
            "seed": seed,
            "temperature": self._settings.temperature,
            "top_p": self._settings.top_p,
            "max_tokens": self._settings.max_tokens,
            "logprobs": 1,
            "return_token_ids": True,
        }
        answer = await self._endpoints.post("/v1/completions", body, affinity)
        try:
            choices = sorted(_Completions.model_validate(answer).choices, key=lambda choice: choice.index)
        except ValidationError as error:
            raise SamplerFailed(f"/v1/completions: an answer in another form: {_first_fault(error)}") from error
        return [self._completion(choice) for choice in _all_of(choices, count)]

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoints.close()

    def _completion(self, choice: _Choice) -> Completion:
        if choice.token_ids is None or choice.logprobs is None:
            raise SamplerFailed(
                f"the server of {self._name} tells no token ids (return_token_ids) or no log-probabilities; "
                "it can be used for candidate solutions with --chat, not for annotation"
            )
        logprobs = tuple(min(0.0, logprob) for logprob in choice.logprobs.token_logprobs)
        if len(logprobs) != len(choice.token_ids):
            raise SamplerFailed(f"{len(logprobs)} log-probabilities were told for {len(choice.token_ids)} token ids")
        ids = tuple(choice.token_ids)
        return Completion(self.decode(ids), ids, logprobs, choice.finish_reason == "stop")


class ChatSampler:
    """Text in, text and log-probabilities out: any chat API, for candidate solutions."""

    def __init__(self, endpoints: Endpoints, model: str, settings: SamplingSettings) -> None:
        self._endpoints, self._model, self._settings = endpoints, model, settings

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Empty: a chat API takes no token ids."""
        return ()

    def decode(self, ids: Sequence[int]) -> str:
        """Never called with ids, since the API returns none."""
        raise SamplerFailed(f"the chat API of {self._model} has no token ids")

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem; raises `SamplerFailed` as `Endpoints.post` does."""
        body = {
            "model": self._model,
            "messages": messages(problem, self._settings.worked_examples),
            "n": count,
            "seed": seed,
            "temperature": self._settings.temperature,
            "top_p": self._settings.top_p,
            "max_completion_tokens": self._settings.max_tokens,
            "logprobs": True,
        }
        answer = await self._endpoints.post("/v1/chat/completions", body, affinity=problem)
        try:
            choices = sorted(_ChatCompletions.model_validate(answer).choices, key=lambda choice: choice.index)
        except ValidationError as error:
            raise SamplerFailed(f"/v1/chat/completions: an answer in another form: {_first_fault(error)}") from error
        return [self._completion(choice) for choice in _all_of(choices, count)]

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """Raises `SamplerFailed`: annotation continues the tokens of a prefix, which a chat API can't do."""
        raise SamplerFailed(
            f"{self._model} is asked through a chat API, which can't go on from the tokens of a solution: annotate "
            "with a model that is served by vLLM, or run here"
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoints.close()

    def _completion(self, choice: _ChatChoice) -> Completion:
        if choice.logprobs is None or choice.logprobs.content is None:
            raise SamplerFailed(f"the chat API of {self._model} tells no log-probabilities")
        logprobs = tuple(min(0.0, token.logprob) for token in choice.logprobs.content)
        return Completion(choice.message.content or "", (), logprobs, choice.finish_reason == "stop")


def _all_of(choices: list[_Chosen], count: int) -> list[_Chosen]:
    if len(choices) != count:
        raise SamplerFailed(f"{count} completions were asked for, {len(choices)} came back")
    return choices


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
