"""Requests to other servers' endpoints, as their clients send them: vLLM's own, verl's, and Cohere's and Jina's through
LiteLLM."""

from pathlib import Path
from typing import Any

import pytest

from server.routes.dialects import DIALECTS
from tests import checkpoints
from tests.fake_engine import FakeEngine, FakeFormat, hashed
from tests.judge_server import judging, served
from tests.server.harness import Running, bearer, serving
from unprm.calibration import log_odds
from unprm.models.load import load_engine
from unprm.types import Prompt

QUESTION, STEPS = "What is 6 times 7?", ["6 * 7 = 42.", "So 42."]
TAGGED = f"{QUESTION}\n{STEPS[0]}ş{STEPS[1]}ş"
PLAIN = f"{QUESTION}\n6 * 7 = 42."
# vLLM, examples/pooling/classify/classification_online.py and examples/pooling/reward/token_reward_online.py
CLASSIFIED = ["Hello, my name is", "The president of the United States is", "The capital of France is",
              "The future of AI is"]  # fmt: skip
POOLED = {"input": "vLLM is great!"}
CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "vLLM is great!"}]}]}
# verl, verl/experimental/reward_loop/reward_loop.py: the prompt is rendered; the field's name differs among versions
VERL: list[dict[str, Any]] = [{"activation": False}, {"use_activation": False}]
RIGHT, WRONG, BLANK = "6 * 7 = 42.", "6 * 7 = 43.", " "
LITELLM = {"model": "fake", "query": QUESTION, "documents": [WRONG, RIGHT], "top_n": 1, "return_documents": True,
           "max_chunks_per_doc": 10, "rank_fields": ["text"]}  # fmt: skip
PAIRS = {"model": "fake", "encoding_format": "float", "text_1": QUESTION, "text_2": [WRONG, RIGHT]}


def scores(text: str) -> list[float]:
    format = FakeFormat()
    return list(hashed(format.at_tags(format.tokenize(Prompt(text)))))


def test_a_prompt_is_scored_at_each_of_its_tags_as_its_steps_are(server: Running) -> None:
    own = server.post("/score_steps", {"problem": QUESTION, "solutions": [STEPS]}).json()["solutions"][0]
    answer = server.post("/pooling", {"model": "fake", "input": [TAGGED, PLAIN]}).json()
    assert [row[1] for row in answer["data"][0]["data"]] == own["step_scores"]
    assert [row[1] for row in answer["data"][1]["data"]] == scores(PLAIN)
    assert len(scores(PLAIN)) == 1
    assert all(sum(row) == pytest.approx(1) for each in answer["data"] for row in each["data"])
    assert (answer["object"], answer["model"], answer["data"][0]["object"]) == ("list", "fake", "pooling")
    assert answer["usage"]["prompt_tokens"] == len(TAGGED.encode()) - 2 + len(PLAIN.encode()) + 1
    classified = server.post("/classify", {"input": TAGGED}).json()["data"]
    assert classified == [{"index": 0, "label": "correct" if own["reward"] >= 0.5 else "incorrect",
                           "probs": [1 - own["reward"], own["reward"]], "num_classes": 2}]  # fmt: skip
    whole = server.post("/pooling", {"input": TAGGED, "task": "classify"}).json()["data"][0]["data"]
    assert whole == classified[0]["probs"]


@pytest.mark.parametrize("more", VERL, ids=lambda more: next(iter(more)))
def test_verl_s_reward_loop_gets_log_odds(server: Running, more: dict[str, Any]) -> None:
    answer = server.post("/classify", {"model": "/models/fake", "input": PLAIN, **more}).json()
    assert answer["data"][-1]["probs"][-1] == pytest.approx(log_odds(*scores(PLAIN)))


def test_vllm_s_classification_client(server: Running) -> None:
    model = server.get("/v1/models").json()["data"][0]["id"]
    by_text = server.post("/classify", {"model": model, "input": CLASSIFIED}).json()["data"]
    assert [each["probs"][1] for each in by_text] == [scores(text)[0] for text in CLASSIFIED]
    ids = [server.post("/tokenize", {"model": model, "prompt": text}).json()["tokens"] for text in CLASSIFIED]
    assert server.post("/classify", {"model": model, "input": ids}).json()["data"] == by_text
    assert server.post("/classify", {"input": ids[0]}).json()["data"] == by_text[:1]


@pytest.mark.parametrize("prompt", [POOLED, CHAT], ids=["completion", "chat"])
def test_vllm_s_reward_clients(server: Running, prompt: dict[str, Any]) -> None:
    model = server.get("/v1/models").json()["data"][0]["id"]
    (found,) = server.post("/pooling", {"model": model, **prompt}).json()["data"]
    assert found["index"] == 0
    assert [len(row) for row in found["data"]] == [2]


