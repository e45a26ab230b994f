"""OpenAI's responses API: a request becomes a chat request, the elected completion a response, whole or as events."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from unprm.errors import InvalidRequest
from unprm.openai.completion import Completion
from unprm.openai.models import Json, JsonList
from unprm.wire import Request

from .election import ElectionResult, ElectionUpdate
from .schema import ChatRequest, ElectionSettings, UpstreamRequest, chat_request, content, function, read_all
from .stream import AnswerFormat, describe, parts_of, typed_event

_PASSED_ON = frozenset({"parallel_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "user"})
"""Fields that mean the same in the chat API."""
_SAME = {"model", "temperature", "top_p", "stream", "unprm", *_PASSED_ON}
_IGNORED = frozenset({"client_metadata", "include", "max_tool_calls", "stream_options"})
"""Fields on which nothing here depends."""
_DEFAULTS: Json = {"truncation": "disabled"}
"""Values of fields that ask for nothing."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the reason why the completion stopped."""
_FREE: Json = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""Parameters of a custom tool, whose input is any text, as a function: few upstreams know custom tools."""


class Part(BaseModel):
    """A piece of what was said, or what was said instead."""

    type: Literal["input_text", "output_text", "reasoning_text", "refusal", "input_image"]
    text: str = Field(default="", validation_alias=AliasChoices("text", "refusal"))
    image_url: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type == "input_image" and not self.image_url:
            raise ValueError("an image is sent by its image_url: files of OpenAI's are not known here")
        return self

    @property
    def for_chat(self) -> Json:
        if self.type == "input_image":
            return {"type": "image_url", "image_url": {"url": self.image_url}}
        return {"type": "text", "text": self.text}


_Said = str | Annotated[list[Part], Field(fail_fast=True)]


class Item(Request):
    """An item of the conversation: a message, a thought, a tool call or its output, as responses have them."""

    type: Literal[
        "message", "reasoning", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"
    ] = "message"
    role: Literal["user", "assistant", "system", "developer"] = "user"
    content: _Said = ""
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    input: str = ""
    output: _Said = ""

    @property
    def call(self) -> Json:
        """A tool call in the form of the chat API."""
        arguments = self.arguments if self.type == "function_call" else json.dumps({"input": self.input})
        return {"id": self.call_id} | function(name=self.name, arguments=arguments)


class TextFormat(Request):
    """The form of the answer: text, or JSON of a schema."""

    model_config = ConfigDict(extra="allow", serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    schema_: Json | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextTerms(Request):
    """What the answer's text has to be like."""

    model_config = ConfigDict(extra="allow")

    format: TextFormat = TextFormat()
    verbosity: str | None = None

    def for_chat(self) -> Json:
        form, fields = self.format, {"verbosity": self.verbosity}
        if form.type == "text":
            return fields
        schema = form.model_dump(exclude={"type"}, exclude_unset=True)
        more = {"json_schema": schema} if form.type == "json_schema" else {}
        return fields | {"response_format": {"type": form.type} | more}


class Reasoning(Request):
    """How much the model thinks; `summary` and others are ignored: thoughts come as the upstream writes them."""

    model_config = ConfigDict(extra="allow")

    effort: str | None = None


