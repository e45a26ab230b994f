"""Reranking clients' own requests: Cohere's and Jina's through LiteLLM, and vLLM's examples."""

import pytest

from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving

QUERY = "What is 6 times 7?"
RIGHT, WRONG, BLANK = "6 * 7 = 42.", "6 * 7 = 43.", " "
LITELLM = {"model": "fake", "query": QUERY, "documents": [WRONG, RIGHT], "top_n": 1, "return_documents": True,
           "max_chunks_per_doc": 10, "rank_fields": ["text"]}  # fmt: skip
VLLM = {"model": "fake", "encoding_format": "float", "text_1": QUERY, "text_2": [WRONG, RIGHT]}


def reward(running: Running, solution: str) -> float:
    scored = running.post("/score_steps", {"problem": QUERY, "solutions": [solution]}).json()
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
    found = server.post(path, {"model": "fake", first: QUERY, second: [WRONG, RIGHT]}).json()
    assert [each["score"] for each in found["data"]] == [reward(server, text) for text in (WRONG, RIGHT)]
    assert [each["index"] for each in found["data"]] == [0, 1]


def test_as_many_problems_as_solutions_are_paired(server: Running) -> None:
    both = server.post("/score", VLLM | {"text_1": [QUERY, "Another?"], "text_2": [RIGHT, RIGHT]}).json()
    one, other = (each["score"] for each in both["data"])
    assert one == reward(server, RIGHT) != other
    single = server.post("/score", VLLM | {"text_2": RIGHT}).json()
    assert [each["score"] for each in single["data"]] == [one]
    assert both["usage"]["total_tokens"] > single["usage"]["total_tokens"]


@pytest.mark.parametrize(
    ("path", "change", "status"),
    [
        ("/rerank", {"query": " "}, 422),
        ("/rerank", {"documents": []}, 422),
        ("/rerank", {"documents": [RIGHT, BLANK]}, 422),
        ("/rerank", {"model": "another"}, 422),
        ("/score", {"text_1": [QUERY, QUERY, QUERY]}, 422),
    ],
)
def test_bad_requests_are_refused(server: Running, path: str, change: dict[str, object], status: int) -> None:
    answer = server.post(path, (LITELLM if path == "/rerank" else VLLM) | change)
    assert answer.status_code == status
    assert QUERY not in answer.text


def test_they_need_the_key() -> None:
    with serving(FakeEngine(), api_key="secret") as running:
        assert running.post("/rerank", LITELLM).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert running.post("/rerank", LITELLM, headers=headers).status_code == 200
