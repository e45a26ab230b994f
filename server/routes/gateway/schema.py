"""The fields that the gateway reads of requests."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from unprm.answers.kinds import Schema
from unprm.errors import InvalidRequest
from unprm.openai.completion import is_json, joined_text
from unprm.openai.models import Json, JsonList
from unprm.trajectories import AgentTool, Message, conversation
from unprm.types import Aggregate, Probability
from unprm.validation_messages import validation_errors
from unprm.votes.registry import VOTES, Strategy, VoteTerms
from unprm.wire import ExtractionField, ModelName, Request, RiskTerms, SplitField, Text

MAX_CANDIDATES = 256
"""Maximum number of candidates for an answer."""
BUDGET = 8
"""Candidates for an answer if neither the request nor the server's settings say how many."""

NAMED = re.compile(rf"({'|'.join(VOTES)})(?:-(\d{{1,6}}))?@(.+)")
"""A model's name that chooses the vote, the budget and the upstream's model: `wrf-16@name`, or `wrf@name`."""
MISSPELLED = (
    "the upstream lists no model of this name, and the part before its @ is not a vote: expected "
    f"{', '.join(VOTES)}, as in `majority-8@MODEL`"
)
_LIKE_NAMED = re.compile(r"[A-Za-z][\w-]*@", re.ASCII)


class ElectionSettings(VoteTerms, RiskTerms):
    """How the answer is elected: `unprm` of a chat request. Missing fields follow the server's settings."""

    strategy: Strategy | None = None
    budget: int | None = Field(
        default=None, ge=1, le=MAX_CANDIDATES, description="Maximum number of candidates to sample."
    )
    models: dict[str, Annotated[int, Field(ge=1, le=MAX_CANDIDATES)]] = Field(
        default={},
        fail_fast=True,
        description="In place of `budget`, the maximum number of candidates of each of several upstreams, by name; "
        'they are sampled in this order: `{"small": 6, "large": 2}`. Default: the first upstream\'s.',
    )
    stable: Probability | None = Field(
        default=None, description="Sampling stops once the vote won't change with this probability; 1: once it can't."
    )
    round: int = Field(default=4, ge=1, le=MAX_CANDIDATES, description="Candidates sampled at a time.")
    split: SplitField = "auto"
    extraction: ExtractionField = "auto"
    aggregate: Aggregate = "min"
    model: ModelName | None = Field(default=None, description="A served PRM, by default the first.")
    problem: Text | None = Field(default=None, description="The problem for the PRM. Default: the whole conversation.")
    exclude_args: list[str] = Field(
        default=[], max_length=64, description="Arguments to ignore when tool calls are compared."
    )
    vote_on: list[Annotated[str, Field(pattern="^/", max_length=1024)]] = Field(
        default=[], max_length=64, description='JSON pointers to what answers in JSON are compared by: `["/label"]`.'
    )
    show_samples: bool = Field(
        default=False,
        validation_alias=AliasChoices("show_samples", "candidates"),  # until 0.4 the latter
        description="Show every candidate: in a stream as it is written, else as `solutions` in the report.",
    )
    on_reject: Literal["say_so", "sample_more", "escalate"] | None = Field(
        default=None,
        description="If the answer is not accepted at `risk`: `say_so` (the default) returns it with `accept` false, "
        "`sample_more` first samples the rest of the budget, `escalate` then asks the further upstreams in turn.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.on_reject is not None and self.risk is None:
            raise ValueError("on_reject needs a risk: without one no answer is rejected")
        return self


class UpstreamRequest(Request):
    """Fields beside those that are read are passed to the upstream unchanged, so JSON must be able to hold them."""

    model_config = ConfigDict(extra="allow")

    model: str

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        if not is_json(self.model_dump(exclude={"unprm"})):
            raise ValueError("it has a number that JSON can't represent, infinity or NaN")
        return self


class ChatRequest(UpstreamRequest):
    """A request of OpenAI's chat API. Other fields are passed on unchanged."""

    messages: JsonList = Field(min_length=1)
    stream: bool = False
    stream_options: Json | None = None
    n: int | None = Field(
        default=None, ge=1, le=MAX_CANDIDATES, description="Return the n best answers, or as many as there are."
    )
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    top_logprobs: int | None = Field(default=None, ge=0, strict=True)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63 - MAX_CANDIDATES)
    tools: JsonList | None = None
    tool_choice: str | Json | None = None
    response_format: Any = None
    budget: int | None = Field(
        default=None, ge=1, le=MAX_CANDIDATES, description="As `unprm.budget`, for clients of its_hub."
    )
    unprm: ElectionSettings = ElectionSettings()

    @model_validator(mode="before")
    @classmethod
    def _read_name(cls, data: Any) -> Any:
        """The terms in the model's name, for programs that can set nothing else; see `NAMED`."""
        if not isinstance(data, dict) or not (named := NAMED.fullmatch(str(data.get("model")))):
            return data
        strategy, budget, model = named.groups()
        terms = {"strategy": strategy} | ({} if budget is None else {"budget": int(budget)})
        more = {} if data.get("unprm") is None else data["unprm"]
        if not isinstance(more, dict):
            return data | {"model": model}
        if twice := sorted(name for name in terms if more.get(name) is not None):
            raise ValueError(f"{' and '.join(twice)}: in the model's name and in unprm; expected in one of them")
        return data | {"model": model, "unprm": more | terms}

    @property
    def may_be_misnamed(self) -> bool:
        """Whether the model's name may be meant to choose a vote, and misses it: `wfr-16@name`. But a name of the
        upstream's may look so, too: `phi-4@q8_0`."""
        return self.unprm.strategy is None and _LIKE_NAMED.match(self.model) is not None

    @property
    def form(self) -> Json:
        """`response_format`, empty if there is none, or it is no object."""
        return self.response_format if isinstance(self.response_format, dict) else {}

    @property
    def wants_json(self) -> bool:
        return bool(self.unprm.vote_on) or self.form.get("type") in ("json_object", "json_schema")

    @cached_property
    def schema_of_answer(self) -> Schema:
        """The JSON schema of the answer; without content if there is none, or it is not where it belongs."""
        named = self.form.get("json_schema")
        return Schema(named.get("schema") if isinstance(named, dict) else None)

    @property
    def may_call(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def called_tools(self) -> tuple[set[str | None] | None, bool]:
        """The names of the tools that `tool_choice` leaves, None for all, and whether one has to be called."""
        choice = self.tool_choice
        if not isinstance(choice, dict) or not (chosen := under_type(choice)):
            return None, choice in ("required", "any")
        tools = chosen.get("tools")
        names = {name_of(tool) for tool in (tools if isinstance(tools, list) else [choice])}
        return None if None in names else names, chosen.get("mode", "required") == "required"

    def question(self) -> str:
        if self.unprm.problem is not None:
            return self.unprm.problem
        said = next((each.get("content") for each in self.messages[::-1] if each.get("role") == "user"), "")
        return text if isinstance(text := joined_text(said), str) else ""

    def problem(self) -> str:
        """The problem that the candidates solve, for a PRM: the whole conversation, and the tools that may be called.

        Raises `InvalidRequest` for what is not text, and if there is none.
        """
        if self.unprm.problem is not None:
            return self.unprm.problem
        tools = (self.tools or []) if self.may_call else []
        messages = read_all(Message, self.messages, "/messages")
        text = conversation(messages, read_all(AgentTool, tools, "/tools"))
        if not text.strip():
            raise InvalidRequest("the messages have no text", "/messages")
        return text

    def for_upstream(self) -> Json:
        left_out = {"unprm", "stream", "stream_options", "n", "budget"}
        return self.model_dump(mode="json", exclude_unset=True, exclude=left_out)


class CompletionRequest(UpstreamRequest):
    """A request of OpenAI's completions API, passed on unchanged."""

    prompt: Any = None
    n: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)
    best_of: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if NAMED.fullmatch(self.model) or (self.model_extra or {}).get("unprm"):
            raise ValueError("there is no vote on completions, which are passed on: /v1/chat/completions has one")
        return self

    @property
    def candidates(self) -> int:
        """Number of completions that the upstream samples."""
        several = isinstance(self.prompt, list) and not all(isinstance(token, int) for token in self.prompt)
        return max(self.n or 1, self.best_of or 1) * (len(self.prompt) if several else 1)


