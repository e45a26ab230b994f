"""A chat completion that arrives as server-sent events: its choices, put together from their deltas."""

from collections.abc import Iterable

from pydantic_core import from_json

from unprm.errors import UnprmError
from unprm.openai.client import error_message
from unprm.openai.models import Json, UsageInfo

_DATA = b"data:"
_DONE = b"[DONE]"


class StreamInvalid(UnprmError):
    """What the upstream streams is not a chat completion, or an error, which is then quoted."""

    code = "upstream_failed"


class Deltas:
    """The choices of a completion while they are written. `usage`: their tokens, once the upstream has told them;
    `written`: deltas so far, which are about as many as tokens; `size`: characters so far."""

    def __init__(self) -> None:
        self.model = ""
        self.usage: UsageInfo | None = None
        self.written = self.size = 0
        self._choices: dict[int, Json] = {}
        self._rest = b""
        self._counted = False

    def feed(self, data: bytes) -> list[tuple[int, Json]]:
        """Reads the next part of the stream; returns the choices that end in it, by their indices. Raises
        `StreamInvalid`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        ended: list[tuple[int, Json]] = []
        for line in lines:
            if line.startswith(_DATA) and (event := line.removeprefix(_DATA).strip()) != _DONE:
                ended += self._read(event)
        return ended

    def _read(self, event: bytes) -> list[tuple[int, Json]]:
        try:
            value = from_json(event, allow_inf_nan=False)
            if (reason := error_message(value)) is not None:
                raise StreamInvalid(f"the upstream's answer is an error: {reason}")
            self.model = value.get("model") or self.model
            if value.get("usage") is not None:
                self._count(UsageInfo.model_validate(value["usage"]), last=not value["choices"])
            return [(choice["index"], made) for choice in value["choices"] if (made := self._add(choice))]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise StreamInvalid("the upstream's stream is not a chat completion") from None

    def _count(self, usage: UsageInfo, *, last: bool) -> None:
        """`last`: it is told after the choices, once, or by llama.cpp once for each; else it is that so far."""
        if last and self._counted and self.usage is not None:
            usage.completion_tokens += self.usage.completion_tokens
        self.usage, self._counted = usage, last

    def _add(self, part: Json) -> Json | None:
        """The choice that ends with this part of it; None if it goes on."""
        choice = self._choices.setdefault(part["index"], {"message": {"role": "assistant", "content": None}})
        message = choice["message"]
        for name, value in (part.get("delta") or {}).items():
            if name == "tool_calls":
                self.size += _add_calls(message.setdefault(name, []), value or ())
            elif isinstance(value, str) and name != "role":
                message[name] = (message.get(name) or "") + value
                self.size += len(value)
        self.written += 1
        choice |= {name: value for name, value in part.items() if name != "delta" and value is not None}
        return None if part.get("finish_reason") is None else self._choices.pop(part["index"])


def _add_calls(calls: list[Json], parts: Iterable[Json]) -> int:
    """Adds parts of tool calls, whose arguments come in pieces; returns the characters added."""
    added = 0
    for part in parts:
        place = part.get("index", len(calls))
        call = next((each for each in calls if each["index"] == place), None)
        if call is None:
            calls.append(call := {"index": place})
        call |= {name: value for name, value in part.items() if not isinstance(value, dict) and value is not None}
        for kind, fields in part.items():
            if isinstance(fields, dict):
                whole = call.setdefault(kind, {})
                for name, value in fields.items():
                    whole[name] = whole[name] + value if isinstance(whole.get(name), str) else value
                    added += len(str(value))
    return added