def test_messages_are_read_as_problem_and_solution(server: Running) -> None:
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "\n\n".join(STEPS)}]
    own = server.post("/score_steps", {"problem": QUESTION, "solutions": [STEPS]}).json()["solutions"][0]
    (found,) = server.post("/pooling", {"messages": messages}).json()["data"]
    assert [row[1] for row in found["data"]] == own["step_scores"]


def test_messages_with_a_tag_after_each_step_are_scored_as_the_rendered_prompt(tmp_path: Path) -> None:
    """As clients of Qwen's PRMs send them to vLLM, with or without the system message of the model's template."""
    engine = load_engine(str(checkpoints.write("qwen-prm", tmp_path / "model")), device="cpu")
    system = {"role": "system", "content": engine.format.system}
    steps = ["6 * 7 = 42. ", "\nSo 42.", "The answer is \\boxed{42}."]
    asked = [{"role": "user", "content": QUESTION},
             {"role": "assistant", "content": "".join(f"{step}<extra_0>" for step in steps)}]  # fmt: skip
    rendered = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in [system, *asked])
    with serving(engine) as running:
        (expected,) = running.post("/pooling", {"input": rendered}).json()["data"]
        assert len(expected["data"]) == 3
        for messages in (asked, [system, *asked]):
            (found,) = running.post("/pooling", {"messages": messages}).json()["data"]
            rows = zip(found["data"], expected["data"], strict=True)
            assert all(one == pytest.approx(other, abs=1e-6) for one, other in rows)
            (whole,) = running.post("/classify", {"messages": messages}).json()["data"]
            assert whole["probs"][1] == pytest.approx(min(row[1] for row in expected["data"]), abs=1e-6)
        (other,) = running.post("/pooling", {"messages": [{**system, "content": "Be brief."}, *asked]}).json()["data"]
        assert other["data"] != found["data"]
        text = asked[1]["content"]
        for body in ({"text_1": QUESTION, "text_2": text}, {"queries": [QUESTION], "documents": [text]}):
            (scored,) = running.post("/score", body).json()["data"]
            assert scored["score"] == pytest.approx(whole["probs"][1], abs=1e-6)
        ranked = running.post("/rerank", {"query": QUESTION, "documents": [text, "42"]}).json()["results"]
        assert {each["index"]: each["relevance_score"] for each in ranked}[0] == pytest.approx(
            scored["score"], abs=1e-6
        )
        elsewhere = running.post("/score_steps", {"problem": QUESTION, "solutions": [text]}).json()["solutions"][0]
        assert elsewhere["step_scores"] == pytest.approx([row[1] for row in expected["data"]], abs=1e-6)


def test_blank_parts_between_tags_are_no_steps(server: Running) -> None:
    asked = {"role": "user", "content": QUESTION}
    written = {"role": "assistant", "content": f"{STEPS[0]}şş \nş{STEPS[1]}"}
    own = server.post("/score_steps", {"problem": QUESTION, "solutions": [STEPS]}).json()["solutions"][0]
    (found,) = server.post("/pooling", {"messages": [asked, written]}).json()["data"]
    assert [row[1] for row in found["data"]] == own["step_scores"]
    blank = server.post("/pooling", {"messages": [asked, written | {"content": "şş"}]})
    assert (blank.status_code, blank.json()["errors"][0]["pointer"]) == (422, "/messages")
    blank = server.post("/rerank", {"query": QUESTION, "documents": ["x", "şş"]})
    assert (blank.status_code, blank.json()["code"]) == (422, "blank")


