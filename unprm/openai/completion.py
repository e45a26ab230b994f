"""Completions as servers of OpenAI's API send them, the tokens that they count, and several completions of one prompt.

llama.cpp refuses a request for more completions (`n`) than it has slots. Ollama and LM Studio know no `n` and give one.
"""

import json
import uuid
from collections.abc import Callable, Coroutine, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import to_json

from unprm.openai.errors import APIResponseError, APIStatusError, error_inside
from unprm.openai.facts import Facts
from unprm.openai.models import Json, LogProbs, Token
from unprm.task_groups import gather_outcomes

T = TypeVar("T")
Known = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is missing where nobody knows its value."""
Part = TypeVar("Part", bound=Sized)
Ask = Callable[[int, int], Coroutine[Any, Any, Part]]
"""Asks for choices: the number of the first, from 0, which makes its seed, and how many. Returns those that came."""
FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
"""The values of `finish_reason` that the API names; servers send others while a completion goes on, as `""`."""


@dataclass(frozen=True)
class Completion:
    """One completion of a prompt.

    `calls`: its tool calls. `thoughts`: reasoning that the server sends beside the text. `finish`: why it ended, one
    of `FINISHES`, None if the server says none of them. `length`: characters of the text and the calls. `raw`: all that
    the server sent, in OpenAI's form: the parts of a text joined, the arguments of a call as the text of a JSON object,
    each call with an id of its own, a legacy `function_call` as a call. `confidence`: for a vote, in [0, 1].
    """

    raw: Json
    text: str = ""
    calls: Sequence[Json] = ()
    thoughts: str = ""
    refusal: str = ""
    finish: str | None = None
    length: int = 0
    confidence: float | None = None

    @classmethod
    def read(cls, sent: Any) -> Self | None:
        """Reads an element of `choices`, of a chat or of `/completions`. None if it is no completion, or has a number
        that JSON can't hold, except in its log-probabilities."""
        if not isinstance(sent, dict) or not is_json(sent | {"logprobs": None}):
            return None
        message = sent.get("message", {"content": sent["text"]} if "text" in sent else None)
        if not isinstance(message, dict):
            return None
        finish = finish_of(sent)
        message = dict(message)
        if "content" in message:
            message["content"] = joined_text(message["content"])
        calls = message.pop("tool_calls", None)
        if isinstance(legacy := message.get("function_call"), dict) and not calls:
            calls = [{"function": legacy}]
        calls = _calls(calls) if isinstance(calls, list) else []
        if calls:
            message["tool_calls"] = calls

        def said(*names: str) -> str:
            return next((text for name in names if isinstance(text := message.get(name), str) and text), "")

        return cls(
            raw=sent | {"message": message, "finish_reason": finish},
            text=(text := said("content")),
            calls=calls,
            thoughts=said("reasoning_content", "reasoning"),
            refusal=said("refusal"),
            finish=finish,
            length=len(text) + (len(json.dumps(calls)) if calls else 0),
        )

    @property
    def index(self) -> int:
        return index if isinstance(index := self.raw.get("index"), int) else 0

    @property
    def ended_by(self) -> str:
        """`finish`; where the server says none, what a completion of its kind has."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    @property
    def is_cut(self) -> bool:
        return self.finish == "length"

    @cached_property
    def logprobs(self) -> LogProbs:
        """Raises `APIResponseError` if the server's can't be read."""
        try:
            return LogProbs.model_validate(self.raw.get("logprobs") or {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise APIResponseError(
                f"a completion whose log-probabilities can't be read: {place}: {first['msg']}"
            ) from None

    @property
    def tokens(self) -> Sequence[Token]:
        """Its tokens with their log-probabilities; empty if the server sends none."""
        return self.logprobs.content or ()

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The token ids; None if the server sends none."""
        sent = self.raw.get("token_ids") or [token.id for token in self.tokens]
        none = self.raw.get("token_ids") is None and self.logprobs.content is None
        return None if none or not all(isinstance(id, int) for id in sent) else tuple(sent)


