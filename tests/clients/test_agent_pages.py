"""The pages for agents and programs: their requests, programs and settings are run as they stand there."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.types import CallToolResult

from server.settings import Settings
from tests.adder import adding
from tests.clients.programs import ROOT, listening, printed
from tests.fakes import openai_server, upstream
from tests.pages import AGENTS, AGENTS_BLOCKS, AGENTS_PROGRAMS, approximately, part
from tests.server.calibrations import stopping
from tests.server.harness import Running, embedded, serving
from tests.support import PATIENCE
from unprm.votes.registry import REWARD_STRATEGIES

SCRIPT = Path(sys.prefix) / "bin" / "unprm"
COMMANDS = [block for language, block in AGENTS_BLOCKS if language == "sh"]
FARM = [
    "Step 1: 166 + 66 = 222.\nStep 2: 6 * 39 = 234.\nStep 3: 222 + 234 = 456. The answer is \\boxed{456}.",
    "Step 1: 166 + 66 = 232.\nStep 2: 6 * 39 = 234.\nStep 3: 232 + 234 = 466. The answer is \\boxed{466}.",
    "Step 1: 166 + 66 = 132.\nStep 2: 6 * 39 = 234.\nStep 3: 132 + 234 = 366. The answer is \\boxed{366}.",
    "Step 1: 166 + 66 = 222.\nStep 2: 6 * 39 = 234.\nStep 3: 222 + 234 = 456. The answer is \\boxed{456}.",
    "Step 1: 166 + 66 = 232.\nStep 2: 6 * 39 = 234.\nStep 3: 232 + 234 = 466. The answer is \\boxed{466}.",
]
"""The README's candidates, as an upstream gives them."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    with upstream("The answer is \\boxed{68}.") as reasoner, serving(embedded(), upstream_url=reasoner.url) as running:
        yield running


def block(language: str, start: str) -> str:
    (found,) = [text for named, text in AGENTS_BLOCKS if named == language and text.startswith(start)]
    return found


def test_the_pages_have_their_blocks() -> None:
    assert len(AGENTS_PROGRAMS) == 4
    assert len(COMMANDS) == 6


