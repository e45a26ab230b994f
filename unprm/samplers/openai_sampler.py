"""Samples through servers that speak OpenAI's HTTP API: `vllm serve`, llama.cpp's, or a vendor's.

`OpenAISampler` sends token ids to `/v1/completions` and gets token ids back, so it can continue any prefix; vLLM and
llama.cpp support that. `ChatSampler` sends a problem to `/v1/chat/completions` and gets text with
log-probabilities: enough for candidate solutions, not for annotating them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from transformers.convert_slow_tokenizer import bytes_to_unicode

from unprm.choices import Choices
from unprm.errors import SamplerFailed
from unprm.openai_api import NEUTRAL, APIError, APIStatusError, Json, OpenAIClient
from unprm.samplers.base import TokenSampler
from unprm.samplers.prompts import messages
from unprm.types import Completion, SamplingSettings

ATTEMPTS = 6
"""Attempts of a call before its question is given up."""
_LETTERS: dict[int, str] = bytes_to_unicode()
"""How byte-level vocabularies write bytes."""
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Token(_Form):
    logprob: float
    id: int | None = None
    bytes: list[int] | None = None


class _Logprobs(_Form):
    """Of a completion's tokens: lists, as vLLM has them, or a token after the other, as in chats and from llama.cpp."""

    token_logprobs: list[float] | None = None
    content: list[_Token] | None = None

    def listed(self) -> tuple[float, ...] | None:
        """The log-probability of each token, None if none are told; rounding may have left some just above 0."""
        told = self.token_logprobs if self.content is None else [token.logprob for token in self.content]
        return None if told is None else tuple(min(0.0, logprob) for logprob in told)


class _Choice(_Form):
    index: int
    finish_reason: str | None
    logprobs: Annotated[_Logprobs, BeforeValidator(lambda told: told or {})] = _Logprobs()


class _TokenChoice(_Choice):
    text: str
    token_ids: list[int] | None = None

    def ids(self) -> tuple[int, ...] | None:
        """The token ids, None if they are not told."""
        if self.token_ids is None and self.logprobs.content is not None:
            told = [token.id for token in self.logprobs.content]
            return tuple(id for id in told if id is not None) if None not in told else None
        return None if self.token_ids is None else tuple(self.token_ids)


class _Message(_Form):
    content: str | None = None


class _ChatChoice(_Choice):
    message: _Message


_AnyChoice = TypeVar("_AnyChoice", bound=_Choice)


class _Answer(_Form, Generic[_AnyChoice]):
    choices: list[_AnyChoice]


class _Requests:
    """Asks a server for choices of a model, in as many requests as it takes."""

    def __init__(self, client: OpenAIClient, model: str, settings: SamplingSettings) -> None:
        self._client, self._model, self._settings = client, model, settings
        self._asking = Choices()

    async def choices(
        self, path: str, fields: Json, form: type[_Answer[_AnyChoice]], count: int, seed: int, affinity: str
    ) -> list[_AnyChoice]:
        """`count` choices of a body with these fields. Raises `SamplerFailed`."""
        common = {
            "model": self._model,
            "temperature": self._settings.temperature,
            "top_p": self._settings.top_p,
        }

        async def ask(first: int, total: int) -> list[_AnyChoice]:
            body = common | fields | {"n": total, "seed": seed + first}
            answer = form.model_validate(await self._client.sample(path, body, affinity))
            return sorted(answer.choices, key=lambda choice: choice.index)[:total]

        found: list[_AnyChoice] = []
        for part in await self._asking.gather(ask, count):
            if isinstance(part, Exception):
                raise _failure(path, part) from part
            found += part
        if len(found) < count:
            raise SamplerFailed(f"{count} completions were asked for, {len(found)} came back")
        return found

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


