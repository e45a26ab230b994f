"""A server whose model is a judge: votes, their cost, the preview, and a judge that goes away."""

import json
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from server.models.load import load
from server.settings import Settings, SettingsInvalid
from tests.fakes import Refusal, upstream
from tests.judge_server import (
    MODEL,
    answered,
    checks_sums,
    choice,
    is_self_test,
    judging,
    last_step,
    served,
    token,
)
from tests.server.harness import Background, boxed, serving
from tests.server.options import read
from tests.support import MODELS, PATIENCE, imported, until
from unprm.engines.model_queue import ModelQueue

PROBLEM = "What is 1 + 2 + 3?"
RIGHT, WRONG = boxed(6, "1 + 2 = 3", "3 + 3 = 6"), boxed(7, "1 + 2 = 3", "3 + 3 = 7")


def test_votes_are_decided_by_the_judge_and_cost_what_its_server_counts() -> None:
    with judging() as judge, served(judge) as running:
        done = len(judge.bodies)
        vote = running.post("/vote/wrf", {"problem": PROBLEM, "solutions": [WRONG, RIGHT]}).json()
        assert (vote["answer"], vote["model"]) == ("6", MODEL)
        assert [each["step_scores"] for each in vote["solutions"]] == [
            pytest.approx([0.9, 0.2, 0.9]), pytest.approx([0.9, 0.9, 0.9])
        ]  # fmt: skip
        assert vote["solutions"][0]["first_error"] == 1
        assert len(judge.bodies) - done == 6
        usage = {"tokens": 606, "computed_tokens": 246, "cached_tokens": 360}
        assert {name: vote["usage"][name] for name in usage} == usage
        assert running.metric("unprm_computed_tokens_total") == 246
        assert running.metric("unprm_cached_tokens_total") == 360
        about = running.get("/model").json()
        assert (about["engine"], about["family"], about["digest"], about["memory"]) == ("judge", "judge", None, None)
        assert "verdict, layout plain" in about["input_format"]
        assert about["self_test"]["cached"]


def test_the_preview_is_the_conversation_that_the_judge_gets() -> None:
    with judging() as judge, served(judge) as running:
        preview = running.post("/preview", {"problem": PROBLEM, "solution": WRONG}).json()
        done = len(judge.bodies)
        running.post("/score_steps", {"problem": PROBLEM, "solutions": [WRONG]})
        longest = judge.bodies[done]["messages"]
        assert preview["text"] == "\n\n".join(f"<|{each['role']}|>\n{each['content']}" for each in longest)
        assert [preview["tokens"][position] for position in preview["positions"]] == ["ş"] * 3


TASK = "What is the capital of Peru?"
SEARCH = {"id": "c", "function": {"name": "search", "arguments": '{"query": "Peru"}'}}
AGENT = {"messages": [{"role": "user", "content": TASK}, {"role": "assistant", "tool_calls": [SEARCH]},
                      {"role": "tool", "tool_call_id": "c", "content": "Lima is it."},
                      {"role": "assistant", "content": "The answer is 1 + 1 = 2."}]}  # fmt: skip
ACTION, RESULT = 'search({"query":"Peru"})', "[ search] Lima is it."
MOVES = "Does this step move the task forward, given what was known? Answer Yes or No."


@pytest.mark.parametrize(
    ("evidence", "steps", "told"),
    [
        ("after", [f"{ACTION}\n\n{RESULT}", "The answer is 1 + 1 = 2."], "what its calls returned."),
        ("before", [ACTION, f"{RESULT}\n\nThe answer is 1 + 1 = 2."], "what its own calls return is not known yet."),
    ],
    ids=["after", "before"],
)
def test_a_judge_is_asked_whether_actions_move_the_task_forward(evidence: str, steps: list[str], told: str) -> None:
    with judging() as judge, served(judge) as running:
        preview = running.post("/preview", {"trajectory": AGENT, "evidence": evidence}).json()
        done = len(judge.bodies)
        scored = running.post("/score_steps", {"trajectories": [AGENT], "evidence": evidence}).json()
        assert scored["solutions"][0]["message_scores"] == pytest.approx({"1": 0.9, "3": 0.9})
        system, *users = judge.bodies[done]["messages"]
        assert preview["text"].startswith(f"<|system|>\n{system['content']}")
        assert told in system["content"]
        assert "follows from" not in system["content"]
        assert [last_step({"messages": [user]}) for user in users[::2]] == steps
        assert [user["content"].rpartition("\n\n")[2] for user in users[::2]] == [MOVES] * 2
        running.post("/score_steps", {"problem": PROBLEM, "solutions": [RIGHT]})
        assert "follows from" in judge.bodies[-1]["messages"][0]["content"]


