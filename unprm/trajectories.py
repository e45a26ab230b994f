"""Trajectories of agents as solutions that a PRM can read.

A step is one assistant message: its text, then each of its tool calls as compact JSON. What came before the first of
them (system messages, the user's request, earlier turns) belongs to the problem. Everything between two steps, mostly
results of tools, is evidence: it is read, never scored.

    search({"query":"boarding school founded 1838"})

    [search] Adelaide was founded in 1836 …
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import from_json

from unprm.errors import InvalidRequest, NotText
from unprm.types import Cut, Evidence
from unprm.validation_messages import validation_errors

TOKEN = 4
"""Characters that count as one token of an observation, so that a text is truncated alike for every model."""
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def _as_json(value: object) -> object:
    """Arguments as compact JSON; a text that isn't JSON stays as it is."""
    if isinstance(value, str):
        try:
            value = from_json(value)  # unlike Python's, it refuses half a surrogate pair, which no text can hold
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


Parts = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
_Content = str | Parts | None
"""A text, or parts of which each is checked when it is read."""


class Function(BaseModel):
    """The function that a tool call names, and its arguments: a JSON object, or its text."""

    name: str
    arguments: Annotated[str, BeforeValidator(_as_json)] = "{}"


class ToolCall(BaseModel):
    """A tool call of an assistant message."""

    id: str | None = None
    function: Function


class Message(BaseModel):
    """A message of OpenAI's chat API. `reasoning_content` (or `reasoning`): the model's thoughts."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: _Content = None
    reasoning_content: str | None = Field(default=None, validation_alias=AliasChoices("reasoning_content", "reasoning"))
    tool_calls: list[ToolCall] | None = Field(default=None, fail_fast=True)
    tool_call_id: str | None = None
    name: str | None = None


class ToolParameters(BaseModel):
    """The parameters of a function, by their names."""

    properties: dict[str, Any] | None = None


class ToolFunction(BaseModel):
    """A function as its caller sees it."""

    name: str | None = None
    description: str | None = None
    parameters: ToolParameters | None = None


class AgentTool(ToolFunction):
    """A tool of OpenAI's chat API, or of its responses API, which has the function's fields beside the type. Tools
    that aren't functions have only their type."""

    type: str | None = None
    function: ToolFunction | None = None


class _AtifCall(BaseModel):
    tool_call_id: str | None = None
    function_name: str
    arguments: Any = None


class _AtifResult(BaseModel):
    source_call_id: str | None = None
    content: _Content = None


class _AtifObservation(BaseModel):
    results: list[_AtifResult] | None = Field(default=None, fail_fast=True)


class _AtifStep(BaseModel):
    source: Literal["system", "user", "agent"]
    message: _Content = None
    reasoning_content: str | None = None
    tool_calls: list[_AtifCall] | None = Field(default=None, fail_fast=True)
    observation: _AtifObservation | None = None


