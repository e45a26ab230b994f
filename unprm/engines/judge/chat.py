"""The judge's server: chat completions, with the log-probabilities of tokens where it gives them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unprm.choices import Choices
from unprm.engines.judge.layouts import Messages
from unprm.errors import ModelBusy, ModelUnreachable
from unprm.openai_api import APIConnectionError, APIError, APIStatusError, Json, Observe, OpenAIClient, ignore
from unprm.types import Usage

ATTEMPTS = 3
_REFUSALS = {400, 413, 422}
"""Statuses for a request that the server does not accept; others say that it can't work now, or not for us."""


class Refused(Exception):
    """The server does not accept this request, for instance because it is longer than the model's window. The text has
    the server's words, which may repeat what was sent."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Likely(_Form):
    """A token's text, and its natural-log probability."""

    token: str
    logprob: float


class Token(Likely):
    """A sampled token, and the likeliest ones in its place."""

    top_logprobs: list[Likely] = []


class _Logprobs(_Form):
    content: list[Token] | None = None


class _Message(_Form):
    content: str | None = None


class _Choice(_Form):
    message: _Message
    logprobs: _Logprobs | None = None


class _Details(_Form):
    cached_tokens: int | None = None


class _Usage(_Form):
    prompt_tokens: int = Field(default=0, ge=0, le=2**53)
    completion_tokens: int = Field(default=0, ge=0, le=2**53)
    prompt_tokens_details: _Details | None = None

    def counted(self, came: int) -> Usage:
        """With all tokens that `came`: llama.cpp counts those of one choice."""
        details = self.prompt_tokens_details
        cached = min(self.prompt_tokens, (details.cached_tokens if details else None) or 0)
        tokens = self.prompt_tokens + max(self.completion_tokens, came)
        return Usage(tokens, tokens - cached, cached)


class _Completion(_Form):
    choices: list[_Choice]
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion. `tokens`: empty where the server gives no log-probabilities."""

    text: str
    tokens: Sequence[Token]


@dataclass(slots=True)
class Samples:
    """Completions of one conversation, and what they cost by the server's count."""

    samples: list[Sample] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def __len__(self) -> int:
        return len(self.samples)


class JudgeChat:
    """A model behind a server of OpenAI's chat API, used from one event loop.

    `concurrency`: most requests in flight. `seconds` that an attempt may take. `observe` as in `OpenAIClient`.
    `likeliest`: how many tokens' log-probabilities the server gives for each place, 0 if it gives none;
    `answer_tokens`: how many tokens a one-word answer takes. Both are found out at the start.
    """

    def __init__(
        self, url: str, key: str | None, model: str, concurrency: int, seconds: float, observe: Observe = ignore
    ) -> None:
        self._client = OpenAIClient([url], key, timeout=seconds, attempts=ATTEMPTS, observe=observe)
        self._choices = Choices()
        self._model, self._concurrency, self._seconds = model, concurrency, seconds
        self._places = asyncio.Semaphore(concurrency)
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
    ) -> Samples:
        """`count` completions, or fewer if the server returns none any more. `likeliest`: of how many tokens the
        log-probabilities are asked for.

        Raises `Refused`, `ModelBusy`, and `ModelUnreachable` if the server does not answer, or not as OpenAI's API
        does.
        """
        body: Json = {
            "model": self._model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
        }
        if likeliest:
            body |= {"logprobs": True, "top_logprobs": likeliest}

        async def ask(first: int, number: int) -> Samples:
            return await self._ask(body | ({"n": number} if number > 1 else {}))

        found = Samples()
        for part in await self._choices.gather(ask, count):
            if isinstance(part, Exception):
                raise self._failure(part) from None
            found.samples += part.samples
            found.usage += part.usage
        return found

    async def in_flight(self) -> int:
        """Most requests in flight: no more than the server has slots, if it says how many."""
        return min(self._concurrency, await self._client.slots() or self._concurrency)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _ask(self, body: Json) -> Samples:
        async with self._places:
            answer = _Completion.model_validate(await self._client.sample("/chat/completions", body))
        samples = [
            Sample(choice.message.content or "", (choice.logprobs and choice.logprobs.content) or ())
            for choice in answer.choices[: body.get("n", 1)]
        ]
        came = sum(len(sample.tokens) for sample in samples)
        return Samples(samples, answer.usage.counted(came) if answer.usage else Usage())

    def _failure(self, error: Exception) -> Exception:
        """What `complete` raises for an error of a request."""
        if isinstance(error, APIStatusError):
            if error.status in _REFUSALS:
                return Refused(f"{error.status}: {error.message}" if error.message else str(error.status))
            kind = ModelBusy if error.status == HTTPStatus.TOO_MANY_REQUESTS else ModelUnreachable
            return kind(f"the judge's server answered {error.status}")
        if isinstance(error, APIConnectionError):
            late = f" a call within {self._seconds:g} s: --judge-seconds" if "Timeout" in error.reason else ""
            return ModelUnreachable(f"the judge's server does not answer{late} ({error.reason})")
        if isinstance(error, APIError | ValidationError):
            return ModelUnreachable("the judge's server answered what is no chat completion")
        return error
