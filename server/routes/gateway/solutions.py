"""Completions as the solutions of a vote: what each votes for, and what a PRM reads of it."""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from unprm.answers.extraction import extract
from unprm.answers.kinds import canonical_json, json_answer
from unprm.attempts import attempt
from unprm.openai.models import Json
from unprm.trajectories import Function, Message, Reading, render
from unprm.types import Extraction, Solution, Split
from unprm.wire import AnySolution, SolutionIn

from .completion import calls_of, is_cut, text_of
from .schema import ChatRequest

_NO_ANSWER = " "
"""As the answer of a solution: it states none, wherever one would be looked for."""
_NO_CALL = "no call"
"""What texts that state no answer vote for where other candidates call tools."""


class JsonSolution(SolutionIn):
    """A candidate whose answer is JSON, in canonical form."""

    def candidate(self, split: Split, index: int, max_steps: int) -> Solution:
        return replace(super().candidate(split, index, max_steps), compared_as="json")


class ActionSolution(SolutionIn):
    """A candidate whose answer is an action, whose result nobody knows yet: it is compared as text."""

    def candidate(self, split: Split, index: int, max_steps: int) -> Solution:
        return replace(super().candidate(split, index, max_steps), compared_as="tool_call", evidence="before")


def solutions_to_vote_on(
    choices: Sequence[Json], solutions: Sequence[AnySolution], request: ChatRequest, extraction: Extraction
) -> list[AnySolution]:
    """Each completion's solution, with what it votes for where that is not the answer that a whole text states."""
    acting = any(map(calls_of, choices))
    pairs = zip(choices, solutions, strict=True)
    return [_solution_to_vote_on(choice, solution, request, extraction, acting) for choice, solution in pairs]


def _solution_to_vote_on(
    choice: Json, solution: AnySolution, request: ChatRequest, extraction: Extraction, acting: bool
) -> AnySolution:
    """`acting`: whether any candidate calls a tool."""
    cut, text, vote_on = is_cut(choice), text_of(choice), request.unprm.vote_on
    signals = {name: getattr(solution, name, None) for name in ("confidence", "token_logprobs")}
    if calls_of(choice):
        return _action_solution(choice, request.unprm.exclude_args, signals, cut=cut)
    stated = {"text": text, **signals}
    if cut:
        return SolutionIn.model_validate(stated | {"answer": extract(text, extraction, cut=True) or _NO_ANSWER})
    if request.wants_json and (vote_on or extract(text, extraction) is None):
        value = attempt(partial(json_answer, text, request.schema_of_answer, vote_on), None)
        if value is not None or vote_on:
            return JsonSolution.model_validate(stated | {"answer": value or _NO_ANSWER})
    if acting and text.strip() and extract(text, extraction) is None:
        return ActionSolution.model_validate(stated | {"answer": _NO_CALL})
    return solution


def _action_solution(choice: Json, exclude_args: Collection[str], signals: Json, *, cut: bool) -> ActionSolution:
    """A completion with tool calls as a solution of one step: its text, then its calls. `signals`: how sure its model
    is.

    It votes for the set of its calls, each by name and arguments in canonical JSON: in any order, without white space,
    1.0 as 1, and without those in `exclude_args`. If it is `cut`, or the arguments of a call are no JSON object, nobody
    could make these calls, and it votes for nothing.
    """
    calls, answer = calls_of(choice), _NO_ANSWER
    try:
        message = Message.model_validate({"role": "assistant", "content": text_of(choice), "tool_calls": calls})
        (step,) = render([message], Reading()).steps
        if not cut:
            stated = {_describe_call(call.function, exclude_args) for call in message.tool_calls or ()}
            answer = "\n".join(sorted(stated)) or _NO_ANSWER
    except ValidationError:  # calls of another kind than functions
        step = json.dumps(calls)
    except ValueError:
        pass
    return ActionSolution.model_validate({"steps": [step], "answer": answer, **signals})


def _describe_call(function: Function, exclude_args: Collection[str]) -> str:
    """Raises `ValueError` for arguments that are no JSON object."""
    sent: Any = from_json(function.arguments, allow_inf_nan=False)
    if not isinstance(sent, dict):
        raise ValueError("arguments are an object")
    arguments = canonical_json({name: value for name, value in sent.items() if name not in exclude_args})
    return f"{function.name}({arguments})"
