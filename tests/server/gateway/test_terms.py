"""A candidate that breaks the request's terms is elected only where none keeps them."""

import json
from typing import Any

import pytest

from tests.adder import TASK, TOOLS, call, calling
from tests.fakes import upstream
from tests.server.gateway.harness import boxed, gateway

RIGHT = calling(call('{"a": 1, "b": 2}'))
ANOTHER: Any = {"type": "function", "function": {"name": "sub", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "add"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
ITEM = {
    "type": "object",
    "properties": {"label": {"enum": ["ham", "spam"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["label"],
    "additionalProperties": False,
}
SCHEMA = {"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/i"}, "maxItems": 2}}}
FORM = {"type": "json_schema", "json_schema": {"name": "v", "schema": SCHEMA | {"$defs": {"i": ITEM}}}}
KEPT = '{"all": [{"label": "ham", "n": 3}]}'


def elect(texts: list[Any], finish: str | None = None, **more: Any) -> tuple[Any, dict[str, Any]]:
    """The message and the report of a majority among all; `finish`: why the first two ended."""
    terms = {"strategy": "majority", "budget": len(texts), "round": len(texts), "stable": 1}
    body = {"model": "m", "messages": [{"role": "user", "content": TASK}], "unprm": terms} | more
    ends = dict.fromkeys(range(2), finish) if finish else {}
    with upstream(*texts, ends=ends) as reasoner, gateway(reasoner) as running:
        answer = running.post("/v1/chat/completions", body).json()
    return answer["choices"][0]["message"], answer["unprm"]


@pytest.mark.parametrize(
    ("broken", "kept", "more", "reason"),
    [
        ("It is \\boxed{3}.", RIGHT, {"tool_choice": "required"}, "it calls no tool, and one is required"),
        ("It is \\boxed{3}.", RIGHT, {"tool_choice": NAMED}, "it calls no tool, and one is required"),
        ("It is \\boxed{3}.", RIGHT, {"tool_choice": ALLOWED}, "it calls no tool, and one is required"),
        (
            calling(call("{}", name="sub")),
            RIGHT,
            {"tool_choice": NAMED},
            "it calls another tool than tool_choice names",
        ),
        (calling(call("{}", name="sub")), RIGHT, {"tool_choice": ALLOWED}, "it calls another tool than tool_choice"),
        (calling(call("{}", name="mul")), RIGHT, {}, "it calls a tool that is not among the request's"),
        (calling(call('{"a": 1, "b": 2}'), call('{"a": 2, "b": 2}')), RIGHT, {"parallel_tool_calls": False}, "several"),
        (calling(call('{"a": 1}')), RIGHT, {}, "the arguments of a call break the parameters of its tool"),
        (calling(call('{"a": "1", "b": 2}')), RIGHT, {}, "the arguments of a call break the parameters of its tool"),
        (RIGHT, boxed(3), {"tool_choice": "none"}, "it calls a tool, and none may be called"),
        (RIGHT, boxed(3), {"tools": None}, "it calls a tool, and none may be called"),
        ("It is \\boxed{3}.", KEPT, {"response_format": FORM}, "it is no JSON"),
        ('{"all": [{"label": "egg"}]}', KEPT, {"response_format": FORM}, "its JSON breaks the schema"),
        ('{"all": [{"n": 3}]}', KEPT, {"response_format": FORM}, "its JSON breaks the schema"),
        ('{"all": [{"label": "ham", "x": 3}]}', KEPT, {"response_format": FORM}, "its JSON breaks the schema"),
        ('{"all": [{"label": "ham", "n": 10}]}', KEPT, {"response_format": FORM}, "its JSON breaks the schema"),
        ("3", KEPT, {"response_format": {"type": "json_object"}}, "it is no JSON"),
    ],
)
def test_those_that_break_the_terms_have_no_vote(broken: Any, kept: Any, more: dict[str, Any], reason: str) -> None:
    more = {"tools": [*TOOLS, ANOTHER]} | more
    message, report = elect([broken, broken, kept], **more)
    assert (report["solution_index"], message.get("content")) == (2, kept if isinstance(kept, str) else None)
    assert {int(index) for index in report["breaches"]} == {0, 1}
    assert all(reason in each for each in report["breaches"].values())
    told = "2 of 3 candidates break the request's terms: "
    assert any(note.startswith(told) and reason in note for note in report["notes"])
    _, alone = elect([broken, broken, broken], **more)
    assert "no whole candidate keeps the request's terms" in alone["notes"]
    assert (len(alone["breaches"]), alone["solution_index"]) == (3, 0)


def test_one_that_the_upstream_ended_by_an_error_is_missing() -> None:
    message, report = elect([boxed(1), boxed(1, "b"), boxed(2)], finish="error")
    assert (message["content"], report["answer"], report["share"]) == (boxed(2), "2", 1.0)
    assert report["failures"]


def test_a_truncated_one_breaks_nothing_that_it_could_still_keep() -> None:
    with upstream('{"all": [{"la', KEPT, cut={0}) as reasoner, gateway(reasoner) as running:
        terms = {"strategy": "majority", "budget": 2, "stable": 1}
        body = {"model": "m", "messages": [{"role": "user", "content": TASK}], "unprm": terms, "response_format": FORM}
        report = running.post("/v1/chat/completions", body).json()["unprm"]
    assert (report["solution_index"], "breaches" in report, report["cut"]) == (1, False, 1)


def test_a_vote_of_those_that_break_the_terms_ends_nothing_early() -> None:
    """One that keeps them would be elected, however late it comes."""
    with upstream(*[boxed(1, str(k)) for k in range(5)], RIGHT) as reasoner, gateway(reasoner) as running:
        terms = {"strategy": "majority", "budget": 6, "round": 2, "stable": 0.1}
        body = {"model": "m", "messages": [{"role": "user", "content": TASK}], "unprm": terms}
        body |= {"tools": TOOLS, "tool_choice": "required"}
        report = running.post("/v1/chat/completions", body).json()["unprm"]
    assert (report["sampled"], report["solution_index"]) == (6, 5)


@pytest.mark.parametrize(
    "choice", [{"type": "function"}, {"type": "allowed_tools", "allowed_tools": {"tools": 3}}, "x"]
)
def test_terms_that_cannot_be_read_hold_nobody(choice: Any) -> None:
    tools = [*TOOLS, {"type": "search"}, {"function": {"name": [1]}}]
    _, report = elect([RIGHT, RIGHT], tools=tools, tool_choice=choice)
    assert "breaches" not in report
    assert json.loads(report["answer"][4:-1]) == {"a": 1, "b": 2}