class ResponsesRequest(UpstreamRequest):
    """A request for a response. Nothing is stored, whatever `store` says. Tools that OpenAI runs are left out."""

    input: str | JsonList = Field(min_length=1)
    instructions: str | None = None
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    top_p: float | None = Field(default=None, allow_inf_nan=False)
    max_output_tokens: int | None = Field(default=None, ge=1)
    n: Literal[1] | None = None
    best_of: Literal[1] | None = None
    stream: bool = False
    tools: JsonList = Field(default=[])
    tool_choice: str | Json | None = None
    store: bool | None = None
    metadata: Annotated[dict[str, str], Field(fail_fast=True)] | None = None
    text: TextTerms = TextTerms()
    reasoning: Reasoning = Reasoning()
    unprm: ElectionSettings = ElectionSettings()

    @model_validator(mode="after")
    def _check(self) -> Self:
        extra = self.model_extra or {}
        meant = [name for name, value in extra.items() if value and value != _DEFAULTS.get(name)]
        if unread := [f"/{name[:64]}" for name in meant if name not in _PASSED_ON | _IGNORED]:
            raise InvalidRequest(f"{unread[0]} can't be combined with a vote", unread[0])
        return self

    @property
    def custom_tools(self) -> set[Any]:
        """Names of tools whose input is a text."""
        return {str(tool.get("name")) for tool in self.tools if tool.get("type") == "custom"}

    def chat(self) -> ChatRequest:
        """The corresponding chat request. Raises `InvalidRequest`."""
        items = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        before = [{"role": "system", "content": self.instructions}] if self.instructions else []
        fields = self.model_dump(include=_SAME, exclude_unset=True)
        fields["messages"] = [*before, *_messages(read_all(Item, items, "/input"))]
        if tools := [_tool(tool) for tool in self.tools if tool.get("type") in ("function", "custom")]:
            fields |= {"tools": tools, "tool_choice": self._choice()}
        else:
            fields.pop("parallel_tool_calls", None)
        fields |= {"max_tokens": self.max_output_tokens, "reasoning_effort": self.reasoning.effort}
        fields |= self.text.for_chat()
        return chat_request({name: value for name, value in fields.items() if value is not None})

    def _choice(self) -> str | Json | None:
        """`tool_choice` in the form of the chat API."""
        choice = self.tool_choice
        if not isinstance(choice, dict):
            return choice
        if choice.get("type") in ("function", "custom"):
            return function(name=choice.get("name"))
        if choice.get("type") != "allowed_tools" or not isinstance(tools := choice.get("tools"), list):
            raise InvalidRequest("expected a function, a custom tool or allowed_tools", "/tool_choice")
        named = [function(name=tool.get("name")) for tool in tools if isinstance(tool, dict)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": named}}


class ResponseFormat(AnswerFormat):
    """A response, or its events; those that report the election's progress are of type `response.in_progress`."""

    def __init__(self, request: ResponsesRequest, id: str) -> None:
        self._custom, self._numbers = request.custom_tools, count()
        self._begun: Json = {
            "id": id,
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": request.model,
            "instructions": request.instructions,
            "metadata": request.metadata,
            "output": [],
            "parallel_tool_calls": bool((request.model_extra or {}).get("parallel_tool_calls", request.tools)),
            "tool_choice": request.tool_choice or ("auto" if request.tools else "none"),
            "tools": request.tools,
            "usage": None,
        }

    def whole(self, elected: ElectionResult) -> Json:
        usage, choice = elected.sampled.usage, elected.choices[0]
        incomplete = _INCOMPLETE.get(choice.finish or "")
        status = "completed" if incomplete is None else "incomplete"
        return self._begun | {
            "status": status,
            "incomplete_details": incomplete and {"reason": incomplete},
            "model": elected.sampled.model or self._begun["model"],
            "output": [item | {"status": status} for item in self._output(choice)],
            "usage": {
                "input_tokens": usage.prompt_tokens,
                # required by the API, also where an upstream tells nothing
                "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
                "total_tokens": usage.total,
            },
            "unprm": elected.report.model_dump(mode="json"),
        }

    def _output(self, choice: Completion) -> Iterator[Json]:
        """The items of a completion: its thoughts, its text unless there are calls alone, its calls."""
        if choice.thoughts:
            thoughts = {"type": "reasoning_text", "text": choice.thoughts}
            yield {"type": "reasoning", "id": _new("rs"), "summary": [], "content": [thoughts]}
        if choice.text or choice.refusal or not choice.calls:
            content: Json = {"type": "output_text", "text": choice.text, "annotations": []}
            if choice.refusal:
                content = {"type": "refusal", "refusal": choice.refusal}
            yield {"type": "message", "id": _new("msg"), "role": "assistant", "content": [content]}
        for call in choice.calls:
            made = call.get("function") or {}
            common, arguments = {"call_id": call["id"], "name": made.get("name")}, made.get("arguments", "{}")
            if made.get("name") in self._custom:
                yield {"type": "custom_tool_call", "id": _new("ctc"), "input": _input(arguments)} | common
            else:
                yield {"type": "function_call", "id": _new("fc"), "arguments": arguments} | common

    def begin(self) -> bytes:
        return self._event("response.created", response=self._begun)

    def update(self, update: ElectionUpdate) -> bytes:
        return self._event("response.in_progress", response=self._begun, unprm=describe(update))

    def answer(self, elected: ElectionResult) -> Iterator[bytes]:
        """The rest: the items, then the whole response."""
        whole = self.whole(elected)
        for place, item in enumerate(whole["output"]):
            yield from self._item(item, {"output_index": place, "item_id": item["id"]})
        yield self._event(f"response.{whole['status']}", response=whole)

    def fail(self, problem: bytes) -> bytes:
        details: Json = json.loads(problem)
        failed = self._begun | {"status": "failed", "error": details["error"]}
        return self._event("response.failed", response=failed, error=details["error"])

    def _item(self, item: Json, place: Json) -> Iterator[bytes]:
        index = {"output_index": place["output_index"]}
        field = next(name for name in ("content", "arguments", "input") if name in item)
        yield self._event(
            "response.output_item.added", item=item | {"status": "in_progress", field: type(item[field])()}, **index
        )
        if field == "content":
            (part,) = item["content"]
            place |= {"content_index": 0}
            kind = part["type"]
            text = kind if kind == "refusal" else "text"
            yield self._event("response.content_part.added", part=part | {text: ""}, **place)
            more: Json = {"logprobs": []} if kind == "output_text" else {}
            yield from self._pieces(f"response.{kind}", text, part[text], place | more)
            yield self._event("response.content_part.done", part=part, **place)
        else:
            kind = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
            yield from self._pieces(f"response.{kind}", field, item[field], place)
        yield self._event("response.output_item.done", item=item, **index)

    def _pieces(self, kind: str, field: str, text: str, place: Json) -> Iterator[bytes]:
        for piece in parts_of(text):
            yield self._event(f"{kind}.delta", delta=piece, **place)
        yield self._event(f"{kind}.done", **{field: text}, **place)

    def _event(self, kind: str, **fields: Any) -> bytes:
        return typed_event(kind, sequence_number=next(self._numbers), **fields)


def _messages(items: Sequence[Item]) -> list[Json]:
    """The messages of the chat API: calls are of the assistant's message before them, with the thoughts that led to
    them; other thoughts are left out."""
    made: list[Json] = []
    thoughts = ""
    for item in items:
        if item.type == "reasoning":
            thoughts = str(_said(item.content))
        elif item.type in ("function_call", "custom_tool_call"):
            if not made or made[-1]["role"] != "assistant":
                made.append({"role": "assistant", "content": ""})
            made[-1].setdefault("tool_calls", []).append(item.call)
            if thoughts:
                made[-1]["reasoning_content"] = thoughts
        elif item.type == "message":
            made.append({"role": "system" if item.role == "developer" else item.role, "content": _said(item.content)})
            thoughts = thoughts if item.role == "assistant" else ""
        else:
            made.append({"role": "tool", "tool_call_id": item.call_id, "content": _said(item.output)})
            thoughts = ""
    return made


def _said(said: str | Sequence[Part]) -> str | list[Json]:
    return said if isinstance(said, str) else content([part.for_chat for part in said], "")


def _tool(tool: Json) -> Json:
    fields = {name: tool.get(name) for name in ("name", "description", "parameters", "strict")}
    if tool["type"] == "custom":
        fields["parameters"] = _FREE
    return function(**{name: value for name, value in fields.items() if value is not None})


def _input(arguments: str) -> str:
    """The text in a call of a custom tool; all of them, if it is not where it belongs."""
    try:
        return str(json.loads(arguments)["input"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return arguments


def _new(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"
