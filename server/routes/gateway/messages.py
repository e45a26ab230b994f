"""Anthropic's messages API: a request becomes a chat request, the elected completion a message, whole or as events."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from unprm.errors import InvalidRequest, UpstreamFailed
from unprm.openai.models import Json
from unprm.wire import Request

from .election import ElectionResult, ElectionUpdate
from .schema import ChatRequest, ElectionSettings, UpstreamRequest, chat_request, content, function
from .stream import AnswerFormat, describe, parts_of, typed_event

_STOPPED = {"length": "max_tokens", "content_filter": "refusal"}
"""Reasons why a completion stopped that are no `end_turn`."""
_PASSED_ON = ("frequency_penalty", "presence_penalty", "reasoning_effort", "response_format", "seed")
"""Fields of the chat API that this one lacks. Others that are not read are ignored: clients keep sending more, and none
changes what is asked."""
_UNSIGNED = "unsigned"
"""The signature of thoughts whose upstream signs none: clients drop what has an empty one."""
_DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""For each type of block the field that events fill, and the type and the field of these events."""


class Block(Request):
    """A part of a message; each type has its own fields."""

    type: Literal["text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"]
    text: str = ""
    source: Json = Field(default={})
    is_error: bool = False
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: Json = Field(default={})
    tool_use_id: str = ""
    content: "Blocks" = Field(default=[])

    @property
    def result(self) -> list["Block"]:
        """What a tool returned; if it failed, that comes first: the chat API has no other word for it."""
        return [Block(type="text", text="The tool failed."), *self.content] if self.is_error else self.content

    @property
    def part(self) -> Json:
        """A text or an image, in the form of the chat API. Raises `ValueError` for an image that only Anthropic has."""
        if self.type == "text":
            return {"type": "text", "text": self.text}
        if self.source.get("type") == "file":
            raise ValueError("an image is sent as base64 or by its URL: files of Anthropic's are not known here")
        data = f"data:{self.source.get('media_type')};base64,{self.source.get('data')}"
        return {"type": "image_url", "image_url": {"url": self.source.get("url", data)}}


Blocks = Annotated[
    list[Block],
    Field(fail_fast=True),
    BeforeValidator(
        lambda sent: [{"type": "text", "text": sent}] if isinstance(sent, str) else sent,
        json_schema_input_type=str | list[Block],
    ),
]
"""What is said: blocks, or a text."""


class Turn(Request):
    """A message of the conversation so far."""

    role: Literal["user", "assistant", "system"]
    content: Blocks

    def for_chat(self) -> Iterator[Json]:
        """The corresponding messages of the chat API: the results of tools, then the rest. Thoughts are kept where they
        led to a call, which models go on from."""
        for block in self.content:
            if block.type == "tool_result":
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _content(block.result)}
        spoken = [block for block in self.content if block.type in ("text", "image")]
        used = [block for block in self.content if block.type == "tool_use"]
        calls = [{"id": each.id} | function(name=each.name, arguments=json.dumps(each.input)) for each in used]
        thoughts = [block for block in self.content if block.type == "thinking"] if calls else []
        more: Json = {"tool_calls": calls} if calls else {}
        if thoughts:
            more["reasoning_content"] = "\n".join(each.thinking for each in thoughts)
        signed = [each for each in thoughts if each.signature not in ("", _UNSIGNED)]
        if signed:
            more["thinking_blocks"] = [each.model_dump(include={"type", "thinking", "signature"}) for each in signed]
        if spoken or calls:
            yield {"role": self.role, "content": _content(spoken)} | more


class Tool(Request):
    """A tool."""

    name: str
    description: str = ""
    parameters: Json = Field(validation_alias="input_schema")

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("input_schema") is None:
            raise ValueError("has no input_schema: tools that Anthropic runs, as web_search, can't be called here")
        return data


class ToolChoice(Request):
    """Which tool may or must be called, and whether several at once."""

    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class OutputFormat(BaseModel):
    """The form of the answer: JSON of a schema."""

    type: Literal["json_schema"]
    schema_: Json = Field(alias="schema")


class OutputConfig(Request):
    """What the answer has to be like; `effort` is ignored."""

    format: OutputFormat | None = None


