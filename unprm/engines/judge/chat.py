"""The judge's server: chat completions, with the log-probabilities of tokens where it gives them."""

import asyncio
from http import HTTPStatus

from unprm.engines.judge.layouts import Messages
from unprm.errors import ModelBusy, ModelUnreachable
from unprm.openai.client import Completions, Observe, OpenAIClient, ignore
from unprm.openai.completion import Completion, Samples
from unprm.openai.errors import APIConnectionError, APIError, APIStatusError
from unprm.openai.models import Json
from unprm.types import Usage

ATTEMPTS = 3
_REFUSALS = {400, 413, 422}
"""Statuses for a request that the server does not accept; others say that it can't work now, or not for us."""


class Refused(Exception):
    """The server does not accept this request. The text has the server's words, which may repeat what was sent."""


class JudgeChat:
    """A model behind a server of OpenAI's chat API, used from one event loop. `concurrency`: maximum requests in
    flight; `seconds`: of an attempt. `likeliest`: how many tokens' log-probabilities the server gives, and
    `answer_tokens`: tokens of a one-word answer, are found out at the start."""

    def __init__(
        self, url: str, key: str | None, model: str, concurrency: int, seconds: float, observe: Observe = ignore
    ) -> None:
        self._client = OpenAIClient([url], key, timeout=seconds, attempts=ATTEMPTS, observe=observe)
        self.model, self._concurrency, self._seconds = model, concurrency, seconds
        places = asyncio.Semaphore(concurrency)
        self._completions = Completions(self._client, "/chat/completions", places)
        self.likeliest = 0
        self.answer_tokens = 1

    async def complete(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        count: int = 1,
        likeliest: int = 0,
    ) -> tuple[list[Completion], Usage]:
        """`count` completions or fewer, and their cost by the server's count. `likeliest`: of how many tokens
        log-probabilities are asked for. Raises `Refused`, `ModelBusy` and `ModelUnreachable`."""
        body: Json = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
        }
        if likeliest:
            body |= {"logprobs": True, "top_logprobs": likeliest}
        try:
            samples = await self._completions.sample(body, count)
            return samples.completions, cost_of(samples)
        except APIError as error:
            raise self._failure(error) from None

    async def in_flight(self) -> int:
        """Maximum requests in flight: at most the server's slots, if it reports them."""
        return min(self._concurrency, await self._client.slots() or self._concurrency)

    async def close(self) -> None:
        await self._client.close()

    def _failure(self, error: APIError) -> Exception:
        if isinstance(error, APIStatusError):
            if error.status in _REFUSALS:
                return Refused(f"{error.status}: {error.message}" if error.message else str(error.status))
            kind = ModelBusy if error.status == HTTPStatus.TOO_MANY_REQUESTS else ModelUnreachable
            return kind(f"the judge's server answered {error.status}")
        if isinstance(error, APIConnectionError):
            late = f" a call within {self._seconds:g} s: --judge-seconds" if "Timeout" in error.reason else ""
            return ModelUnreachable(f"the judge's server does not answer{late} ({error.reason})")
        return ModelUnreachable("the judge's server did not answer with a chat completion")


def cost_of(samples: Samples) -> Usage:
    """With all tokens that came, if the server counts any: llama.cpp counts those of one choice."""
    usage, came = samples.usage, sum(len(completion.tokens) for completion in samples.completions)
    cached = usage.cached_tokens or 0
    tokens = usage.prompt_tokens + max(usage.completion_tokens, came) if usage.total else 0
    return Usage(tokens, tokens - cached, cached)
