"""The endpoints of a resources server of NeMo Gym: its agents begin a session, and have what they did verified.

A text that was asked for without tools is a solution, and scored by its own steps; any other reply is a trajectory.
"""

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unprm.errors import Unscorable
from unprm.fields import invalid, validation_errors
from unprm.steps import combined
from unprm.trajectories import Function, Message, Parts, ToolCall, conversation, text_of
from unprm.wire import OutcomeTerms, ScoreRequest

from ..admission import TheContext
from ..service import TheService
from . import votes
from .route import WorkRoute

router = APIRouter(route_class=WorkRoute)


class _Kept(BaseModel):
    """Fields beside those that are read are returned as they came."""

    model_config = ConfigDict(extra="allow")


class Item(_Kept):
    """An item of OpenAI's responses API."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | Parts | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = "{}"
    output: str | Parts | None = None


_Items = Annotated[list[Item], Field(max_length=2000, fail_fast=True)]


class CreateParams(_Kept):
    """The request that began it."""

    input: str | _Items
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = Field(None, max_length=256, fail_fast=True)


class AgentOutput(_Kept):
    """All that the agent did, with what its tools returned."""

    output: _Items


class VerifyRequest(OutcomeTerms, _Kept):
    """What an agent was asked for, and what it did; with `gold`, what its last message has to answer."""

    responses_create_params: CreateParams
    response: AgentOutput


class Session(_Kept):
    """A session; nothing is kept of it."""


async def seed_session(request: Session) -> Session:
    """Begins a session."""
    return Session()


async def verify(service: TheService, request: VerifyRequest, context: TheContext) -> Response:
    """The request as it came, with the agent's `reward` in [0, 1], 0 if it can't be scored, and its `step_scores`. With
    `gold` it is also told whether its answer is `correct`, and rewarded by the `combination`."""
    scores, given = await service.read(context, partial(_to_score, request))
    reward, steps, verdict = 0.0, list[float](), dict[str, bool]()
    try:
        (scored,) = (await votes.score(service, scores, context)).solutions
        reward, steps = scored.reward or 0.0, scored.known_scores
        if scored.message_scores is not None:  # earlier turns are read, but nobody's to be rewarded
            steps = [score for index, score in scored.message_scores.items() if int(index) >= given]
            reward = fmean(steps) if steps else 0.0
        if (correct := scored.correct) is not None:
            verdict["correct"] = correct
            reward = combined(request.combination, correct, steps, reward, request.mean_weight) or 0.0
    except Unscorable:
        pass
    verified = request.model_copy(update={"reward": reward, "step_scores": steps} | verdict)
    content = await service.read(context, partial(verified.model_dump_json, exclude_unset=True))
    return Response(content, media_type="application/json")


router.add_api_route("/seed_session", seed_session, methods=["POST"], include_in_schema=False)
router.add_api_route("/verify", verify, methods=["POST"], include_in_schema=False, response_model=None)


def _to_score(request: VerifyRequest) -> tuple[ScoreRequest, int]:
    """What is to be scored, and the number of messages that the agent was given. Raises `InvalidRequest` for what
    it can't be, because nothing was asked for, perhaps."""
    created = request.responses_create_params
    before = [Item(content=created.input)] if isinstance(created.input, str) else created.input
    if created.instructions:
        before = [Item(role="system", content=created.instructions), *before]
    given, done = _messages(before), _messages(request.response.output)
    if len(done) == 1 and not created.tools and not done[0].tool_calls:
        sent: dict[str, Any] = {"problem": conversation(given), "solutions": [text_of(len(given), done[0])]}
    else:
        sent = {"trajectories": [{"messages": [*given, *done]}], "tools": created.tools or []}
    sent |= request.model_dump(include=set(OutcomeTerms.model_fields), exclude_unset=True)
    try:
        return ScoreRequest.model_validate(sent), len(given)
    except ValidationError as error:
        raise invalid(validation_errors(error, sent)) from None


def _messages(items: Iterable[Item]) -> list[Message]:
    """The messages of the chat API: what an agent says and calls before its tools return is one message."""
    made: list[Message] = []
    for agents, group in groupby((item for item in items if item.type != "reasoning"), _is_agents):
        if agents:
            made.append(_joined(group))
        else:
            made += map(_message, group)
    return made


def _is_agents(item: Item) -> bool:
    return item.type == "function_call" or (item.type == "message" and item.role == "assistant")


def _message(item: Item) -> Message:
    if item.type == "function_call_output":
        return Message(role="tool", tool_call_id=item.call_id, content=item.output)
    return Message(role=item.role, content=item.content)


def _joined(items: Iterable[Item]) -> Message:
    parts: list[Any] = []
    calls: list[ToolCall] = []
    for item in items:
        if item.type == "function_call":
            function = Function(name=item.name, arguments=item.arguments)
            calls.append(ToolCall(id=item.call_id, function=function))
        else:
            parts += [{"text": item.content}] if isinstance(item.content, str) else item.content or []
    return Message(role="assistant", content=parts, tool_calls=calls)