def test_the_gateway_s_judge_is_asked_about_tool_calls_as_actions() -> None:
    calls = [{"role": "assistant", "content": None, "tool_calls": [
        {"id": f"c{k}", "type": "function", "function": {"name": "search", "arguments": json.dumps({"query": query})}}]}
        for k, query in enumerate(("Peru", "Lima"))]  # fmt: skip
    tools = [{"type": "function", "function": {"name": "search"}}]
    with judging() as judge, upstream(*calls) as reasoner, served(judge, upstream_url=reasoner.url) as running:
        messages = [{"role": "user", "content": TASK}]
        body = {"model": "m", "messages": messages, "tools": tools, "unprm": {"strategy": "prm", "budget": 2}}
        assert running.post("/v1/chat/completions", body).json()["choices"][0]["message"]["tool_calls"]
        system, user = judge.bodies[-1]["messages"]
        assert "what its own calls return is not known yet" in system["content"]
        assert user["content"].endswith(MOVES)


def test_a_judge_that_goes_away_is_told_of_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ModelQueue.__init__.__kwdefaults__, "retry", 0.05)  # type: ignore[arg-type]
    body = {"problem": PROBLEM, "solutions": [RIGHT]}
    with ExitStack() as stack:
        with judging() as judge:
            running = stack.enter_context(served(judge))
            assert running.post("/score_steps", body).status_code == 200
        refused = running.post("/score_steps", body)
        assert (refused.status_code, refused.json()["code"]) == (503, "model_unavailable")
        assert "the judge's server does not answer (ConnectError)" in refused.json()["detail"]
        unready = running.get("/readyz")
        assert (unready.status_code, unready.json()["detail"]) == (503, refused.json()["detail"])
        assert running.get("/healthz").status_code == 200
        with judging(port=int(judge.url.rpartition(":")[2])):
            until(lambda: running.get("/readyz").status_code == 200)
            assert running.post("/score_steps", body).status_code == 200


def test_the_gateway_elects_by_a_judge() -> None:
    texts = ["\n\n".join(WRONG), "\n\n".join(RIGHT)]
    with (
        judging() as judge,
        upstream(*texts) as reasoner,
        served(judge, upstream_url=reasoner.url) as running,
    ):
        answer = running.post(
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"budget": 2}},
        ).json()
        assert answer["unprm"]["answer"] == "6"
        assert answer["choices"][0]["message"]["content"] == texts[1]
        assert answer["unprm"]["usage"]["tokens"] == 606


def test_a_candidate_with_a_step_that_is_not_judged_is_unscored_and_wins_nothing() -> None:
    """Neither a step on which the judge says something else, nor one that its server refuses."""

    def answer(body: Any) -> Any:
        step = last_step(body)
        if "3 * 2" in step:
            return Refusal(400, {"error": {"message": "too long"}})
        return answered(choice("Well", token("Well", Well=0.9))) if "3 + 3" in step else checks_sums(body)

    said = "solution {} has no verdict of the judge on 1 of its 3 steps"
    solutions = [RIGHT, boxed(6, "1 + 2 = 3", "3 * 2 = 6"), boxed(7, "1 + 2 = 4", "4 + 3 = 7")]
    unscored = [{"code": "no_verdict", "detail": said.format(index)} for index in range(2)]
    with judging(answer) as judge, served(judge) as running:
        body = {"problem": PROBLEM, "solutions": solutions}
        scored = running.post("/score_steps", body).json()["solutions"]
        assert [each["unscored"] for each in scored] == [*unscored, None]
        assert [each["step_scores"] for each in scored] == [None, None, pytest.approx([0.2, 0.9, 0.9])]
        assert running.metric("unprm_unread_steps_total") == 2
        vote = running.post("/vote/prm", body).json()
        assert (vote["answer"], vote["unscored_count"]) == ("7", 2)
        for refused in ({**body, "on_invalid": "refuse"}, {**body, "solutions": solutions[:2]}):
            response = running.post("/score_steps", refused)
            assert (response.status_code, response.json()["code"]) == (422, "no_verdict")
            assert response.json()["detail"] == said.format(0)
            assert response.json()["errors"][0]["pointer"] == "/solutions/0"


