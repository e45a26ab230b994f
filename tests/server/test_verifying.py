"""A resources server of NeMo Gym, by what its agents post.

The requests have the form of NVIDIA-NeMo/Gym, responses_api_agents/simple_agent/app.py and
resources_servers/example_single_tool_call/data/example_rollouts.jsonl.
"""

from statistics import fmean
from typing import Any

import pytest

from tests.server.harness import Running

TOOL = {"type": "function", "name": "get_weather", "description": "", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": ""}}}}  # fmt: skip
INPUT = [{"role": "developer", "content": "You help.", "type": "message"},
         {"role": "user", "content": "How warm is it in Lima?", "type": "message"}]  # fmt: skip
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Lima"}',
        "status": "completed"}  # fmt: skip
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "20 degrees"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Ask."}]}


def said(text: str) -> dict[str, Any]:
    content = [{"annotations": [], "text": text, "type": "output_text", "logprobs": []}]
    return {"id": "msg_1", "content": content, "role": "assistant", "status": "completed", "type": "message"}


def posted(*output: Any, **asked: Any) -> dict[str, Any]:
    params = {"input": INPUT, "tools": [TOOL], "user": "", "temperature": None, "parallel_tool_calls": True, **asked}
    response = {"id": "resp_1", "created_at": 1782184824.0, "object": "response", "output": list(output), "usage": None}
    return {"responses_create_params": params, "response": response, "_ng_task_index": 0, "info": {"city": "Lima"}}


def scored(server: Running, **request: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.post("/score_steps", request).json()["solutions"][0]
    return found


def chat(*more: Any) -> list[Any]:
    return [*({"role": each["role"], "content": each["content"]} for each in INPUT), *more]


ACTED = {"role": "assistant", "content": "I look.", "tool_calls": [
    {"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "Lima"}'}}]}  # fmt: skip
SEEN = {"role": "tool", "tool_call_id": "c1", "content": "20 degrees"}
WARM = {"role": "assistant", "content": "It is 20 degrees."}


def test_a_trajectory_is_rewarded_by_the_mean_of_its_steps(server: Running) -> None:
    assert server.post("/seed_session", {}).json() == {}
    sent = posted(THOUGHT, said("I look."), CALL, RESULT, said("It is 20 degrees."))
    verified = server.post("/verify", sent).json()
    own = scored(server, trajectories=[{"messages": chat(ACTED, SEEN, WARM)}], tools=[TOOL])
    assert verified == sent | {"reward": own["reward"], "step_scores": own["step_scores"]}
    assert len(own["step_scores"]) == 2


def test_a_text_without_tools_is_rewarded_as_a_solution(server: Running) -> None:
    text = "6 * 7 = 42.\n\nThe answer is 42."
    for more in ({}, {"instructions": "Be brief."}):
        verified = server.post("/verify", posted(said(text), input="What is 6 times 7?", tools=[], **more)).json()
        problem = "[system] Be brief.\n\n[user] What is 6 times 7?" if more else "What is 6 times 7?"
        own = scored(server, problem=problem, solutions=[text])
        assert (verified["reward"], verified["step_scores"]) == (own["reward"], own["step_scores"])
        assert len(own["step_scores"]) == 2


def test_earlier_turns_are_read_and_not_rewarded(server: Running) -> None:
    verified = server.post("/verify", posted(said("It is 20 degrees."), input=[*INPUT, said("I look."), CALL, RESULT]))
    own = scored(server, trajectories=[{"messages": chat(ACTED, SEEN, WARM)}], tools=[TOOL])
    assert verified.json()["step_scores"] == own["step_scores"][1:]
    assert verified.json()["reward"] == fmean(own["step_scores"][1:])


def test_with_gold_the_reward_is_the_outcome_or_the_combination_asked_for(server: Running) -> None:
    sent = posted(said("I look."), CALL, RESULT, said("It is mild. The answer is 20."))
    steps = server.post("/verify", sent).json()["step_scores"]
    mean = fmean(steps)
    for gold, more, reward in (
        ("20", {}, 1.0),
        (["19", "20.0"], {"combination": "outcome_min"}, min(steps)),
        ("20", {"combination": "outcome_mean"}, 1 + 0.5 * mean),
        ("19", {"combination": "outcome_mean", "mean_weight": 0.25}, 0.25 * mean),
        ("19", {"combination": "outcome_min"}, 0.0),
        ("19", {"combination": "process"}, mean),
        ("19", {}, 0.0),
    ):
        asked = sent | {"gold": gold} | more
        verified = server.post("/verify", asked).json()
        assert verified == asked | {"reward": reward, "step_scores": steps, "correct": gold != "19"}
    nothing = server.post("/verify", posted(said(" "), tools=[]) | {"gold": "20"}).json()
    assert (nothing["reward"], nothing["correct"], nothing["step_scores"]) == (0.0, False, [])


@pytest.mark.parametrize("output", [[], [said(" ")], [THOUGHT]], ids=["nothing", "blank", "thought"])
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["text", "tools"])
def test_what_cannot_be_scored_is_worth_nothing(server: Running, output: list[Any], tools: list[Any]) -> None:
    verified = server.post("/verify", posted(*output, tools=tools)).json()
    assert (verified["reward"], verified["step_scores"]) == (0, [])


@pytest.mark.parametrize(
    ("output", "pointer"),
    [
        ([{"type": "web_search_call", "id": "w"}], "/response/output/0/type"),
        ([{"type": "message", "role": "robot", "content": "x"}], "/response/output/0/role"),
        ([{"role": "assistant", "content": [{"type": "refusal"}]}], "/trajectories/0/messages/2/content/0"),
        ([RESULT] * 1999, "/trajectories/0/messages"),
    ],
    ids=["item", "role", "part", "long"],
)
def test_what_cannot_be_read_is_refused(server: Running, output: list[Any], pointer: str) -> None:
    refused = server.post("/verify", posted(*output))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)