def test_nulls_ask_for_nothing(server: Running) -> None:
    sent = {"input": PLAIN, "truncate_prompt_tokens": None, "priority": 0, "user": "u", "request_id": "r"}
    assert server.post("/pooling", sent | {"encoding_format": "float"}).status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"truncate_prompt_tokens": 10}, "/truncate_prompt_tokens"),
        ({"normalize": True}, "/normalize"),
        ({"encoding_format": "base64"}, "/encoding_format"),
        ({"task": "embed"}, "/task"),
        ({"dimensions": 8}, "/dimensions"),
        ({"priority": 1}, "/priority"),
        ({"messages": CHAT["messages"]}, ""),
        ({"input": None}, ""),
        ({"input": []}, "/input"),
        ({"input": " "}, "/input"),
        ({"input": [[1, -1]]}, "/input/0/1"),
        ({"input": [[1, 2**32]]}, "/input/0/1"),
        ({"input": [PLAIN] * 300}, "/input"),
        ({"input": ["x" * 9000, "x"]}, "/input/0"),
        ({"input": None, "messages": [{"role": "user", "content": " "}]}, "/messages"),
        ({"input": None, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "/messages/0/content/0"),
        ({"input": None, "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
         "/messages/0/tool_calls"),
        ({"model": "another"}, "/model"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(server: Running, change: dict[str, Any], pointer: str) -> None:
    answer = server.post("/pooling", {"input": PLAIN} | change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert QUESTION not in answer.text


def test_a_prompt_that_cannot_fit_is_not_tokenized(server: Running) -> None:
    refused = server.post("/tokenize", {"prompt": "x" * 9000})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/prompt")
    assert "takes at least 9000 tokens, the limit is 2048" in refused.json()["detail"]


def test_a_judge_takes_messages_alone() -> None:
    with judging() as judge, served(judge) as running:
        messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "1 + 2 = 3"}]
        (found,) = running.post("/classify", {"messages": messages}).json()["data"]
        assert found["probs"] == pytest.approx([0.1, 0.9])
        refused = running.post("/classify", {"input": PLAIN})
        assert (refused.status_code, "send messages" in refused.json()["detail"]) == (422, True)


def test_served_models_are_listed_without_an_upstream() -> None:
    with serving({"one": FakeEngine(), "two": FakeEngine(max_tokens=100)}) as running:
        found = running.get("/v1/models").json()
        assert found["object"] == "list"
        assert [(each["id"], each["max_model_len"]) for each in found["data"]] == [("one", 8192), ("two", 100)]
        assert running.get("/v1/models/two").json() == found["data"][1]
        assert running.get("/v1/models/three").status_code == 404


def reward(running: Running, solution: str) -> float:
    scored = running.post("/score_steps", {"problem": QUESTION, "solutions": [solution]}).json()
    found: float = scored["solutions"][0]["reward"]
    return found


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_solutions_are_ordered_by_their_rewards(server: Running, path: str) -> None:
    rewards = {text: reward(server, text) for text in (WRONG, RIGHT)}
    best = max(rewards, key=lambda text: rewards[text])
    answer = server.post(path, LITELLM)
    assert answer.status_code == 200
    found = answer.json()
    index = [WRONG, RIGHT].index(best)
    assert found["results"] == [{"index": index, "relevance_score": rewards[best], "document": {"text": best}}]
    assert found["usage"]["total_tokens"] > 0
    assert found["id"]
    everything = server.post(path, {**LITELLM, "top_n": None, "return_documents": False, "documents": [
        {"text": WRONG}, {"text": RIGHT}]}).json()["results"]  # fmt: skip
    assert [each["relevance_score"] for each in everything] == sorted(rewards.values(), reverse=True)
    assert {each["document"] for each in everything} == {None}


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize(("first", "second"), [("text_1", "text_2"), ("queries", "documents"), ("queries", "items")])
def test_pairs_are_scored_in_order(server: Running, path: str, first: str, second: str) -> None:
    found = server.post(path, {"model": "fake", first: QUESTION, second: [WRONG, RIGHT]}).json()
    assert [each["score"] for each in found["data"]] == [reward(server, text) for text in (WRONG, RIGHT)]
    assert [each["index"] for each in found["data"]] == [0, 1]


def test_as_many_problems_as_solutions_are_paired(server: Running) -> None:
    both = server.post("/score", PAIRS | {"text_1": [QUESTION, "Another?"], "text_2": [RIGHT, RIGHT]}).json()
    one, other = (each["score"] for each in both["data"])
    assert one == reward(server, RIGHT) != other
    single = server.post("/score", PAIRS | {"text_2": RIGHT}).json()
    assert [each["score"] for each in single["data"]] == [one]
    assert both["usage"]["total_tokens"] > single["usage"]["total_tokens"]


@pytest.mark.parametrize(
    ("path", "change", "pointer"),
    [
        ("/rerank", {"query": " "}, "/query"),
        ("/rerank", {"documents": []}, "/documents"),
        ("/rerank", {"documents": [RIGHT, BLANK]}, "/documents/1"),
        ("/rerank", {"documents": [RIGHT, "a\n\n" * 1025]}, "/documents/1"),
        ("/rerank", {"documents": [RIGHT, "x" * 9000]}, "/documents/1"),
        ("/rerank", {"model": "another"}, "/model"),
        ("/score", {"text_1": [QUESTION, QUESTION, QUESTION]}, "/text_1"),
        ("/score", {"text_2": BLANK}, "/text_2/0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_is_wrong_is_pointed_at(server: Running, path: str, change: dict[str, Any], pointer: str) -> None:
    answer = server.post(path, (LITELLM if path == "/rerank" else PAIRS) | change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert QUESTION not in answer.text


def test_they_have_no_more_solutions_than_others() -> None:
    with serving(FakeEngine(), max_solutions=1) as running:
        for path, body in (("/classify", {"input": [RIGHT, WRONG]}), ("/rerank", LITELLM), ("/score", PAIRS)):
            assert running.post(path, body).json()["code"] == "too_many_solutions"


def test_they_need_the_key() -> None:
    with serving(FakeEngine(), api_key="secret") as running:
        for path in [path for form in DIALECTS for path in form.PATHS] + ["/tokenize"]:
            assert running.post(path, {"input": PLAIN, "prompt": PLAIN}).status_code == 401
        assert running.get("/v1/models").status_code == 401
        assert running.post("/rerank", LITELLM, headers=bearer("secret")).status_code == 200
