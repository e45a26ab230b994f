"""The candidates of an election as votes take them, each read once: its solution, and how it breaks the request's
terms."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import from_json

from unprm.answers.extraction import extract
from unprm.answers.json_schema import breaks
from unprm.answers.kinds import canonical_json, json_answer, json_value, pausing
from unprm.openai.completion import Completion
from unprm.openai.models import Json
from unprm.pipeline import Ballot, Scorer, Work
from unprm.steps import separated
from unprm.trajectories import Function, Message, Reading, render
from unprm.types import ComparedAs, Evidence
from unprm.votes.registry import VoteTerms
from unprm.wire import AnySolution, SolutionIn, VoteRequest

from .plan import ElectionPlan
from .schema import ChatRequest, ElectionSettings, name_of, under_type

_NO_ANSWER = " "
"""As the answer of a solution: it states none, wherever one would be looked for."""
_NO_CALL = "no call"
"""What texts that state no answer vote for where other candidates call tools."""


class AnyVoteRequest(VoteRequest, VoteTerms):
    """Candidates for any vote, which need a problem only if they are scored; `stable`, `round`: as `ElectionSettings`
    have them."""

    stable: float | None = None
    round: int = 1


_COMMON = AnyVoteRequest.model_fields.keys() & ElectionSettings.model_fields.keys()


class Readings:
    """Candidates as they were read, in sampling order. `breaches`: by its index, how a candidate breaks the request's
    terms."""

    def __init__(self, plan: ElectionPlan, scorer: Scorer) -> None:
        self._plan, self._scorer = plan, scorer
        self._read: Ballot | None = None
        self._calls = False
        self._ranks: list[tuple[bool, bool, bool]] = []
        self._flawed: set[int] = set()
        self.breaches: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def kept(self) -> bool:
        """Whether a whole candidate keeps the request's terms."""
        return (False, False, False) in self._ranks

    @property
    def first(self) -> int:
        """Index of the first candidate with a text or calls that keeps the terms and is not truncated; without one, of
        the first that keeps them, has either, or the first; of equals, the first without a false equation."""
        return min(range(len(self)), key=lambda index: (self._ranks[index], index in self._flawed))

    def add(self, completions: Sequence[Completion]) -> Work[None]:
        """Reads further candidates."""
        settings, plan = self._plan.settings, self._plan
        fields = {name: getattr(settings, name) for name in _COMMON}
        fields |= {"problem": plan.problem, "extraction": plan.extraction}
        fields["select_if"] = fields["select_if"] or "unsettled"
        if plan.problem is None:
            fields["split"] = "paragraph"  # nobody scores the steps, and this takes the least time
        solutions = yield from pausing(_solution(each, plan) for each in completions)
        request = AnyVoteRequest(**fields, solutions=solutions)
        self._read = self._read or Ballot(request, [], [])
        yield from self._read.add(request, self._scorer)
        reasons = yield from pausing(breach(plan.request, each) for each in completions)
        for index, (each, reason) in enumerate(zip(completions, reasons, strict=True), len(self)):
            if reason is not None:
                self.breaches[index] = reason
            self._ranks.append((not (each.text.strip() or each.calls), reason is not None, each.is_cut))
            self._calls |= bool(each.calls)

    def ballot(self, risk: float | None) -> Ballot:
        """All candidates for a vote. Those that break the terms have no answer if another keeps them; texts without an
        answer say that no call is to be made if another makes one."""
        assert self._read is not None, "an election has candidates"
        read, kept = self._read, self.kept
        request = read.request.model_copy(update={"risk": risk})
        ballot = replace(read, request=request, solutions=[*read.solutions], scores=[*read.scores])
        for index, solution in enumerate(read.solutions):
            if kept and index in self.breaches:
                ballot.solutions[index] = replace(solution, answer=None)
            elif self._calls and solution.answer is None and index in read.texts:
                ballot.solutions[index] = replace(solution, answer=_NO_CALL, compared_as="tool_call", evidence="before")
        changed = [before is not now for before, now in zip(read.solutions, ballot.solutions, strict=True)]
        ballot.texts, ballot.weak = {k: text for k, text in read.texts.items() if not changed[k]}, set()
        return ballot

    def keep_scores(self, ballot: Ballot) -> None:
        """Keeps what a vote's ballot computed, for the next one."""
        assert self._read is not None, "a ballot was made of it"
        self._flawed = ballot.flawed
        scores = zip(self._read.scores, ballot.scores, strict=True)
        self._read.scores = [before if now is None else now for before, now in scores]
        self._read.demonstration = ballot.demonstration or self._read.demonstration

    @property
    def stated(self) -> list[Hashable]:
        """The bonds of stated answers."""
        return [bond for bond in self.bonds if isinstance(bond, tuple)]

    @property
    def bonds(self) -> list[Hashable]:
        """What keeps candidates in one class whatever comes: equal answers that they state, or equal texts; None for
        those whose answer may not count."""
        if (read := self._read) is None:
            return []
        return [
            None if k in self.breaches else (each.compared_as, each.answer) if each.answer else read.texts.get(k)
            for k, each in enumerate(read.solutions)
        ]


