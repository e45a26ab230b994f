"""OpenAI's responses API: a request for a whole text becomes a chat request, and the elected completion a response;
others are passed on."""

import time
import uuid
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from unprm.errors import InvalidRequest
from unprm.openai.models import Json, JsonList
from unprm.wire import Request

from .election import ElectionResult
from .schema import (
    NAMED,
    ChatRequest,
    ElectionSettings,
    UpstreamRequest,
    chat_request,
    read_all,
)

_PASSED_ON = frozenset({"prompt_cache_key", "safety_identifier", "service_tier", "user"})
"""Fields that mean the same in the chat API."""
_SAME = {"model", "temperature", "top_p", "unprm", *_PASSED_ON}
_IGNORED = frozenset({"include", "max_tool_calls", "parallel_tool_calls", "stream_options"})
"""Fields of which nothing in an answer without tools depends."""
_DEFAULTS: Json = {"truncation": "disabled"}
"""Values of fields that ask for nothing."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the reason why the completion stopped."""


class TextPart(BaseModel):
    """A piece of a message's text, or what was said instead."""

    type: Literal["input_text", "output_text", "refusal"]
    text: str = Field(validation_alias=AliasChoices("text", "refusal"))


class InputMessage(Request):
    """A message of the conversation so far; a response's own, too."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]

    def for_chat(self) -> Json:
        """The message in the form of the chat API, where `developer` is `system`."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


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
    """A request for a response. With tools or as a stream it is passed on unchanged, without a vote; otherwise nothing
    is stored, whatever `store` says."""

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

    @property
    def passed_on(self) -> bool:
        return self.stream or (bool(self.tools) and self.tool_choice != "none")

    @model_validator(mode="after")
    def _check(self) -> Self:
        extra = self.model_extra or {}
        meant = [name for name, value in extra.items() if value and value != _DEFAULTS.get(name)]
        unread = [f"/{name[:64]}" for name in meant if name not in _PASSED_ON | _IGNORED]
        if self.passed_on and (self.unprm != ElectionSettings() or NAMED.fullmatch(self.model)):
            raise ValueError("there is no vote here with tools or in a stream: /v1/chat/completions has one")
        if unread and not self.passed_on:
            raise InvalidRequest(f"{unread[0]} can't be combined with a vote", unread[0])
        return self

    def chat(self) -> ChatRequest:
        """The corresponding chat request. Raises `InvalidRequest`."""
        items = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        # a thought is part of what a model was told only if it says so itself: the chat API has no place for it
        turns = read_all(InputMessage, [each for each in items if each.get("type") != "reasoning"], "/input")
        before = [{"role": "system", "content": self.instructions}] if self.instructions else []
        fields = self.model_dump(include=_SAME, exclude_unset=True)
        fields["messages"] = [*before, *(message.for_chat() for message in turns)]
        fields |= {"max_tokens": self.max_output_tokens, "reasoning_effort": self.reasoning.effort}
        fields |= self.text.for_chat()
        return chat_request({name: value for name, value in fields.items() if value is not None})


def response(request: ResponsesRequest, id: str, elected: ElectionResult) -> Json:
    usage, choice = elected.sampled.usage, elected.choices[0]
    content: Json = {"type": "output_text", "text": choice.text, "annotations": []}
    if choice.refusal:
        content = {"type": "refusal", "refusal": choice.refusal}
    thoughts = {"type": "reasoning_text", "text": choice.thoughts}
    incomplete = _INCOMPLETE.get(choice.finish or "")
    status = "completed" if incomplete is None else "incomplete"
    reasoning = {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": [], "content": [thoughts]}
    message = {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": status,
        "content": [content],
    }
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": incomplete and {"reason": incomplete},
        "model": elected.sampled.model or request.model,
        "instructions": request.instructions,
        "metadata": request.metadata,
        "output": [reasoning, message] if choice.thoughts else [message],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
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