def test_a_judge_is_loaded_beside_another_model() -> None:
    with judging() as judge, serving(open_model=partial(load, Settings()), admin_key="admin") as running:
        admin = {"Authorization": "Bearer admin"}
        request = {"name": "j", "model": "judge", "judge_url": judge.url, "judge_model": MODEL}
        assert running.post("/admin/models", {**request, "judge_key": "CANARY"}, headers=admin).status_code == 422
        assert running.post("/admin/models", request, headers=admin).status_code == 202
        until(lambda: "j" in running.get("/model").json()["models"])
        scored = running.post("/score_steps", {"problem": PROBLEM, "solutions": [WRONG], "model": "j"}).json()
        assert scored["solutions"][0]["step_scores"] == pytest.approx([0.9, 0.2, 0.9])


def test_the_key_is_sent_to_the_judge_alone() -> None:
    with judging() as judge, served(judge, judge_key="CANARY") as running:
        assert {request.authorization for request in judge.requests} == {"Bearer CANARY"}
        assert "CANARY" not in running.get("/model").text


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--model=judge", "--model judge needs --judge-url, .*, and --judge-model"),
        ("--judge-url=http://127.0.0.1:1", "--judge-url needs --judge-model"),
    ],
)
def test_a_judge_and_its_address_go_together(argument: str, says: str) -> None:
    with pytest.raises(SettingsInvalid, match=says):
        read(Settings, [argument])


def test_a_judge_is_loaded_without_what_models_need() -> None:
    found = imported("-c", "import server.models.load, unprm.models.judge")
    assert "httpx" in found
    assert not found & MODELS


def test_a_request_that_would_ask_too_much_is_refused_and_asks_nothing() -> None:
    with judging() as judge, served(judge, judge_prompt_tokens=100_000) as running:
        done = len(judge.bodies)
        body = {"problem": PROBLEM, "solutions": [["a"] * 200]}
        refused = running.post("/score_steps", body)
        assert refused.status_code == 422
        problem = refused.json()
        assert problem["code"] == "invalid_request"
        cost = running.service.models._served[0].engine.format.encode(PROBLEM, ["a"] * 200).cost
        assert f"would take {cost} tokens, the limit is 100000" in problem["detail"]
        assert problem["errors"][0]["pointer"] == "/solutions"
        assert len(judge.bodies) == done


def test_a_caller_s_many_calls_do_not_hold_up_another(tmp_path: Path) -> None:
    """After each batch, which has twice as many calls as may be in flight, others have their turn."""
    file = tmp_path / "keys"
    file.write_text("many 11111111\none 22222222\n")
    gate, begun = threading.Event(), threading.Event()

    def answer(body: Any) -> Any:
        if "1 + 2" not in last_step(body) and not is_self_test(body):
            begun.set()
            gate.wait(PATIENCE)
        return checks_sums(body)

    def score(key: str, *solutions: list[str]) -> Any:
        body = {"problem": PROBLEM, "solutions": solutions}
        return running.post("/score_steps", body, headers={"Authorization": f"Bearer {key}"})

    with (
        judging(answer) as judge,
        served(judge, api_keys_file=file, open_metrics=True, judge_concurrency=2) as running,
    ):
        many = Background(lambda: score("11111111", *([f"{number} + 3 = 0"] * 4 for number in range(20))))
        assert begun.wait(PATIENCE)
        one = Background(lambda: score("22222222", ["1 + 2 = 3"]))
        until(lambda: running.metric("unprm_queued_requests") == 2)
        gate.set()
        assert one.result().status_code == many.result().status_code == 200
        asked = [last_step(request) for request in judge.bodies]
        place = asked.index("1 + 2 = 3")
        assert place - asked.index("0 + 3 = 0") <= 2 * 4  # the batch that ran, and its own: not the 80 calls