@pytest.mark.parametrize(
    ("number", "output"),
    [
        (1, "The answer is \\boxed{68}. "),
        (2, "68 wrf combined"),
        (3, "0\n1\n2\n"),
    ],
)
def test_a_program_prints(gateway: Running, number: int, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    (reasoner,) = gateway.service.settings.upstream_url
    exec(
        AGENTS_PROGRAMS[number].replace("http://127.0.0.1:8000", gateway.url).replace("http://gpu-1:8000/v1", reasoner),
        {},
    )
    assert capsys.readouterr().out.startswith(output)


def test_the_agent_s_calls_are_elected(capsys: pytest.CaptureFixture[str]) -> None:
    with openai_server(adding) as (url, seen), serving(embedded(), upstream_url=url) as running:
        exec(AGENTS_PROGRAMS[0].replace("http://127.0.0.1:8000", running.url), {})
    assert capsys.readouterr().out == "The sum is 224. The answer is 224.\n"
    called = [message["tool_calls"][0]["id"] for message in seen[-1].body["messages"] if message["role"] == "assistant"]
    assert called == ["call_0", "call_1", "call_2"]


def test_the_terminal_s_commands_run(gateway: Running, tmp_path: Path) -> None:
    commands = block("sh", "cat").replace("requests.jsonl", str(tmp_path / "requests.jsonl"))
    words = re.sub("^unprm ", f"{shlex.quote(str(SCRIPT))} ", commands, flags=re.MULTILINE)
    output = printed("sh", "-ec", words, UNPRM_CLIENT_URL=gateway.url)
    assert "hmr elects 68" in output
    assert json.loads(output.splitlines()[-1])["strategies"].keys() == {*REWARD_STRATEGIES}


def test_the_gateway_answers_as_its_page_says() -> None:
    command = block("sh", "curl")
    words = shlex.split(command)
    body = json.loads(words[words.index("-d") + 1])
    with upstream(*FARM) as reasoner, serving(embedded(), upstream_url=reasoner.url) as running:
        answer = running.post(words[2].removeprefix("localhost:8000"), body).json()
    report = json.loads(block("json", '{\n "notes"'))
    assert part(answer["unprm"], report) == approximately(report)
    assert answer["choices"][0]["message"]["content"] == FARM[report["solution_index"]]


def test_the_gateway_s_attempts_are_those_of_its_page(tmp_path: Path) -> None:
    terms = {"strategy": "majority", "budget": 8, "risk": 0.05, "on_reject": "escalate"}
    body = {"model": "small", "messages": [{"role": "user", "content": "How many?"}], "unprm": terms}
    with upstream(*FARM) as first, upstream(FARM[1]) as second:
        settings = {"upstream_url": [f"small={first.url}", f"large={second.url}"], "upstream_model": "large=large"}
        with serving(vote_calibration=stopping(tmp_path, 0.5, 4), **settings) as running:
            report = running.post("/v1/chat/completions", body).json()["unprm"]
    attempts = [each | {"model": each["model"].removesuffix("-served")} for each in report["attempts"]]
    assert {"attempts": attempts} == json.loads(block("json", '{"attempts"'))


def test_several_models_give_and_take_what_the_page_says(tmp_path: Path) -> None:
    told = {"prompt_tokens_details": {"cached_tokens": 8}, "cost": 0.002}
    terms = {"strategy": "majority", "models": {"small": 4, "large": 2}}
    body = {"model": "any", "messages": [{"role": "user", "content": "How many?"}], "unprm": terms}
    texts = [f"The answer is \\boxed{{{number}}}." for number in range(4)]
    with upstream(*texts) as small, upstream(FARM[0], usage=told) as large:
        text = block("toml", "upstream-url").replace("http://gpu-1:8000", small.url)
        (tmp_path / "a.toml").write_text(text.replace("http://gpu-2:8000", large.url), "utf-8")
        settings = Settings.read({"config": tmp_path / "a.toml"})
        with serving(**settings.model_dump(include={"upstream_url", "upstream_key", "upstream_model"})) as running:
            report = running.post("/v1/chat/completions", body).json()["unprm"]
    for each in report["models"].values():
        each["model"] = each["model"].removesuffix("-served")
    shown = json.loads(block("json", '{"upstream"'))
    assert part(report, {"upstream": None, "models": None}) == shown
    assert large.keys == ["Bearer KEY"]


def voted(server: StdioServerParameters | str) -> object:
    """The answer that the MCP server's tool elects."""

    async def vote() -> CallToolResult:
        async with McpClient(server, read_timeout_seconds=PATIENCE) as client:
            return await client.call_tool("vote", {"problem": "What?", "solutions": ["The answer is \\boxed{7}."]})

    content = asyncio.run(vote()).structured_content
    return content and content["answer"]


def test_the_configuration_starts_the_mcp_server_from_any_directory(gateway: Running, tmp_path: Path) -> None:
    text = block("json", '{\n "mcpServers"').replace("/path/to/unprm/.venv/bin/unprm", str(SCRIPT))
    text = text.replace("http://127.0.0.1:8000", gateway.url)
    assert voted(StdioServerParameters(**json.loads(text)["mcpServers"]["unprm"], cwd=tmp_path)) == "7"


def test_the_mcp_server_s_command_listens(gateway: Running) -> None:
    command = block("sh", "unprm mcp").split()
    assert command[-2:] == ["--port", "8001"]
    with listening(*command[1:-2], program=str(SCRIPT), UNPRM_CLIENT_URL=gateway.url) as url:
        assert voted(f"{url}/mcp") == "7"


def test_the_table_has_every_example() -> None:
    named = set(re.findall(r"clients/examples/([\w.]+)\)", AGENTS))
    assert named == {path.name for path in (ROOT / "clients" / "examples").iterdir() if path.is_file()}
