"""Where no whole answer has a majority: calls are elected by the tools' names first, calls and JSON field by field."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from unprm.answers.kinds import by_field, canonical_json, json_value
from unprm.openai.models import Json
from unprm.wire import VoteOut

from .completion import calls_of, text_of
from .report import ByParts
from .schema import ChatRequest


@dataclass(frozen=True, slots=True)
class PartwiseAnswer:
    """What is elected by its parts: the answer at `place` of the vote; or, if no candidate wrote it, the `answer` and
    the `choice` made of the nearest one, whose answer is at that place. `report`: how."""

    place: int
    report: ByParts
    answer: str | None = None
    choice: Json | None = None


def elect_by_parts(request: ChatRequest, vote: VoteOut, choices: Sequence[Json]) -> PartwiseAnswer | None:
    """What the request's `tool_vote` or `json_vote` elects among the candidates of a vote. None if it asks for neither,
    the elected answer has a majority, or an object made of several candidates' fields might not be valid."""
    terms, counts = request.unprm, [each.count for each in vote.candidates]
    if 2 * counts[0] > sum(counts):
        return None
    places = {k: place for place, each in enumerate(vote.candidates) for k in each.members}
    if vote.compared_as == "json" and terms.json_vote == "field":
        values = {k: json_value(text_of(choices[k])) for k in sorted(places)}
        return _composed("", values, request.schema_of_answer, (), places, choices)
    functions = {k: _functions(choices[k]) for k in places}
    names = {k: ",".join(sorted(each["name"] for each in called)) for k, called in functions.items()}
    most, count = Counter(names.values()).most_common(1)[0]
    if terms.tool_vote == "call" or not most:
        return None
    if terms.tool_vote == "args" and "," not in most:
        values = {k: from_json(functions[k][0]["arguments"]) for k in sorted(places) if names[k] == most}
        tools = [tool["function"] for tool in request.tools or () if isinstance(tool.get("function"), dict)]
        schema = next((tool.get("parameters") for tool in tools if tool.get("name") == most), None)
        if made := _composed(most, values, schema, terms.exclude_args, places, choices):
            return made
    place = min(places[k] for k, name in names.items() if name == most)
    return PartwiseAnswer(place, ByParts(by="name", counts={most: count}))


def _composed(
    tool: str,
    values: Mapping[int, Any],
    schema: Any,
    apart: Collection[str],
    places: Mapping[int, int],
    choices: Sequence[Json],
) -> PartwiseAnswer | None:
    """The object of the most frequent values, as an answer, or as arguments of the `tool` if that is not empty."""
    objects = {k: value for k, value in values.items() if isinstance(value, dict)}
    if (elected := by_field(objects, schema, apart)) is None:
        return None
    counts = ({tool: len(values)} if tool else {}) | elected.counts
    report = ByParts(by="args" if tool else "field", counts=counts, written=elected.written)
    if elected.written:
        return PartwiseAnswer(places[elected.nearest], report)
    choice, text = choices[elected.nearest], json.dumps(elected.value, ensure_ascii=False)
    message = choice["message"]
    answer = canonical_json({name: value for name, value in elected.value.items() if name not in apart})
    if tool:
        answer = f"{tool}({answer})"
        call, *_ = calls_of(choice)
        message = message | {"tool_calls": [call | {"function": call["function"] | {"arguments": text}}]}
    else:
        message = message | {"content": text}
    return PartwiseAnswer(places[elected.nearest], report, answer, choice | {"message": message, "logprobs": None})


def _functions(choice: Json) -> list[Json]:
    """What a candidate calls; a call that it repeats is one, as in its vote."""
    called = [call["function"] for call in calls_of(choice)]
    return list({(each["name"], each["arguments"]): each for each in called}.values())