class JsonSolution(SolutionIn):
    """A candidate whose answer is JSON, in canonical form."""

    compared_as: ClassVar[ComparedAs] = "json"


class ActionSolution(SolutionIn):
    """A candidate whose answer is an action, whose result nobody knows yet: it is compared as text."""

    compared_as: ClassVar[ComparedAs] = "tool_call"
    evidence: ClassVar[Evidence | None] = "before"


def _solution(completion: Completion, plan: ElectionPlan) -> AnySolution:
    """A completion as a vote takes it, with the answer if the text alone does not state it."""
    request, text, confidence = plan.request, completion.text, completion.confidence
    if completion.calls:
        return _action(completion, plan.settings.exclude_args)
    stated = {"text": text, "confidence": confidence}
    if completion.is_cut:
        return SolutionIn.model_validate(stated | {"answer": extract(text, plan.extraction, cut=True) or _NO_ANSWER})
    vote_on = plan.settings.vote_on
    if request.wants_json and (vote_on or (extract(text, plan.extraction) or "{").startswith(("{", "["))):
        value = json_answer(text, request.schema_of_answer, vote_on, inside=True)
        if value is not None or vote_on:
            return JsonSolution.model_validate(stated | {"answer": value or _NO_ANSWER})
    return text if confidence is None else SolutionIn.model_validate(stated)


def _action(completion: Completion, excluded: Sequence[str]) -> ActionSolution:
    """A completion with tool calls as a solution of one step: its text, then its calls.

    It votes for the set of its calls, by name and arguments in canonical JSON: in any order, without white space, 1.0
    as 1, without the `excluded` arguments. If it is truncated, or the arguments of a call are no JSON object, nobody
    could make the calls, and it votes for nothing.
    """
    answer = _NO_ANSWER
    try:
        message = Message.model_validate(
            {"role": "assistant", "content": completion.text, "tool_calls": completion.calls}
        )
        (step,) = render([message], Reading()).steps
        if not completion.is_cut:
            called = {_describe(call.function, excluded) for call in message.tool_calls or ()}
            answer = "\n".join(sorted(called)) or _NO_ANSWER
    except ValidationError:  # calls of another kind than functions
        step = json.dumps(completion.calls)
    except ValueError:
        pass
    return ActionSolution.model_validate({"steps": [step], "answer": answer, "confidence": completion.confidence})


def _describe(function: Function, excluded: Sequence[str]) -> str:
    """Raises `ValueError` for arguments that are no JSON object."""
    sent = _arguments(function.arguments)
    arguments = canonical_json({name: value for name, value in sent.items() if name not in excluded})
    return f"{function.name}({arguments})"


def _arguments(text: Any) -> Json:
    """A call's arguments. Raises `ValueError` if they are no JSON object."""
    sent = from_json(text, allow_inf_nan=False) if isinstance(text, str) else None
    if not isinstance(sent, dict):
        raise ValueError("arguments are an object")
    return sent


def breach(request: ChatRequest, completion: Completion) -> str | None:
    """How a completion breaks the terms of its request, None if it keeps them; a truncated one is not judged."""
    if completion.is_cut or "functions" in (request.model_extra or {}):  # the latter: terms of before 2023
        return None
    if completion.calls:
        return _breach_of_calls(request, completion.calls)
    if request.called_tools[1]:
        return "it calls no tool, and one is required"
    if (kind := request.form.get("type")) not in ("json_object", "json_schema"):
        return None
    value = json_value(separated(completion.text)[0].strip())
    if value is None or (kind == "json_object" and not isinstance(value, dict | list)):
        return "it is no JSON, which response_format asks for"
    return "its JSON breaks the schema of response_format" if breaks(value, request.schema_of_answer.root) else None


def _breach_of_calls(request: ChatRequest, calls: Sequence[Json]) -> str | None:
    parameters = {name_of(tool): under_type(tool).get("parameters") for tool in request.tools or ()}
    if not request.may_call:
        return "it calls a tool, and none may be called"
    if len(calls) > 1 and (request.model_extra or {}).get("parallel_tool_calls") is False:
        return "it makes several calls, and parallel_tool_calls is false"
    chosen, _ = request.called_tools
    for call in calls:
        name, made = name_of(call), under_type(call)
        if name not in parameters and None not in parameters:
            return "it calls a tool that is not among the request's"
        if chosen is not None and name not in chosen:
            return "it calls another tool than tool_choice names"
        if "arguments" in made:
            try:
                if breaks(_arguments(made["arguments"]), parameters.get(name)):
                    return "the arguments of a call break the parameters of its tool"
            except ValueError:
                return "the arguments of a call are no JSON object"
    return None
