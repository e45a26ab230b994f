"""The MCP server as agents meet it: the official client, over both transports, before a real server of unprm."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent, Tool

from tests.clients.programs import ROOT, environment, listening
from tests.fake_engine import FakeEngine
from tests.server.calibrations import calibration
from tests.server.harness import PROBLEM, Running, serving
from tests.support import PATIENCE
from unprm_client import AsyncClient
from unprm_client.mcp import create

KEY = "k"
RIGHT, WRONG = "Step one.\n\nThe answer is \\boxed{3}.", ["Step one.", "The answer is \\boxed{4}."]
REQUEST: dict[str, Any] = {"problem": PROBLEM, "solutions": [RIGHT, WRONG, RIGHT]}
CALLS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("score_steps", {"threshold": 0.2, "aggregate": "mean"}, "/score_steps", {"threshold": 0.2, "aggregate": "mean"}),
    ("vote", {}, "/vote", {}),
    ("vote", {"alpha": 0}, "/vote", {"alpha": 0}),
    ("vote", {"strategy": "wrf", "alpha": 0}, "/vote/wrf", {"alpha": 0}),
    ("vote", {"strategy": "hmr"}, "/vote/hmr", {}),
    ("compare_votes", {"alpha": 0.9}, "/vote/compare", {"alpha": 0.9}),
]
"""A tool, arguments, and the request of the server that they stand for."""


@dataclass(frozen=True)
class Heard:
    """What a session over one of the transports returned; `refused`: the result of a wrong call."""

    instructions: str
    tools: list[Tool]
    results: list[CallToolResult]
    refused: CallToolResult


async def session(server: Any) -> Heard:
    async with Client(server, read_timeout_seconds=PATIENCE) as client:
        return Heard(
            client.instructions or "",
            (await client.list_tools()).tools,
            [await client.call_tool(name, REQUEST | more) for name, more, _, _ in CALLS],
            await client.call_tool(
                "vote", {"problem": PROBLEM, "solutions": ["I can't tell."], "strategy": "majority"}
            ),
        )


@pytest.fixture(scope="module")
def protected() -> Iterator[Running]:
    with serving(FakeEngine(), api_key=KEY) as running:
        running.http.headers["Authorization"] = f"Bearer {KEY}"
        yield running


@pytest.fixture(scope="module", params=["stdio", "http"])
def heard(request: pytest.FixtureRequest, protected: Running) -> Heard:
    if request.param == "http":
        with listening("-m", "unprm_client", "mcp", "--transport", "http", "--url", protected.url, "--key", KEY) as url:
            return asyncio.run(session(f"{url}/mcp"))
    variables = environment(UNPRM_CLIENT_URL=protected.url, UNPRM_CLIENT_KEY=KEY)
    words = ["-m", "unprm_client", "mcp"]
    program = StdioServerParameters(command=sys.executable, args=words, env=variables, cwd=str(ROOT))
    return asyncio.run(session(program))


def test_over_http_a_key_can_be_asked_for() -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    accepted = {"Accept": "application/json, text/event-stream"}
    with listening("-m", "unprm_client", "mcp", "--transport", "http", UNPRM_CLIENT_MCP_KEY="agents") as url:
        for sent in ({}, {"Authorization": "Bearer other"}, {"Authorization": "agents"}):
            refused = httpx.post(f"{url}/mcp", json=body, headers=accepted | sent, timeout=PATIENCE)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        key = {"Authorization": "Bearer agents"}
        answered = httpx.post(f"{url}/mcp", json=body, headers=accepted | key, timeout=PATIENCE)
    assert answered.status_code == 200
    assert "score_steps" in answered.text


def ask(url: str, name: str, arguments: dict[str, Any], key: str | None = None) -> CallToolResult:
    """An answer of the tools in this process."""

    async def run() -> CallToolResult:
        async with AsyncClient(url, api_key=key, attempts=1) as backend, Client(create(backend)) as client:
            return await client.call_tool(name, arguments)

    return asyncio.run(run())


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def test_the_tools_pass_a_risk_on(tmp_path: Path) -> None:
    sure = {"problem": PROBLEM, "solutions": [RIGHT, RIGHT], "risk": 0.05}
    with serving(FakeEngine(), vote_calibration=calibration(tmp_path)) as running:
        voted, compared = (ask(running.url, name, sure).structured_content or {} for name in ("vote", "compare_votes"))
    assert (voted["accept"], voted["calibration"]["pool"]) == (True, "a pool")
    assert compared["strategies"]["majority"]["accept"] is True


def refusal(result: CallToolResult) -> str:
    """The sentence that a model reads."""
    assert result.is_error
    assert result.structured_content is None
    sentence = text(result)
    assert "\n" not in sentence
    assert "pydantic" not in sentence
    return sentence


def test_tools_and_their_schemas_are_told(heard: Heard) -> None:
    assert "score_steps" in heard.instructions
    tools = {tool.name: tool for tool in heard.tools}
    assert list(tools) == ["score_steps", "vote", "compare_votes"]
    for tool in heard.tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert set(tool.input_schema["required"]) == {"problem", "solutions"}
        assert all(schema.get("description") for schema in tool.input_schema["properties"].values())
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.description is not None
        assert "\n " not in tool.description
    assert tools["vote"].input_schema["properties"]["strategy"]["default"] is None


def test_the_tools_answer_as_the_server_does(heard: Heard, protected: Running) -> None:
    schemas = {tool.name: tool.output_schema for tool in heard.tools}
    for result, (name, _, path, more) in zip(heard.results, CALLS, strict=True):
        assert not result.is_error, text(result)
        assert result.structured_content is not None
        jsonschema.validate(result.structured_content, schemas[name])
        answer = protected.post(path, REQUEST | more).json()
        for known in (answer, result.structured_content):
            known.pop("usage", None)  # what was computed before differs
        assert result.structured_content == answer


def test_errors_come_over_the_transport(heard: Heard) -> None:
    assert "no_answer: none of the 1 solutions has an answer" in refusal(heard.refused)


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("vote", {"solutions": []}, "solutions: must not be empty"),
        ("vote", {"solutions": [RIGHT, ["a", " "]]}, "solutions/1/1: must not be blank"),
        ("score_steps", {"solutions": [["a", 3]]}, "solutions/0/1: Input should be a valid string"),
        ("vote", {"strategy": "best"}, "strategy: Input should be 'majority', "),
        ("compare_votes", {"alpha": 2}, "alpha: Input should be less than or equal to 1"),
        ("vote", {"budget": 2}, "budget is not an argument of vote; expected one of problem, solutions, strategy"),
        ("score_steps", {"solutions": ["a" * 4000]}, "solution_too_long: "),
        ("solve", {}, "Unknown tool: solve"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(server: Running, name: str, more: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(ask(server.url, name, REQUEST | more))


def test_a_missing_argument_is_told(server: Running) -> None:
    sentence = refusal(ask(server.url, "vote", {"problem": PROBLEM}))
    assert sentence == "The arguments of vote don't fit: solutions: Field required"


def test_a_server_that_is_away_is_told() -> None:
    assert "the server at http://127.0.0.1:9 can't be reached" in refusal(ask("http://127.0.0.1:9", "vote", REQUEST))


@pytest.mark.parametrize("key", [None, "wrong-key"])
def test_a_key_that_is_missing_or_wrong_is_told(protected: Running, key: str | None) -> None:
    sentence = refusal(ask(protected.url, "score_steps", REQUEST, key))
    assert "unauthorized: " in sentence
    assert "wrong-key" not in sentence


def test_a_demonstration_outside_its_domain_says_that_it_only_checks_equations() -> None:
    with serving(FakeEngine(demo=True, scores=lambda item: [0.1])) as running:
        unknown = {"problem": "What is 3 + 4?", "solutions": [["3 + 4 = 7."]]}
        scored = ask(running.url, "score_steps", unknown).structured_content
        voted = ask(running.url, "vote", REQUEST).structured_content
    assert scored is not None
    assert not scored["demonstration"]["in_domain"]
    assert "not all in it: in place of its scores" in scored["demonstration"]["detail"]
    assert scored["solutions"][0]["step_scores"] == [1.0]
    assert voted is not None
    assert (voted["strategy"], voted["demonstration"]["in_domain"]) == ("majority", False)
