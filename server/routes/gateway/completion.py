"""What a completion consists of: its text, thoughts and tool calls, in the form of OpenAI's API."""

import json
import uuid
from typing import Any

from unprm.openai.models import Json


def as_openai(choice: Json) -> Json:
    """A completion as OpenAI's API has it, from an upstream that speaks a dialect: the parts of a text are joined, the
    arguments of a call are the text of a JSON object, each call has an id, and a legacy `function_call` is a call."""
    message = dict(choice["message"])
    if "content" in message:
        message["content"] = joined_text(message["content"])
    calls = message.pop("tool_calls", None)
    if isinstance(legacy := message.get("function_call"), dict) and not calls:
        calls = [{"function": legacy}]
    if isinstance(calls, list) and (made := [_call(call) for call in calls if isinstance(call, dict)]):
        message["tool_calls"] = made
    return choice | {"message": message}


def joined_text(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _call(call: Json) -> Json:
    made: Json = {"type": "function"} | call | {"id": call.get("id") or f"call_{uuid.uuid4().hex}"}
    made.pop("index", None)  # which only streams have
    if isinstance(function := call.get("function"), dict):
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        # some servers say nothing, or null, where there are no arguments
        made["function"] = function | {"arguments": "{}" if text in ("", "null") else text}
    return made


def calls_of(choice: Json) -> list[Json]:
    calls: list[Json] = choice["message"].get("tool_calls", [])
    return calls


def text_of(choice: Json) -> str:
    return _text(choice, "content")


def refusal_of(choice: Json) -> str:
    return _text(choice, "refusal")


def thoughts_of(choice: Json) -> str:
    """The thoughts that the upstream sends beside the text."""
    return _text(choice, "reasoning_content") or _text(choice, "reasoning")


def _text(choice: Json, field: str) -> str:
    text = choice["message"].get(field)
    return text if isinstance(text, str) else ""


def length_of(choice: Json) -> int:
    calls = calls_of(choice)
    return len(text_of(choice)) + (len(json.dumps(calls)) if calls else 0)


def is_cut(choice: Json) -> bool:
    return choice.get("finish_reason") == "length"