class OpenAISampler(TokenSampler):
    """Token ids in, token ids out, through one server or many. `tokenizer`: the model's, a directory or a GGUF file."""

    neutral = NEUTRAL

    def __init__(self, client: OpenAIClient, model: str, tokenizer: Path, settings: SamplingSettings) -> None:
        super().__init__(tokenizer, model, settings)
        self._server = _Requests(client, model, settings)

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt.

        Raises `SamplerFailed` after an error of the client, if the server returns no token ids or log-probabilities,
        and if its tokens are others than the tokenizer's.
        """
        fields = {
            "prompt": list(prompt),
            "max_tokens": self._settings.max_tokens,
            "logprobs": 1,
            "return_token_ids": True,  # vLLM's; llama.cpp tells them anyway
        }
        choices = await self._server.choices("/completions", fields, _Answer[_TokenChoice], count, seed, affinity)
        return [self._completion(choice) for choice in choices]

    async def close(self) -> None:
        """Closes the connections."""
        await self._server.close()

    def _completion(self, choice: _TokenChoice) -> Completion:
        if choice.logprobs.content is not None:
            choice.logprobs.content = [each for told in choice.logprobs.content for each in self._restored(told)]
        ids, logprobs = choice.ids(), choice.logprobs.listed()
        if ids is None or logprobs is None:
            raise SamplerFailed(
                f"the server of {self.model} tells no token ids (return_token_ids) or no log-probabilities; "
                "it can be used for candidate solutions with --sampler chat, not for annotation"
            )
        if len(logprobs) != len(ids):
            raise SamplerFailed(f"{len(logprobs)} log-probabilities were told for {len(ids)} token ids")
        text = self.decode(ids)
        if _letters(text) != _letters(choice.text):
            raise SamplerFailed(
                f"the server's text is not what its tokens are in the tokenizer here: give that of {self.model} "
                "(--tokenizer)"
            )
        return Completion(text, ids, logprobs, choice.finish_reason == "stop")

    def _restored(self, told: _Token) -> list[_Token]:
        """The token, after those that llama.cpp leaves out before it since each ends within a character: their bytes
        are told with it. Their probabilities are not told, and count as 1."""
        own = self._bytes_of(told.id)
        if own is None or not told.bytes or not bytes(told.bytes).endswith(own):
            return [told]
        missing = bytes(told.bytes)[: -len(own) or None]
        whole = self._id_of(missing)
        ids = [whole] if whole is not None else [self._id_of(bytes([each])) for each in missing]
        return [*(_Token(id=id, logprob=0.0) for id in ids), told]

    def _bytes_of(self, id: int | None) -> bytes | None:
        """The bytes of a token of a byte-level vocabulary; None if it is none of those."""
        word = None if id is None else self._prompter.tokenizer.id_to_token(id)
        return bytes(_BYTES[letter] for letter in word) if word and _BYTES.keys() >= set(word) else None

    def _id_of(self, word: bytes) -> int | None:
        found: int | None = self._prompter.tokenizer.token_to_id("".join(_LETTERS[each] for each in word))
        return found


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
        self.model, self._settings = model, settings
        self._server = _Requests(client, model, settings)
        self._system, self._more = system, dict(more or {})

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Empty: a chat API takes no token ids."""
        return ()

    def decode(self, ids: Sequence[int]) -> str:
        """Never called with ids, since the API returns none."""
        raise SamplerFailed(f"the chat API of {self.model} has no token ids")

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem.

        Raises `SamplerFailed` after an error of the client, and if the server returns no log-probabilities.
        """
        fields = self._more | {
            "messages": self._messages(problem),
            "max_completion_tokens": self._settings.max_tokens,
            "logprobs": True,
        }
        choices = await self._server.choices("/chat/completions", fields, _Answer[_ChatChoice], count, seed, problem)
        return [self._completion(choice) for choice in choices]

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """Raises `SamplerFailed`: annotation continues the tokens of a prefix, which a chat API can't do."""
        raise SamplerFailed(
            f"{self.model} is asked through a chat API, which can't go on from the tokens of a solution: annotate "
            "with --sampler openai before vLLM or llama.cpp, or with a model that runs here"
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._server.close()

    def _messages(self, problem: str) -> list[dict[str, str]]:
        if self._system is None:
            return messages(problem, self._settings.worked_examples)
        return [{"role": "system", "content": self._system}, {"role": "user", "content": problem}]

    def _completion(self, choice: _ChatChoice) -> Completion:
        logprobs = choice.logprobs.listed()
        if logprobs is None:
            raise SamplerFailed(f"the chat API of {self.model} tells no log-probabilities")
        return Completion(choice.message.content or "", (), logprobs, choice.finish_reason == "stop")


def _letters(text: str) -> str:
    """A text without white space and unfinished characters, which servers write differently."""
    return "".join(text.replace("\N{REPLACEMENT CHARACTER}", "").split())


def _failure(path: str, error: Exception) -> Exception:
    """The `SamplerFailed` for an error of a request; any other error as it is."""
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        return SamplerFailed(f"/v1{path}: an answer in another form: {where}: {fault['msg']}")
    if not isinstance(error, APIError):
        return error
    words = f": {error.message}" if isinstance(error, APIStatusError) and error.message else ""
    return SamplerFailed(f"POST /v1{path}: {error} ({error.attempts} attempts){words}")
