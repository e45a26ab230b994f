"""The judge's server: chat completions, with the log-probabilities of tokens where it gives them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unprm.engines.judge.layouts import Messages
from unprm.errors import ModelBusy, ModelUnreachable
from unprm.openai_api import APIConnectionError, APIError, APIStatusError, Json, Observe, OpenAIClient, ignore
from unprm.types import Usage

ATTEMPTS = 3
_REFUSALS = {400, 413, 422}
"""Statuses for a request that the server does not accept; others say that it can't work now, or not for us."""


class Refused(Exception):
    """The server does not accept this request, for instance because it is longer than the model's window."""


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

    def counted(self) -> Usage:
        details = self.prompt_tokens_details
        cached = min(self.prompt_tokens, (details.cached_tokens if details else None) or 0)
        tokens = self.prompt_tokens + self.completion_tokens
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
        self._model = model
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
        found = Samples()
        while (missing := count - len(found.samples)) > 0:  # a server may give fewer than `n`
            more = await self._ask(body | ({"n": missing} if missing > 1 else {}))
            found.samples += more.samples
            found.usage += more.usage
            if not more.samples:
                break
        return found

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _ask(self, body: Json) -> Samples:
        try:
            async with self._places:
                answer = _Completion.model_validate(await self._client.sample("/chat/completions", body))
        except APIStatusError as error:
            if error.status in _REFUSALS:
                raise Refused(str(error.status)) from None
            kind = ModelBusy if error.status == HTTPStatus.TOO_MANY_REQUESTS else ModelUnreachable
            raise kind(f"the judge's server answered {error.status}") from None
        except APIConnectionError as error:
            raise ModelUnreachable(f"the judge's server does not answer ({error.reason})") from None
        except (APIError, ValidationError):
            raise ModelUnreachable("the judge's server answered what is no chat completion") from None
        samples = [
            Sample(choice.message.content or "", (choice.logprobs and choice.logprobs.content) or ())
            for choice in answer.choices
        ]
        return Samples(samples, answer.usage.counted() if answer.usage else Usage())
