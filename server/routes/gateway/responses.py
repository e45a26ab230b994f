"""OpenAI's responses API: a request for a whole text becomes a chat request, and the elected completion a response;
others are passed on."""

import time
import uuid
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from unprm.errors import InvalidRequest
from unprm.openai.models import Json, JsonList

from .completion import text_of, thoughts_of
from .election import Elected
from .schema import MODEL, NAMED, PROBLEM, SYSTEM, UNPRM, ChatRequest, Election, Passed, chat_request, read_all


class Part(BaseModel):
    """A piece of a message's text."""

    type: Literal["input_text", "output_text"]
    text: str


class Message(BaseModel):
    """A message of the conversation so far."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[Part], Field(fail_fast=True)]

    def for_chat(self) -> Json:
        """The message in the form of the chat API, where `developer` is `system`."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ResponsesRequest(Passed):
    """A request for a response. With tools or as a stream it is passed on unchanged, without a vote; otherwise nothing
    is stored, whatever `store` says."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"model": MODEL, "instructions": SYSTEM, "input": PROBLEM, "unprm": UNPRM}}
    )

    model: str
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
    unprm: Election = Election()

    @property
    def passed_on(self) -> bool:
        """Whether it is passed on, without a vote."""
        return self.stream or (bool(self.tools) and self.tool_choice != "none")

    @model_validator(mode="after")
    def _check(self) -> Self:
        unread = [f"/{name[:64]}" for name, value in (self.model_extra or {}).items() if value]
        if self.passed_on and (self.unprm != Election() or NAMED.fullmatch(self.model)):
            raise ValueError("there is no vote here with tools or in a stream: /v1/chat/completions has one")
        if unread and not self.passed_on:
            raise InvalidRequest(f"{unread[0]} can't be combined with a vote", unread[0])
        return self

    def chat(self) -> ChatRequest:
        """The corresponding chat request. Raises `InvalidRequest`."""
        asked = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
        turns = read_all(Message, asked, "/input")
        before = [{"role": "system", "content": self.instructions}] if self.instructions else []
        fields: Json = {"model": self.model, "messages": [*before, *(message.for_chat() for message in turns)]}
        renamed = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_output_tokens}
        fields |= {name: value for name, value in renamed.items() if value is not None}
        if "unprm" in self.model_fields_set:
            fields["unprm"] = self.unprm.model_dump(exclude_unset=True)
        return chat_request(fields)


def response(request: ResponsesRequest, elected: Elected) -> Json:
    """The elected completion as a response."""
    usage: dict[str, Any] = elected.sampled.usage
    content = {"type": "output_text", "text": text_of(elected.choices[0]), "annotations": []}
    thoughts = {"type": "reasoning_text", "text": thoughts_of(elected.choices[0])}
    reasoning = {"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": [], "content": [thoughts]}
    message = {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": elected.sampled.model or request.model,
        "instructions": request.instructions,
        "metadata": request.metadata,
        "output": [reasoning, message] if thoughts["text"] else [message],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
        "unprm": elected.report.model_dump(mode="json"),
    }