def under_type(tool: Any) -> Json:
    """What a tool, a call, or a choice of tools has under the name of its type."""
    inner = tool.get(str(tool.get("type", "function"))) if isinstance(tool, dict) else None
    return inner if isinstance(inner, dict) else {}


def name_of(tool: Any) -> str | None:
    """None if it can't be read."""
    return name if isinstance(name := under_type(tool).get("name"), str) else None


def content(parts: Sequence[Json], joint: str) -> str | list[Json]:
    """A message's content of these parts; a text, joined, where there is nothing else."""
    alone = all(part["type"] == "text" for part in parts)
    return joint.join(part["text"] for part in parts) if alone else list(parts)


def function(**fields: Any) -> Json:
    """A tool, a call or a choice of a function in the form of the chat API."""
    return {"type": "function", "function": fields}


def chat_request(fields: Json) -> ChatRequest:
    """The chat request that corresponds to a request of another API. Raises `InvalidRequest`."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise InvalidRequest("; ".join(each.detail for each in validation_errors(error, fields))) from None


Item = TypeVar("Item", bound=BaseModel)


def read_all(kind: type[Item], items: Sequence[Json], pointer: str) -> list[Item]:
    """The items of the list sent at `pointer`. Raises `InvalidRequest` for the first that is of another kind."""
    every: Any = Annotated[list[kind], Field(fail_fast=True)]  # type: ignore[valid-type]
    try:
        read: list[Item] = TypeAdapter(every).validate_python(items)
        return read
    except ValidationError as error:
        first = validation_errors(error, items)[0]
        raise InvalidRequest(f"{pointer}{first.pointer}: {first.detail}", f"{pointer}{first.pointer}") from None