class _Atif(BaseModel):
    steps: list[_AtifStep] = Field(min_length=1, max_length=2000, fail_fast=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """How trajectories are read. `observation_tokens`: of a message of evidence; `thoughts`: steps begin with them."""

    evidence: Evidence = "after"
    observation_tokens: int = 500
    thoughts: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """A trajectory as texts. `problem`: before the first step; `messages`: indices of the steps' messages; `final`: the
    last assistant message, which may have an answer; `cut`: by index, messages that are not read whole."""

    problem: str
    steps: tuple[str, ...]
    messages: tuple[int, ...]
    evidence: Evidence
    final: str
    cut: Mapping[int, Cut]


def render(messages: Sequence[Message], reading: Reading) -> Rendered:
    """The trajectory as a PRM reads it; messages without text or calls are no steps. Raises `InvalidRequest`."""
    texts = [text_of(index, message) for index, message in enumerate(messages)]
    steps = {index: step for index, message in enumerate(messages) if (step := _step(message, texts[index], reading))}
    first = min(steps, default=len(messages))
    cut: dict[int, Cut] = {}
    parts: list[list[str]] = []
    names = _names(messages)
    evidence: list[str] = []  # of the step before, or of the next one
    for index in range(first, len(messages)):
        if index in steps:
            parts.append([steps[index]] if reading.evidence == "after" else [*evidence, steps[index]])
            evidence = parts[-1] if reading.evidence == "after" else []
        elif messages[index].role != "assistant" and texts[index]:
            evidence.append(_observation(index, messages[index], names, texts[index], reading, cut))
    return Rendered(
        problem="\n\n".join(_spoken(messages[:first], texts, reading, cut)),
        steps=tuple(map("\n\n".join, parts)),
        messages=tuple(steps),
        evidence=reading.evidence,
        final=texts[max(steps)] if steps else "",
        cut=cut,
    )


def conversation(messages: Sequence[Message], tools: Sequence[AgentTool] = ()) -> str:
    """What was said and done so far, as the next step's problem: the tools, then messages by role, truncated to
    `Reading`'s 500 tokens, without thoughts. Raises as `render`."""
    texts = [text_of(index, message) for index, message in enumerate(messages)]
    parts = [describe_tools(tools), *_spoken(messages, texts, Reading(), {})]
    return "\n\n".join(part for part in parts if part)


def describe_tools(tools: Sequence[AgentTool]) -> str:
    """The tools of a request, a line each: name, parameters and description."""
    lines = []
    for tool in tools:
        function = tool.function or tool
        parameters = ", ".join((function.parameters and function.parameters.properties) or ())
        name, about = function.name or tool.type or "tool", function.description
        lines.append(f"- {name}({parameters})" + (f": {about}" if about else ""))
    return "\n".join(["Tools:", *lines]) if lines else ""


def from_atif(trajectory: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a trajectory in Harbor's format (ATIF 1.0 to 1.7): a step becomes an assistant message, followed
    by one of role `tool` for each result. Raises `InvalidRequest`."""
    try:
        steps = _Atif.model_validate(trajectory).steps
    except ValidationError as error:
        wrong = validation_errors(error, trajectory)[0]
        raise InvalidRequest(f"not a trajectory in ATIF: {wrong.pointer}: {wrong.detail}", wrong.pointer) from None
    messages: list[dict[str, Any]] = []
    for step in steps:
        messages.append(
            {
                "role": "assistant" if step.source == "agent" else step.source,
                "content": step.message,
                "reasoning_content": step.reasoning_content,
                "tool_calls": [
                    {"id": call.tool_call_id,
                     "function": {"name": call.function_name, "arguments": call.arguments or {}}}
                    for call in step.tool_calls or ()
                ],
            }
        )  # fmt: skip
        messages += [
            {"role": "tool", "tool_call_id": result.source_call_id, "content": result.content or ""}
            for result in (step.observation and step.observation.results) or ()
        ]
    return messages


def text_of(index: int, message: Message) -> str:
    """The text of a message, of which this is the index. Raises `NotText` for a part that is something else."""
    if not isinstance(message.content, list):
        return (message.content or "").strip()
    for place, part in enumerate(message.content):
        if not isinstance(part.get("text"), str):
            raise NotText(
                f"message {index} has a part of type {part.get('type')!r}: only text is read",
                f"/messages/{index}/content/{place}",
            )
    return "\n".join(part["text"] for part in message.content).strip()


def _step(message: Message, text: str, reading: Reading) -> str:
    """The text of a step without its evidence; empty if the message is none."""
    if message.role != "assistant":
        return ""
    thoughts = message.reasoning_content if reading.thoughts else None
    said = text if reading.thoughts else _THOUGHTS.sub("", text)
    calls = (f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ())
    return "\n".join(part for part in (thoughts, said.strip(), *calls) if part and part.strip())


def _observation(
    index: int, message: Message, names: Mapping[str | None, str], text: str, reading: Reading, cut: dict[int, Cut]
) -> str:
    most = reading.observation_tokens * TOKEN
    if len(text) > most:
        cut[index] = Cut(len(text), most)
        text = f"{text[: most - most // 2]} … {text[len(text) - most // 2 :]}"
    source = message.name or names.get(message.tool_call_id) or message.role
    return f"[{source}] {text}"


def _spoken(messages: Sequence[Message], texts: Sequence[str], reading: Reading, cut: dict[int, Cut]) -> Iterator[str]:
    """Messages before a step; a single one of the user stands without its role."""
    names = _names(messages)
    said = [
        _step(each, text, reading) if each.role == "assistant" else text
        for each, text in zip(messages, texts, strict=False)
    ]
    shown = [index for index, text in enumerate(said) if text]
    alone = [messages[index].role for index in shown] == ["user"]
    for index in shown:
        message = messages[index]
        if message.role in ("tool", "function"):
            yield _observation(index, message, names, said[index], reading, cut)
        else:
            yield said[index] if alone else f"[{message.role}] {said[index]}"


def _names(messages: Sequence[Message]) -> dict[str | None, str]:
    """The tools that were called, by the ids of the calls."""
    return {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
