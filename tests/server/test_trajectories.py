"""Trajectories of agents over HTTP."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving

DATA = Path(__file__).parents[1] / "data/trajectories"
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "capital of Peru"}'}}
TASK = {"role": "user", "content": "What is the capital of Peru?"}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"properties": {"query": {}}}}}]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(FakeEngine(max_tokens=65_536)) as running:
        yield running


def trajectory(said: str, **more: Any) -> dict[str, Any]:
    messages = [TASK, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "Lima. " * 500},
                {"role": "assistant", "content": said}]  # fmt: skip
    return {"messages": messages, **more}


def test_steps_are_scored_by_message(server: Running) -> None:
    sent = {"trajectories": [trajectory("Lima is its capital.", id="a")], "tools": TOOLS}
    (found,) = server.post("/score_steps", sent).json()["solutions"]
    assert found["id"] == "a"
    assert list(found["message_scores"]) == ["1", "3"]
    assert list(found["message_scores"].values()) == found["step_scores"]
    assert found["reward"] == pytest.approx(sum(found["step_scores"]) / 2)
    assert found["cut"] == {"2": {"characters": 2999, "kept": 2000}}
    whole = server.post("/score_steps", sent | {"observation_tokens": 1000}).json()["solutions"][0]
    assert "cut" not in whole
    before = server.post("/score_steps", sent | {"evidence": "before"}).json()["solutions"][0]
    assert before["steps"][0] == 'search({"query":"capital of Peru"})'
    assert before["message_scores"]["1"] != found["message_scores"]["1"]


def test_the_preview_shows_the_problem_with_tools(server: Running) -> None:
    sent = {"problem": "Answer briefly.", "trajectory": trajectory("Lima."), "tools": TOOLS}
    shown = server.post("/preview", sent).json()
    assert shown["text"].startswith("Answer briefly.\n\nTools:\n- search(query)\n\nWhat is the capital of Peru?\n")
    assert len(shown["steps"]) == 2


def test_answers_vote_and_without_any_rewards_elect(server: Running) -> None:
    three = [trajectory("The answer is 5."), trajectory("The answer is 7."), trajectory("The answer is 5.")]
    voted = server.post("/vote/majority", {"trajectories": three}).json()
    assert (voted["answer"], voted["candidates"][0]["members"]) == ("5", [0, 2])
    silent = [trajectory("It may well be Lima, a city."), trajectory("I gave up.")]
    for strategy in ("prm", "wrf"):
        voted = server.post(f"/vote/{strategy}", {"trajectories": silent}).json()
        rewards = [each["reward"] for each in voted["solutions"]]
        assert voted["solution_index"] == rewards.index(max(rewards))
        assert voted["answer"] == f"trajectory {voted['solution_index']}"
    given = [trajectory("Somewhere.", answer="Lima"), trajectory("Elsewhere.", answer="Cusco", step_scores=[0.9, 0.8])]
    assert server.post("/vote/majority", {"trajectories": given}).json()["tied_answers"] == ["Lima", "Cusco"]


def test_harbor_s_format_is_read(server: Running) -> None:
    steps = [{"step_id": 1, "source": "user", "message": TASK["content"]},
             {"step_id": 2, "source": "agent", "message": "", "tool_calls": [
                 {"tool_call_id": "c1", "function_name": "search", "arguments": {"query": "capital of Peru"}}],
              "observation": {"results": [{"source_call_id": "c1", "content": "Lima. " * 500}]}},
             {"step_id": 3, "source": "agent", "message": "Lima."}]  # fmt: skip
    atif = {"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "x", "version": "1"}, "steps": steps}
    (found,) = server.post("/score_steps", {"trajectories": [atif]}).json()["solutions"]
    (plain,) = server.post("/score_steps", {"trajectories": [trajectory("Lima.")]}).json()["solutions"]
    assert found["id"] == "s"
    assert found["message_scores"] == plain["message_scores"]


def test_real_trajectories_are_voted_on(server: Running) -> None:
    lines = gzip.decompress((DATA / "hotpotqa.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    sent = {"trajectories": [{"id": row["id"], "messages": row["messages"]} for row in rows]}
    voted = server.post("/vote/wrf", sent).json()
    for found, row in zip(voted["solutions"], rows, strict=True):
        assert found["message_scores"].keys() == row["step_labels"].keys()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({}, "exactly one of /solutions and /trajectories"),
        ({"solutions": ["1"], "trajectories": [trajectory("1")]}, "exactly one of /solutions and /trajectories"),
        ({"trajectories": [trajectory("1"), {"messages": [{"role": "assistant", "content": "1"}]}]}, "differ among"),
        ({"trajectories": [trajectory("1", step_scores=[0.5])]}, "2 steps have 1 step_scores"),
        ({"trajectories": [{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}]},
         "message 0 has a part of type 'image_url'"),
        ({"trajectories": [{"messages": [{"role": "robot"}]}]}, "'tool' or 'function'"),
        ({"trajectories": [{"schema_version": "ATIF-v1.4", "steps": []}]}, "ATIF: /steps: must not be empty"),
        ({"trajectories": [trajectory("1")] * 300}, "300"),
        ({"trajectories": [trajectory("x" * 70_000)]}, "/trajectories/0"),
    ],
)  # fmt: skip
def test_bad_trajectories_are_refused(server: Running, sent: Any, reason: str) -> None:
    answer = server.post("/score_steps", {"problem": "How many?"} | sent)
    assert answer.status_code in (413, 422)
    assert reason in answer.text


def test_a_trajectory_without_a_step_is_unscored(server: Running) -> None:
    found = server.post("/score_steps", {"trajectories": [trajectory("1"), {"messages": [TASK]}]}).json()
    assert found["solutions"][1]["unscored"]["code"] == "blank"