class MessagesRequest(UpstreamRequest):
    """A request of Anthropic's messages API. Fields that are not read here are ignored; some of the chat API are
    passed on."""

    max_tokens: int = Field(ge=1)
    messages: list[Turn] = Field(min_length=1, fail_fast=True)
    system: Blocks = Field(default=[])
    stream: bool = False
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    top_p: float | None = Field(default=None, allow_inf_nan=False)
    top_k: int | None = None
    stop_sequences: list[str] | None = Field(default=None, fail_fast=True)
    tools: list[Tool] = Field(default=[], fail_fast=True)
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig = OutputConfig()
    unprm: ElectionSettings = ElectionSettings()

    def chat(self) -> ChatRequest:
        """The corresponding chat request. Raises `InvalidRequest`."""
        same = {"model", "max_tokens", "stream", "temperature", "top_p", "top_k", "unprm"}
        before = [{"role": "system", "content": _content(self.system)}] if self.system else []
        fields = self.model_dump(include=same.union(_PASSED_ON), exclude_unset=True)
        try:
            fields["messages"] = [*before, *(message for turn in self.messages for message in turn.for_chat())]
        except ValueError as error:
            raise InvalidRequest(str(error), "/messages") from None
        if (form := self.output_config.format) is not None:
            schema = {"name": "answer", "schema": form.schema_, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.stop_sequences:
            fields["stop"] = self.stop_sequences
        if self.tools:
            fields["tools"] = [function(**tool.model_dump(exclude_unset=True)) for tool in self.tools]
        if chosen := self.tool_choice:
            choices: Json = {"tool": function(name=chosen.name), "any": "required"}
            fields["tool_choice"] = choices.get(chosen.type, chosen.type)
            fields |= {"parallel_tool_calls": False} if chosen.disable_parallel_tool_use else {}
        return chat_request(fields)


class CountRequest(MessagesRequest):
    """A conversation whose tokens are to be counted: any server tells the length of a prompt that it has answered, with
    a single token."""

    max_tokens: int = 1


class MessageFormat(AnswerFormat):
    """A message, or its events; those that report the election's progress are of type `ping`."""

    def __init__(self, model: str, id: str) -> None:
        self._begun: Json = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def whole(self, elected: ElectionResult) -> Json:
        """Its `usage` has the conversation's tokens once, and those of all candidates. Raises `UpstreamFailed` if its
        calls can't be made."""
        choice, sampled = elected.choices[0], elected.sampled
        content: list[Json] = []
        if choice.thoughts:
            content.append({"type": "thinking", "thinking": choice.thoughts, "signature": _signature(choice.raw)})
        if text := choice.text or choice.refusal:
            content.append({"type": "text", "text": text})
        # vLLM and SGLang tell the string that ended a text; of a token they tell its number
        ends = (choice.raw.get(name) for name in ("stop_reason", "matched_stop"))
        ended_by = next((end for end in ends if isinstance(end, str)), None)
        reason = _STOPPED.get(choice.finish or "", "end_turn" if ended_by is None else "stop_sequence")
        if choice.calls or choice.refusal:
            reason = "tool_use" if choice.calls else "refusal"
        return self._begun | {
            "model": sampled.model or self._begun["model"],
            "content": content + list(map(_tool_use, choice.calls)),
            "stop_reason": reason,
            "stop_sequence": ended_by if reason == "stop_sequence" else None,
            "usage": {"input_tokens": sampled.context_tokens, "output_tokens": sampled.usage.completion_tokens},
            "unprm": elected.report.model_dump(mode="json"),
        }

    def begin(self) -> bytes:
        return typed_event("message_start", message=self._begun)

    def update(self, update: ElectionUpdate) -> bytes:
        return typed_event("ping", unprm=describe(update))

    def answer(self, elected: ElectionResult) -> Iterator[bytes]:
        """The rest: the blocks, then why it stopped, with the usage and the report."""
        whole = self.whole(elected)
        for index, block in enumerate(whole["content"]):
            field, delta, part = _DELTAS[block["type"]]
            value = block[field]
            begun = block | dict.fromkeys(block.keys() & {field, "signature"}, type(value)())
            yield typed_event("content_block_start", index=index, content_block=begun)
            deltas = [{"type": delta, part: each} for each in _pieces(value)]
            if signature := block.get("signature"):
                deltas.append({"type": "signature_delta", "signature": signature})
            for each in deltas:
                yield typed_event("content_block_delta", index=index, delta=each)
            yield typed_event("content_block_stop", index=index)
        ended = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        yield typed_event("message_delta", delta=ended, usage=whole["usage"], unprm=whole["unprm"])
        yield typed_event("message_stop")


def _pieces(value: str | Json) -> Iterable[str]:
    return parts_of(value) if isinstance(value, str) else [json.dumps(value)]


def _content(blocks: Sequence[Block]) -> str | list[Json]:
    return content([block.part for block in blocks], "\n")


def _signature(choice: Json) -> str:
    """That of the last thought, from an upstream that signs them, as LiteLLM does before Anthropic's models."""
    blocks = choice["message"].get("thinking_blocks")
    signatures = (
        [each.get("signature") for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
    )
    return next((each for each in reversed(signatures) if isinstance(each, str) and each), _UNSIGNED)


def _tool_use(call: Json) -> Json:
    try:
        made = dict(json.loads(call["function"]["arguments"]))
        return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": made}
    except (KeyError, TypeError, ValueError, RecursionError):
        raise UpstreamFailed("no candidate has tool calls whose arguments are JSON objects") from None
