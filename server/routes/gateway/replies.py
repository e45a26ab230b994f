"""What an upstream answers, read: completions, models, and the tokens of an answer that is passed on."""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from unprm.errors import UpstreamFailed
from unprm.openai.client import encoded, error_message
from unprm.openai.models import Json, RawChatResponse, RawChoice, RawModelList, UsageInfo
from unprm.trajectories import TOKEN

from .completion import as_openai

_TOTAL = re.compile(rb'(?<!\\)"total_tokens"\s*:\s*(\d{1,15})')
"""Tokens in a report; quotes inside a text come after a backslash."""
_REPORT_BYTES = 65_536
"""Bytes at the end of an answer in which a report is looked for."""
UNREADABLE: Json = {"message": {"role": "assistant", "content": None}}
"""In place of a completion that can't be read, which costs only itself."""
KeptFields = Collection[str] | None
"""Fields of a token with its log-probability that are kept; None: all of them."""


@dataclass(slots=True)
class SampledCompletions:
    """Completions of one prompt in OpenAI's form, in `size` bytes; `usage`: the tokens of all of them together;
    `context_tokens`: of the prompt alone, however often it was sent; `details`: what else the upstream tells of the
    tokens and their cost, as in `UsageInfo`; `id`: of the upstream's answer, if it is one."""

    model: str = ""
    choices: list[Json] = field(default_factory=list)
    context_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    size: int = 0
    details: dict[str, float] = field(default_factory=dict)
    id: str = ""

    @classmethod
    def of(cls, model: str, choices: list[Json], usage: UsageInfo, size: int, id: str) -> "SampledCompletions":
        prompt = usage.prompt_tokens
        return cls(model, choices, prompt, prompt, usage.completion_tokens, size, usage.details, id)

    def add(self, other: "SampledCompletions") -> None:
        self.model, self.id = other.model or self.model, other.id or self.id
        self.choices += other.choices
        self.context_tokens = max(self.context_tokens, other.context_tokens)
        self.size += other.size
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.details |= {name: self.details.get(name, 0) + value for name, value in other.details.items()}

    def __len__(self) -> int:
        return len(self.choices)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def token_counts(self) -> dict[str, float]:
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens, **self.details}

    @property
    def usage(self) -> Json:
        """The token usage in the form of OpenAI's API; the details in it are missing unless the upstream told them."""
        used: Json = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.tokens,
        }
        for name, of in (("cached_tokens", "prompt"), ("reasoning_tokens", "completion")):
            if name in self.details:
                used[f"{of}_tokens_details"] = {name: int(self.details[name])}
        return used


class TokenCounter:
    """The tokens of an answer that is passed on: as many as it reports at last; without a report, or before it comes, a
    token for every four bytes of the request, and of the answer, or for each event of a stream."""

    def __init__(self, request_bytes: int, streamed: bool) -> None:
        self._request_bytes, self._streamed, self._end = request_bytes, streamed, b""
        self._size = self._events = 0

    def read(self, part: bytes) -> None:
        self._size += len(part)
        self._events += part.count(b"data:")
        self._end = (self._end + part)[-_REPORT_BYTES:]

    @property
    def tokens(self) -> int:
        reported = _TOTAL.findall(self._end)
        return (
            int(reported[-1])
            if reported
            else self._request_bytes // TOKEN + (self._events if self._streamed else self._size // TOKEN)
        )


def _parse_json(answer: bytes, keep: Callable[[Json], Json]) -> Any:
    """The value of an answer in JSON, of each object what `keep` returns. Raises `UpstreamFailed`."""
    try:
        if b"\\ud" in answer or b"\\uD" in answer:
            from_json(answer)  # unlike Python's, it refuses half a surrogate pair, which nobody could be sent
        # whatever `keep` does, other threads get a turn when it is called: a long answer takes seconds
        return json.loads(answer.decode(), object_hook=keep)
    except (ValueError, RecursionError):
        raise UpstreamFailed("the upstream's answer is not JSON") from None


def _unchanged(value: Json) -> Json:
    return value


def _logprobs(kept: Collection[str], value: Json) -> Json:
    """Of a token, what a vote needs: the rest is several times as much to keep, and for the garbage collector."""
    return {name: value[name] for name in kept if name in value} if "logprob" in value else value


def read_completions(answer: bytes, count: int, kept: KeptFields) -> SampledCompletions:
    """The completions of an answer, at most as many as were asked for. Raises `UpstreamFailed`."""
    value = _parse_json(answer, _unchanged if kept is None else partial(_logprobs, kept))
    try:
        read = RawChatResponse.model_validate(value)
    except ValidationError:
        reason = error_message(value)
        problem = f"an error: {reason}" if reason else "not a chat completion"
        raise UpstreamFailed(f"the upstream's answer is {problem}") from None
    readable = list(map(read_choice, read.choices[:count]))
    if not any(readable):
        raise UpstreamFailed("the upstream's answer is not a chat completion")
    choices = [choice or UNREADABLE for choice in readable]
    usage = read.usage or UsageInfo()
    if "timings" in value:  # llama.cpp, which counts the first choice alone: the others' tokens are as their lengths
        first, *others = (len(encoded(choice["message"])) for choice in choices)
        written = usage.completion_tokens
        usage.completion_tokens = written + round(written * sum(others) / first)
    return SampledCompletions.of(read.model, choices, usage, len(answer), read.id)


def read_choice(sent: Any) -> Json | None:
    try:
        RawChoice.model_validate(sent)
    except ValidationError:
        return None
    return as_openai(sent)


def read_models(answer: bytes) -> list[Json]:
    """The models in a list of them. Raises `UpstreamFailed`."""
    try:
        return RawModelList.model_validate(_parse_json(answer, _unchanged)).data
    except ValidationError:
        raise UpstreamFailed("the upstream's answer is not a list of models") from None