UNREADABLE = Completion({"message": {"role": "assistant", "content": None}})
"""In place of a completion that can't be read, which costs only itself."""


def _number(*kinds: type, otherwise: int | None = None) -> BeforeValidator:
    """A number of one of these kinds, else `otherwise`."""
    return BeforeValidator(lambda sent: sent if type(sent) in kinds and 0 <= sent <= 2**53 else otherwise)


_Count = Annotated[int, _number(int, otherwise=0)]
_Told = Annotated[Known[int], _number(int)]


class UsageDetails(BaseModel):
    """What only some servers tell of a completion, missing otherwise: `cached_tokens` of the prompt; `reasoning_tokens`
    of the completion; `cost` in the server's unit."""

    cached_tokens: _Told = None
    reasoning_tokens: _Told = None
    cost: Annotated[Known[float], _number(int, float), AfterValidator(lambda cost: cost and round(cost, 12))] = None


class TokenUsage(UsageDetails):
    """The tokens of completions by the server's count, 0 if it doesn't tell."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0

    @classmethod
    def read(cls, sent: Any) -> "TokenUsage":
        """Reads the `usage` of an answer. What can't be read counts as not told: vendors extend it each in their own
        way, and a completion is worth more than the count of its tokens."""
        fields = sent if isinstance(sent, dict) else {}
        prompt, completion = (
            details if isinstance(details := fields.get(f"{part}_tokens_details"), dict) else {}
            for part in ("prompt", "completion")
        )
        details = {"cached_tokens": prompt.get("cached_tokens"), "reasoning_tokens": completion.get("reasoning_tokens")}
        usage = TokenUsage.model_validate(fields | details)
        if usage.cached_tokens is not None:
            usage.cached_tokens = min(usage.cached_tokens, usage.prompt_tokens)
        return usage

    @property
    def total(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def details(self) -> UsageDetails | None:
        """None if no server told any."""
        known = self.model_dump(include={"cached_tokens", "reasoning_tokens", "cost"})
        return UsageDetails(**known) if known else None

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        mine, others = self.model_dump(), other.model_dump()
        return TokenUsage(**{name: mine.get(name, 0) + others.get(name, 0) for name in mine | others})

    def __sub__(self, other: "TokenUsage") -> "TokenUsage":
        others = other.model_dump()
        return TokenUsage(**{name: value - others.get(name, 0) for name, value in self.model_dump().items()})

    def for_chat(self) -> Json:
        """In the form of OpenAI's API; the details in it are missing unless a server told them."""
        details = {
            "prompt_tokens_details": self.model_dump(include={"cached_tokens"}),
            "completion_tokens_details": self.model_dump(include={"reasoning_tokens"}),
        }
        used = self.model_dump(include={"prompt_tokens", "completion_tokens"}) | {"total_tokens": self.total}
        return used | {name: values for name, values in details.items() if values}


@dataclass(slots=True)
class Samples:
    """Completions of one prompt, from one answer or several. `usage`: the sum; `context_tokens`: the prompt's, counted
    once; `size`: bytes of the answers; `model` and `id`: of the last answer."""

    completions: list[Completion] = field(default_factory=list)
    model: str = ""
    id: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)
    context_tokens: int = 0
    size: int = 0

    @classmethod
    def read(cls, answer: Any, count: int | None = None, size: int = 0) -> "Samples":
        """Reads an answer, of its completions at most `count`. Raises `APIResponseError`."""
        sent = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(sent, list):
            raise error_inside(answer) or APIResponseError("not a chat completion")
        whole = [choice for choice in sent[:count] if not failed(choice)]
        if sent and not whole:
            raise error_inside(sent[0]) or APIResponseError("an error", "without a reason")
        read = list(map(Completion.read, whole))
        if read and not any(read):
            raise APIResponseError("not a chat completion")
        completions, usage = [each or UNREADABLE for each in read], TokenUsage.read(answer.get("usage"))
        if "timings" in answer:  # llama.cpp, which counts the first alone: the others' tokens are as their lengths
            first, *others = (len(json.dumps(each.raw.get("message"))) for each in completions)
            usage.completion_tokens += round(usage.completion_tokens * sum(others) / first)
        model, id = (str(answer.get(name) or "") for name in ("model", "id"))
        return cls(completions, model, id, usage, usage.prompt_tokens, size)

    def count(self, other: "Samples") -> None:
        """Adds what others cost, without their completions."""
        self.model, self.id = other.model or self.model, other.id or self.id
        self.usage += other.usage
        self.context_tokens = max(self.context_tokens, other.context_tokens)
        self.size += other.size

    def add(self, other: "Samples") -> None:
        self.count(other)
        self.completions += other.completions

    def __len__(self) -> int:
        return len(self.completions)


