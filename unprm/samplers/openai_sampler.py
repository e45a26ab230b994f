"""Samples through servers that speak OpenAI's HTTP API: `vllm serve`, or a vendor's.

`OpenAISampler` sends token ids to `/v1/completions` and gets token ids back, so it can continue any prefix; vLLM and
similar servers support that. `ChatSampler` sends a problem to `/v1/chat/completions` and gets text with
log-probabilities: enough for candidate solutions, not for annotating them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from unprm.errors import SamplerFailed
from unprm.openai_api import NEUTRAL, APIError, OpenAIClient
from unprm.samplers.base import TokenSampler, highest
from unprm.samplers.prompts import messages
from unprm.types import Completion, SamplingSettings

ATTEMPTS = 6
"""Attempts of a call before its question is given up."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Choice(_Form):
    index: int
    finish_reason: str | None


class _Logprobs(_Form):
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float] | None] | None = None


class _TokenChoice(_Choice):
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Likely(_Form):
    logprob: float


class _ChatToken(_Likely):
    top_logprobs: list[_Likely] | None = None


class _ChatLogprobs(_Form):
    content: list[_ChatToken] | None = None


class _Message(_Form):
    content: str | None = None


class _ChatChoice(_Choice):
    message: _Message
    logprobs: _ChatLogprobs | None = None


_AnyChoice = TypeVar("_AnyChoice", bound=_Choice)


class _Answer(_Form, Generic[_AnyChoice]):
    choices: list[_AnyChoice]


class OpenAISampler(TokenSampler):
    """Token ids in, token ids out, through one server or many. `directory` holds the model's tokenizer."""

    neutral = NEUTRAL

    def __init__(self, client: OpenAIClient, model: str, directory: Path, settings: SamplingSettings) -> None:
        super().__init__(directory, model, settings)
        self._client = client

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt.

        Raises `SamplerFailed` after an error of the client, and if the server returns no token ids or
        log-probabilities.
        """
        body = _sampling(self._name, self._settings, count, seed) | {
            "prompt": list(prompt),
            "max_tokens": self._settings.max_tokens,
            "logprobs": max(1, self._settings.top_logprobs),
            "return_token_ids": True,
        }
        choices = await _choices(self._client, "/completions", body, _Answer[_TokenChoice], affinity)
        return [self._completion(choice) for choice in choices]

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _completion(self, choice: _TokenChoice) -> Completion:
        if choice.token_ids is None or choice.logprobs is None:
            raise SamplerFailed(
                f"the server of {self._name} tells no token ids (return_token_ids) or no log-probabilities; "
                "it can be used for candidate solutions with --sampler chat, not for annotation"
            )
        logprobs = tuple(min(0.0, logprob) for logprob in choice.logprobs.token_logprobs)
        if len(logprobs) != len(choice.token_ids):
            raise SamplerFailed(f"{len(logprobs)} log-probabilities were told for {len(choice.token_ids)} token ids")
        ids = tuple(choice.token_ids)
        likeliest = [(place or {}).values() for place in choice.logprobs.top_logprobs or ()]
        top_logprobs = _likeliest(likeliest, self._settings, len(ids))
        return Completion(self.decode(ids), ids, logprobs, choice.finish_reason == "stop", top_logprobs)


class ChatSampler:
    """Text in, text and log-probabilities out: any chat API, for candidate solutions.

    `system`: a system prompt, before a problem that is then sent without an instruction or worked examples. `more`:
    further fields of each request, for servers that know them.
    """

    neutral = NEUTRAL

    def __init__(
        self,
        client: OpenAIClient,
        model: str,
        settings: SamplingSettings,
        *,
        system: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._client, self._model, self._settings = client, model, settings
        self._system, self._more = system, dict(more or {})

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
        """`count` solutions of a problem.

        Raises `SamplerFailed` after an error of the client, and if the server returns no log-probabilities.
        """
        body = (
            self._more
            | _sampling(self._model, self._settings, count, seed)
            | {
                "messages": self._messages(problem),
                "max_completion_tokens": self._settings.max_tokens,
                "logprobs": True,
            }
        )
        if self._settings.top_logprobs:
            body["top_logprobs"] = self._settings.top_logprobs
        choices = await _choices(self._client, "/chat/completions", body, _Answer[_ChatChoice], problem)
        return [self._completion(choice) for choice in choices]

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """Raises `SamplerFailed`: annotation continues the tokens of a prefix, which a chat API can't do."""
        raise SamplerFailed(
            f"{self._model} is asked through a chat API, which can't go on from the tokens of a solution: annotate "
            "with a model that is served by vLLM, or run here"
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _messages(self, problem: str) -> list[dict[str, str]]:
        if self._system is None:
            return messages(problem, self._settings.worked_examples)
        return [{"role": "system", "content": self._system}, {"role": "user", "content": problem}]

    def _completion(self, choice: _ChatChoice) -> Completion:
        if choice.logprobs is None or choice.logprobs.content is None:
            raise SamplerFailed(f"the chat API of {self._model} tells no log-probabilities")
        logprobs = tuple(min(0.0, token.logprob) for token in choice.logprobs.content)
        likeliest = [[each.logprob for each in token.top_logprobs or ()] for token in choice.logprobs.content]
        top_logprobs = _likeliest(likeliest, self._settings, len(logprobs))
        return Completion(choice.message.content or "", (), logprobs, choice.finish_reason == "stop", top_logprobs)


def _likeliest(
    places: Sequence[Iterable[float]], settings: SamplingSettings, tokens: int
) -> tuple[tuple[float, ...], ...]:
    """What a server says of the likeliest tokens, if it was asked for them. Raises `SamplerFailed` unless it says two
    or more at each place."""
    if not settings.top_logprobs:
        return ()
    found = highest(places, settings.top_logprobs)
    if len(found) != tokens or any(len(place) < 2 for place in found):
        raise SamplerFailed(
            f"{settings.top_logprobs} likeliest tokens at each place were asked for (top_logprobs), and the server "
            "does not tell two of each"
        )
    return found


def _sampling(model: str, settings: SamplingSettings, count: int, seed: int) -> dict[str, Any]:
    """The fields that both endpoints take."""
    return {
        "model": model,
        "n": count,
        "seed": seed,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }


async def _choices(
    client: OpenAIClient, path: str, body: Mapping[str, Any], form: type[_Answer[_AnyChoice]], affinity: str
) -> list[_AnyChoice]:
    """All `n` choices of an answer, by index. Raises `SamplerFailed`."""
    try:
        choices = form.model_validate(await client.sample(path, body, affinity)).choices
    except APIError as error:
        raise SamplerFailed(f"POST /v1{path}: {error} ({error.attempts} attempts)") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise SamplerFailed(f"/v1{path}: an answer in another form: {where}: {fault['msg']}") from None
    if len(choices) != body["n"]:
        raise SamplerFailed(f"{body['n']} completions were asked for, {len(choices)} came back")
    return sorted(choices, key=lambda choice: choice.index)
