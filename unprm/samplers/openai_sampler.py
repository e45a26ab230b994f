"""Samples through servers that speak OpenAI's HTTP API: `vllm serve`, llama.cpp's, or a vendor's.

`OpenAISampler` continues token ids by `/v1/completions`, as vLLM and llama.cpp can; `ChatSampler` gets texts with
log-probabilities by `/v1/chat/completions`: enough for solutions, not for annotating them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformers.convert_slow_tokenizer import bytes_to_unicode

from unprm.errors import SamplerFailed
from unprm.openai.client import NEUTRAL, Completions, OpenAIClient
from unprm.openai.completion import Completion as ServerCompletion
from unprm.openai.errors import APIError, APIStatusError
from unprm.openai.models import Json, Token
from unprm.samplers.prompts import TokenSampler, messages
from unprm.types import Completion, SamplingSettings

ATTEMPTS = 6
"""Attempts of a call before its question is given up."""
_LETTERS: dict[int, str] = bytes_to_unicode()
"""How byte-level vocabularies write bytes."""
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}


class _Endpoint(Completions):
    """Samples from a model at a path of a server; `read`: makes a sampler's completion of the server's."""

    def __init__(
        self,
        client: OpenAIClient,
        path: str,
        model: str,
        settings: SamplingSettings,
        read: Callable[[ServerCompletion], Completion],
    ) -> None:
        super().__init__(client, path)
        self._common = {"model": model, "temperature": settings.temperature, "top_p": settings.top_p}
        self._read = read

    async def complete(self, fields: Json, count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions for a body with these fields. Raises `SamplerFailed`."""
        try:
            found = (await self.sample(self._common | fields, count, seed, affinity)).completions
            if len(found) == count:
                return list(map(self._read, found))
        except APIError as error:
            words = f": {error.message}" if isinstance(error, APIStatusError) and error.message else ""
            raise SamplerFailed(f"POST {self._path}: {error} ({error.attempts} attempts){words}") from error
        raise SamplerFailed(f"{count} completions were asked for, {len(found)} came back")


class OpenAISampler(TokenSampler):
    """Token ids in, token ids out, through one server or many. `tokenizer`: the directory of the model's."""

    neutral = NEUTRAL

    def __init__(self, client: OpenAIClient, model: str, tokenizer: Path, settings: SamplingSettings) -> None:
        super().__init__(tokenizer, model, settings)
        self._server = _Endpoint(client, "/completions", model, settings, self._completion)

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """`count` completions of a prompt. Raises `SamplerFailed`, also for missing or other token ids."""
        fields = {
            "prompt": list(prompt),
            "max_tokens": self._settings.max_tokens,
            "logprobs": 1,
            "return_token_ids": True,  # vLLM's; llama.cpp sends them anyway
        }
        return await self._server.complete(fields, count, seed, affinity)

    async def close(self) -> None:
        await self._server.close()

    def _completion(self, sent: ServerCompletion) -> Completion:
        if sent.logprobs.content is not None:
            sent.logprobs.content = [each for token in sent.logprobs.content for each in self._restored(token)]
        ids, logprobs = sent.ids, sent.logprobs.sampled
        if ids is None or logprobs is None:
            raise SamplerFailed(
                f"the server of {self.model} sends no token ids (return_token_ids) or no log-probabilities; "
                "it can be used for candidate solutions with --sampler chat, not for annotation"
            )
        if len(logprobs) != len(ids):
            raise SamplerFailed(f"{len(logprobs)} log-probabilities were sent for {len(ids)} token ids")
        text = self.decode(ids)
        if _letters(text) != _letters(sent.text):
            raise SamplerFailed(
                f"the server's text is not what its tokens are in the tokenizer here: give that of {self.model} "
                "(--tokenizer)"
            )
        return Completion(text, ids, logprobs, sent.finish == "stop")

    def _restored(self, token: Token) -> list[Token]:
        """The token with the bytes of earlier ones that llama.cpp left out, as they end within a character."""
        own = self._bytes_of(token.id)
        if own is None or not token.bytes or not bytes(token.bytes).endswith(own):
            return [token]
        missing = bytes(token.bytes)[: -len(own) or None]
        whole = self._id_of(missing)
        ids = [whole] if whole is not None else [self._id_of(bytes([each])) for each in missing]
        return [*(Token(id=id, logprob=0.0) for id in ids), token]

    def _bytes_of(self, id: int | None) -> bytes | None:
        """The bytes of a token of a byte-level vocabulary; None if it is none of those."""
        word = None if id is None else self._prompter.tokenizer.id_to_token(id)
        return bytes(_BYTES[letter] for letter in word) if word and _BYTES.keys() >= set(word) else None

    def _id_of(self, word: bytes) -> int | None:
        found: int | None = self._prompter.tokenizer.token_to_id("".join(_LETTERS[each] for each in word))
        return found


class ChatSampler:
    """Text in, text and log-probabilities out: any chat API, for candidate solutions."""

    neutral = NEUTRAL

    def __init__(self, client: OpenAIClient, model: str, settings: SamplingSettings) -> None:
        self.model, self._settings = model, settings
        self._server = _Endpoint(client, "/chat/completions", model, settings, self._completion)

    def prompt(self, problem: str) -> tuple[int, ...]:
        """Empty: a chat API takes no token ids."""
        return ()

    def decode(self, ids: Sequence[int]) -> str:
        """Raises `SamplerFailed`: the API returns no ids."""
        raise SamplerFailed(f"the chat API of {self.model} has no token ids")

    async def solve(self, problem: str, count: int, seed: int) -> list[Completion]:
        """`count` solutions of a problem. Raises `SamplerFailed`, also without log-probabilities."""
        fields = {
            "messages": messages(problem, self._settings.worked_examples),
            "max_completion_tokens": self._settings.max_tokens,
            "logprobs": True,
        }
        return await self._server.complete(fields, count, seed, problem)

    async def complete(self, prompt: Sequence[int], count: int, seed: int, affinity: str) -> list[Completion]:
        """Raises `SamplerFailed`: annotation continues the tokens of a prefix, which a chat API can't do."""
        raise SamplerFailed(
            f"{self.model} is asked through a chat API, which can't go on from the tokens of a solution: annotate "
            "with --sampler openai before vLLM or llama.cpp, or with a model that runs here"
        )

    async def close(self) -> None:
        await self._server.close()

    def _completion(self, sent: ServerCompletion) -> Completion:
        logprobs = sent.logprobs.sampled
        if logprobs is None:
            raise SamplerFailed(f"the chat API of {self.model} sends no log-probabilities")
        return Completion(sent.text, (), logprobs, sent.finish == "stop")


def _letters(text: str) -> str:
    """A text without white space and unfinished characters, which servers write differently."""
    return "".join(text.replace("\N{REPLACEMENT CHARACTER}", "").split())