class Choices:
    """How many choices one server accepts in a request, found by trying: the fact `n`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def gather(self, ask: Ask[Part], count: int, limit: int | None = None) -> list[Part | Exception]:
        """Asks for `count` choices in requests of at most `limit`; returns the result or error of every request, in the
        order of the choices.

        A request refused with an `APIStatusError` naming `n` is repeated in halves, missing choices one by one. Once
        it is known, later calls begin with the accepted size.
        """
        known = self._facts.get("n")
        first_size = size = min(number for number in (known, limit, count) if number is not None)
        left, results = [(0, count)], list[tuple[int, Part | Exception]]()
        while left:
            parts = [
                (start, min(size, first + total - start))
                for first, total in left
                for start in range(first, first + total, size)
            ]
            left = []
            for (first, total), result in zip(parts, await gather_outcomes(ask(*part) for part in parts), strict=True):
                if total > 1 and isinstance(result, APIStatusError) and result.refuses("n"):
                    left.append((first, total))
                    size = min(size, total // 2)
                    continue
                results.append((first, result))
                if not isinstance(result, Exception) and len(result) < total and total > 1:
                    left.append((first + len(result), total - len(result)))
                    size = max(1, min(size, len(result)))
        results.sort(key=itemgetter(0))
        outcomes = [result for _, result in results]
        if not all(isinstance(outcome, Exception) for outcome in outcomes):
            if size < first_size:
                self._facts.show("n", size)
            elif size > 1:
                self._facts.contradict("n")
        return outcomes


def joined_text(content: Any) -> Any:
    """A content whose text parts are joined."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def finish_of(choice: Json) -> str | None:
    """The reason why a choice ended; None if the server names none of the API's."""
    named = choice.get("finish_reason")
    return named if isinstance(named, str) and named in FINISHES else None


def failed(choice: Any) -> bool:
    """Whether a server says that a choice broke off, as routers do with an error of the provider's."""
    return isinstance(choice, dict) and bool(choice.get("error") or choice.get("finish_reason") == "error")


def _calls(sent: Sequence[Any]) -> list[Json]:
    """The tool calls, without empty ones, in OpenAI's form, each with an id of its own."""
    calls = dict[str, Json]()
    for call in sent:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or (isinstance(function, dict) and not any(function.values())):
            continue
        id = sent_id if isinstance(sent_id := call.get("id"), str) else ""
        if not id or id in calls:
            id = f"call_{uuid.uuid4().hex}"
        calls[id] = made = call | {"type": call.get("type") or "function", "id": id}
        made.pop("index", None)  # which only streams have
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            # some servers say nothing, or null, where there are no arguments
            made["function"] = function | {"arguments": "{}" if text in ("", "null") else text}
    return list(calls.values())


def is_json(value: Any) -> bool:
    """Whether JSON can hold a value: no number in it is infinite, NaN, or longer than Python writes; nor is it nested
    deeper than others read."""
    try:
        json.dumps(value, allow_nan=False)
        to_json(value)
    except (ValueError, RecursionError):
        return False
    return True
