"""A completion as a candidate: its text, thoughts and tool calls; what it votes for, and what a PRM reads of it."""

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from unprm.answers.kinds import canonical_json
from unprm.openai.models import Json
from unprm.trajectories import Function, Message, Reading, render
from unprm.types import Solution, Split
from unprm.wire import SolutionIn

NO_ANSWER = " "
"""As the answer of a solution: it states none, wherever one would be looked for."""
NO_CALL = "no call"
"""What texts that state no answer vote for where other candidates call tools."""


class JsonAnswer(SolutionIn):
    """A candidate whose answer is JSON, in canonical form."""

    def candidate(self, split: Split, index: int, max_steps: int) -> Solution:
        """As `SolutionIn.candidate`."""
        return replace(super().candidate(split, index, max_steps), compared_as="json")


class Verbatim(SolutionIn):
    """A candidate whose answer is not a mathematical one: it is compared as text."""

    def candidate(self, split: Split, index: int, max_steps: int) -> Solution:
        """As `SolutionIn.candidate`; it is an action, whose result nobody knows yet."""
        return replace(super().candidate(split, index, max_steps), compared_as="tool_call", evidence="before")


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
    """A message's content, as one text if it comes in parts."""
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
    """The tool calls of a completion."""
    calls: list[Json] = choice["message"].get("tool_calls", [])
    return calls


def text_of(choice: Json) -> str:
    """The text of a completion; empty if it has none."""
    content = choice["message"].get("content")
    return content if isinstance(content, str) else ""


def refusal_of(choice: Json) -> str:
    """What a model says that refuses to answer; empty if it doesn't."""
    refusal = choice["message"].get("refusal")
    return refusal if isinstance(refusal, str) else ""


def thoughts_of(choice: Json) -> str:
    """The thoughts that the upstream sends beside the text of a completion; empty if it sends none."""
    message = choice["message"]
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    return thoughts if isinstance(thoughts, str) else ""


def length_of(choice: Json) -> int:
    """Characters of a completion's text and tool calls."""
    calls = calls_of(choice)
    return len(text_of(choice)) + (len(json.dumps(calls)) if calls else 0)


def action(choice: Json, exclude_args: Collection[str], sure: Json, *, cut: bool) -> Verbatim:
    """A completion with tool calls as a candidate of one step: its text, then its calls. `sure`: the fields that say
    how sure its model is.

    It votes for the set of its calls, each by name and arguments in canonical JSON: in any order, without white space,
    1.0 as 1, and without those in `exclude_args`. If it is `cut`, or the arguments of a call are no JSON object, nobody
    could make these calls, and it votes for nothing.
    """
    calls = calls_of(choice)
    ballot = None
    try:
        message = Message.model_validate({"role": "assistant", "content": text_of(choice), "tool_calls": calls})
        (step,) = render([message], Reading()).steps
        if not cut:
            ballot = _ballot([call.function for call in message.tool_calls or ()], exclude_args)
    except ValidationError:  # calls of another kind than functions
        step = json.dumps(calls)
    except ValueError:
        pass
    return Verbatim.model_validate({"steps": [step], "answer": ballot or NO_ANSWER, **sure})


def _ballot(functions: Sequence[Function], exclude_args: Collection[str]) -> str:
    """Raises `ValueError` for arguments that are no JSON object."""
    return "\n".join(sorted({f"{each.name}({_canonical(each.arguments, exclude_args)})" for each in functions}))


def _canonical(arguments: str, exclude_args: Collection[str]) -> str:
    sent = from_json(arguments, allow_inf_nan=False)
    if not isinstance(sent, dict):
        raise ValueError("arguments are an object")
    return canonical_json({name: value for name, value in sent.items() if name not in exclude_args})
