"""Completions of a chat that arrive as server-sent events, put together from their deltas."""

from collections.abc import Iterator
from operator import add
from typing import Any

from pydantic_core import from_json

from unprm.openai.completion import UNREADABLE, Completion, TokenUsage, failed, finish_of, joined_text
from unprm.openai.errors import APIResponseError, error_inside
from unprm.openai.models import Json

_DATA = b"data:"
_DONE = b"[DONE]"
_IN_PIECES = ("arguments", "input")
"""Fields of a call that come in pieces; the others come whole, and some servers repeat them."""


class CompletionStream:
    """At most `count` completions while they are written: other indices, and deltas after the end of a completion, are
    left out. `usage`: their tokens, once the server has told them; `written`: deltas so far, about as many as tokens.
    """

    def __init__(self, count: int) -> None:
        self.model = self.id = ""
        self.usage: TokenUsage | None = None
        self.written = 0
        self._kept = 0
        self._waited_for = set(range(count))
        self._open: dict[int, Json] = {}
        self._rest = bytearray()
        self._counted = False

    @property
    def size(self) -> int:
        return self._kept + len(self._rest)

    def feed(self, data: bytes) -> list[tuple[int, Completion | str]]:
        """Reads the next part of the stream; returns pieces of texts, and completions that end, each with its index.
        Raises `APIResponseError`, and the error that the server sends."""
        parts: list[tuple[int, Completion | str]] = []
        self._rest += data
        if b"\n" not in data:  # a long line is not copied for each part of it
            return parts
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(_DATA) and (event := line.removeprefix(_DATA).strip()):
                parts += self._read(event) if event != _DONE else map(self._end, list(self._open))
        return parts

    def _read(self, event: bytearray) -> Iterator[tuple[int, Completion | str]]:
        try:
            value = from_json(event, allow_inf_nan=False)
            if (error := error_inside(value)) is not None:
                raise error
            self.model, self.id = (str(value.get(name) or getattr(self, name)) for name in ("model", "id"))
            usage = sent if isinstance(sent := value.get("usage"), dict) else None
            choices = value.get("choices") or ()  # without any it may be a sign of life
            if usage is not None:
                self._count(TokenUsage.read(usage), last=not choices)
            for part in choices:
                yield from self._add(part)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise APIResponseError("a stream that is not a chat completion") from None

    def _count(self, usage: TokenUsage, *, last: bool) -> None:
        """`last`: a final count, of which llama.cpp sends one for each completion; otherwise a running count, which
        replaces the earlier."""
        if last and self._counted and self.usage is not None:
            usage.completion_tokens += self.usage.completion_tokens
        self.usage, self._counted = usage, last

    def _add(self, part: Json) -> Iterator[tuple[int, Completion | str]]:
        """Adds a part to its choice; yields its piece of the text, and the completion if it ends with this part."""
        index = part.get("index") or 0
        if index not in self._waited_for:
            return
        choice = self._open.setdefault(index, {"message": {"role": "assistant", "content": None}})
        delta = dict(part.get("delta") or part.get("message") or {})
        delta.pop("role", None)
        delta["content"] = joined_text(delta.get("content"))
        self._kept += _join(choice["message"], delta)
        if isinstance(text := delta["content"], str) and text:
            yield index, text
        self.written += 1
        more = {name: value for name, value in part.items() if name not in ("delta", "message") and value is not None}
        self._kept += sum(len(name) + len(str(value)) for name, value in more.items() if choice.get(name) != value)
        choice |= more
        if failed(part):  # it costs this choice, and is told if the choice is asked for alone
            self._waited_for.remove(index)
            del self._open[index]
        elif finish_of(part):
            yield self._end(index)

    def _end(self, index: int) -> tuple[int, Completion]:
        self._waited_for.remove(index)
        choice = self._open.pop(index)
        if (calls := choice["message"].get("tool_calls")) is not None:
            choice["message"]["tool_calls"] = list(calls.values())
        return index, Completion.read(choice) or UNREADABLE


def _join(message: Json, delta: Json, in_call: bool = False) -> int:
    """Adds a delta to a message, or to a call, of which only `_IN_PIECES` come in pieces; tool calls are kept by their
    numbers. Returns the characters added."""
    added = 0
    for name, value in delta.items():
        before = message.get(name)
        if name == "tool_calls":
            calls: dict[Any, Json] = message.setdefault(name, {})
            for part in value or ():
                place = len(calls) if (index := part.get("index")) is None else index
                if _begins_another(calls.get(place, {}), part):
                    calls[object()] = calls.pop(place)
                added += _join(calls.setdefault(place, {}), part, in_call=True)
        elif isinstance(value, dict) and (in_call or name == "function_call") and name not in _IN_PIECES:
            added += _join(message.setdefault(name, {}), value, in_call=True)
        elif isinstance(value, str | list) and type(before) is type(value) and (name in _IN_PIECES or not in_call):
            message[name] = add(before, value)
            added += len(str(value))
        elif not before if in_call else value is not None:
            message[name] = value
            added += len(name) + len(str(value))
    return added


def _begins_another(call: Json, part: Json) -> bool:
    """Whether a part with the number of a call belongs to a further one: it has a name, and an id of its own."""
    named = isinstance(function := part.get("function"), dict) and function.get("name")
    return bool(named and part.get("id") and call.get("id") and part["id"] != call["id"])
