"""The documentation's commands that serve, and its requests to the servers, run as they stand; `make test-docs`.

What a test puts in another's place (an address, an engine that is not here) it names, and it has to be there.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mcp import Client as Tools

from tests.commands.blocks import Block, changed, runs
from tests.commands.world import PRM, PROBLEM, REASONERS, REQUEST, World, rewards, wait
from tests.installed import Environment
from tests.judge_server import judging
from unprm import mini

pytestmark = [pytest.mark.docs, pytest.mark.timeout(1800)]


def check_judgement(client: httpx.Client) -> None:
    """The embedded PRM is what scores."""
    right, wrong = rewards(client)
    assert wrong < 0.1 < 0.9 < right


def elected(client: httpx.Client) -> Any:
    """What the gateway reports of a vote among four."""
    body = {"messages": [{"role": "user", "content": PROBLEM}], "model": "any", "unprm": {"budget": 4}}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["unprm"]


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@runs("CONTRIBUTING.md", "git clone")
def test_the_project_is_cloned(world: World, blocks: list[Block]) -> None:
    """From a repository that holds as little as `make` needs."""
    world.path("origin/Makefile").write_text("test:\n\t@echo testing in $(CURDIR)\n", "ascii")
    world.run("cd origin && git init -q && git add . && git -c user.name=a -c user.email=a@b.c commit -qm a")
    said = world.run(changed(blocks[0].text, {"REPOSITORY= ": f"REPOSITORY={world.path('origin')} "}))
    assert f"testing in {world.path('unprm')}\n" in said


@runs("README.md", "import unprm\n")
def test_the_library_scores_and_votes(
    world: World, environment_with: Callable[[str], Environment], blocks: list[Block]
) -> None:
    """With what `make serve` installs, and nothing else."""
    world.path("program.py").write_text(blocks[0].text, "utf-8")
    assert world.run("python program.py", **environment_with("serve").variables).splitlines()[-1] == "68"


@runs("docs/answers.md", "unprm.grade(", "| unprm grade")
def test_answers_are_graded(world: World, blocks: list[Block]) -> None:
    program, command = blocks
    world.path("program.py").write_text(program.text, "utf-8")
    assert world.run("python program.py").split() == ["True", "0.5", "False"]
    assert world.run(command.text).splitlines()[-1] == "1 of 1 right, 0 without an answer"


@runs("docs/quickstart.md", "activate\nunprm serve --upstream-url", "/v1/chat/completions")
def test_a_vote_stands_before_a_model_of_yours(
    world: World, reasoner: str, environment_with: Callable[[str], Environment], blocks: list[Block]
) -> None:
    """With what `make serve` installs, and nothing else, in the `.venv` that the command activates."""
    command, request = blocks
    installed = environment_with("serve")
    world.path(".venv").unlink()
    world.link(".venv", installed.script.parent.parent)
    with world.serving(changed(command.text, {"http://localhost:8001": reasoner}), **installed.variables) as client:
        answer = json.loads(world.run(request.text))
        assert answer["unprm"]["strategy"] == "majority"
        assert 0 < answer["unprm"]["sampled"] <= 8
        assert elected(client)["strategy"] == "wrf"


@runs("docs/quickstart.md", "unprm serve --model judge")
def test_a_judge_and_an_upstream_are_one_server(world: World, reasoner: str, blocks: list[Block]) -> None:
    check_judged(world, reasoner, blocks[0], "http://localhost:8001/v1")


@runs("docs/connect.md", "serve --upstream-url http://localhost:8001/v1\n", "/v1/chat/completions")
def test_a_server_is_connected(world: World, reasoner: str, blocks: list[Block]) -> None:
    command, request = blocks
    with world.serving(changed(command.text, {"http://localhost:8001": reasoner})):
        assert json.loads(world.run(request.text))["unprm"]["strategy"] == "majority"


@runs("docs/connect.md", "--model judge")
def test_the_upstream_itself_is_the_judge(world: World, reasoner: str, blocks: list[Block]) -> None:
    check_judged(world, reasoner, blocks[0], "http://localhost:8001/v1")


def check_judged(world: World, reasoner: str, block: Block, url: str) -> None:
    """A judge gives the rewards of candidates from the upstream; both are at one address on the page."""
    with judging() as judge:
        text = changed(block.text, {f"--judge-url {url}": f"--judge-url {judge.url}"})
        with world.serving(changed(text, {url: reasoner})) as client:
            assert elected(client)["strategy"] == "wrf"


@runs("docs/gateway.md", "serve --upstream-url")
def test_a_server_without_a_model_s_name_votes_by_rewards_on_what_it_knows(
    world: World, reasoner: str, blocks: list[Block]
) -> None:
    with world.serving(changed(blocks[0].text, {"http://gpu-1:8000": reasoner})) as client:
        assert (elected(client)["sampled"], elected(client)["strategy"]) == (4, "wrf")


@runs("docs/gateway.md", "--upstream-key KEY")
def test_a_server_has_a_key_of_its_upstream(world: World, reasoner: str, blocks: list[Block]) -> None:
    world.link("my-prm", mini.ADAPTER)
    with world.serving(changed(blocks[0].text, {"http://gpu-1:8000": reasoner})) as client:
        assert elected(client)["sampled"] == 4


@runs("docs/client.md", "unprm mcp --transport http")
def test_tools_are_served_over_http(world: World, blocks: list[Block]) -> None:
    async def names() -> set[str]:
        async with Tools(f"{world.url}/mcp") as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    with world.serving(changed(blocks[0].text, {"8001": str(world.port)}), health=None):
        assert asyncio.run(names()) == {"score_steps", "vote", "compare_votes"}


@runs("docs/engines.md", "merge-adapter")
def test_a_merged_model_is_made_for_vllm(world: World, blocks: list[Block]) -> None:
    world.link("PRM", mini.ADAPTER)
    world.run(blocks[0].text)
    assert [words[:3] for words in world.calls] == [["vllm", "serve", "merged"]]
    with world.serving("unprm serve --model merged") as client:
        check_judgement(client)


@runs("docs/engines.md", '"tok_pooling_type"')
def test_a_published_prm_is_served_by_vllm(world: World, blocks: list[Block]) -> None:
    """tests/vllm/test_commands.py shows the words to vLLM itself."""
    world.run(blocks[0].text)
    assert [words[:3] for words in world.calls] == [["vllm", "serve", PRM]]


@runs("docs/engines.md", "--memory 0.4")
def test_reasoner_and_prm_share_a_machine(world: World, blocks: list[Block]) -> None:
    world.link("PRM", mini.ADAPTER)
    with world.serving(changed(blocks[0].text, {"--engine vllm": "--engine torch"})) as client:
        check_judgement(client)
    assert [words[:3] for words in world.calls] == [["vllm", "serve", REASONERS[1]]]


@runs("docs/models.md", "--model judge")
def test_a_language_model_is_served_as_the_judge(world: World, blocks: list[Block]) -> None:
    with (
        judging() as judge,
        world.serving(changed(blocks[0].text, {"http://gpu-1:8000": judge.url})) as client,
    ):
        answer = client.post(
            "/score_steps", json={"problem": "1 + 2 + 3 = ?", "solutions": [["1 + 2 = 3", "3 + 3 = 7"]]}
        )
        assert answer.json()["solutions"][0]["step_scores"] == pytest.approx([0.9, 0.2])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@runs("docs/engines.md", "--model ours=runs/prm", "/admin/models")
def test_models_are_changed_while_the_server_serves(world: World, blocks: list[Block]) -> None:
    world.link("runs/prm", mini.ADAPTER)
    world.link("runs/better", mini.ADAPTERS["unprm-mini-rollouts"])
    world.link("BASE", mini.BASE)
    served, change = blocks
    with world.serving(served.text, UNPRM_ADMIN_KEY="KEY") as client:

        def models() -> dict[str, Any]:
            described = client.get("/admin/models", headers={"Authorization": "Bearer KEY"}).json()["models"]
            return {model["name"]: model for model in described}

        check_judgement(client)
        before = rewards(client)
        assert models().keys() == {"ours", "qwen"}
        assert rewards(client, model="qwen") != before
        assert '"state":"loading"' in world.run(change.text, KEY="KEY")
        wait(lambda: models()["ours"]["adapter"] == "better" or models()["ours"]["state"] == "failed")
        assert models().keys() == {"ours"}
        assert models()["ours"]["state"] == "ready"
        assert rewards(client) != before


@runs("docs/operations.md", "sqlite3 journal.db")
def test_the_journal_is_read(world: World, blocks: list[Block]) -> None:
    with world.serving("unprm serve --journal journal.db") as client:
        assert client.post("/vote/prm", json=REQUEST).json()["answer"] == "83"
        wait(lambda: "|83|reward|" in world.run(blocks[0].text))


@runs("docs/scaling.md", ".[serve,ray]")
def test_replicas_are_served_from_ray(world: World, blocks: list[Block]) -> None:
    """To Ray, GPUs are only a number, which a variable sets here."""
    with world.serving(blocks[0].text, RAY_OVERRIDE_RESOURCES='{"CPU": 4, "GPU": 2}') as client:
        assert client.get("/model").json()["family"] == "qwen-prm"
        assert all(0 < reward < 1 for reward in rewards(client))


@runs("docs/scaling.md", "question_hash(problem)")
def test_a_question_has_a_hash(blocks: list[Block]) -> None:
    namespace: dict[str, Any] = {"problem": PROBLEM}
    exec(blocks[0].text, namespace)
    assert namespace["headers"].keys() == {"X-Question-Hash"}
