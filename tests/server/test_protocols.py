"""Requests of SGLang's, TEI's, KServe's and SageMaker's clients, as they send them."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests import checkpoints
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving
from unprm.calibration import log_odds
from unprm.models.load import load_engine

QUERY, STEPS = "What is 6 times 7?", ["6 * 7 = 42.", "So 42."]
RIGHT, WRONG = "6 * 7 = 42.", "6 * 7 = 43."
# tritonclient 2.73, with binary_data=False
TENSORS = {
    "inputs": [
        {"name": "problem", "shape": [1], "datatype": "BYTES", "data": [QUERY]},
        {"name": "steps", "shape": [2], "datatype": "BYTES", "data": STEPS},
    ],
    "parameters": {"binary_data_output": True},
}


def step_scores(running: Running, *steps: str) -> list[float]:
    scored = running.post("/score_steps", {"problem": QUERY, "solutions": [list(steps)]}).json()
    found: list[float] = scored["solutions"][0]["step_scores"]
    return found


def rendered(*steps: str) -> str:
    return "\n" + "".join(f"{step}ş" for step in steps)


def test_sglang_scores_items_as_a_classifier(server: Running) -> None:
    expected = step_scores(server, *STEPS)
    sent = {"model": "fake", "query": QUERY, "items": [rendered(*STEPS), rendered(RIGHT)]}
    found = server.post("/v1/score", sent | {"apply_softmax": True}).json()
    assert found["object"] == "scoring"
    assert found["scores"][0] == [1 - expected[-1], expected[-1]]
    assert found["usage"]["total_tokens"] > 0
    logits = server.post("/v1/score", sent).json()["scores"]
    assert logits[0] == [0.0, pytest.approx(log_odds(expected[-1]))]
    setwise = server.post("/v1/score", sent | {"apply_softmax": True, "score_extraction_token": "ş"}).json()["scores"]
    assert [[row[1] for row in item] for item in setwise] == [expected, step_scores(server, RIGHT)]


def test_sglang_s_items_may_come_first_and_as_token_ids(server: Running) -> None:
    whole = {"query": QUERY, "items": [rendered(RIGHT)]}
    expected = server.post("/score", whole).json()["scores"]
    swapped = {"query": rendered(RIGHT), "items": QUERY, "item_first": True}
    assert server.post("/score", swapped).json()["scores"] == expected
    ids = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in (QUERY, rendered(RIGHT))]
    assert server.post("/score", {"query": ids[0], "items": [ids[1]]}).json()["scores"] == expected


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"label_token_ids": [1, 2], "apply_softmax": True}, "/label_token_ids"),
        ({"score_extraction_token": "<extra_0>"}, "/score_extraction_token"),
        ({"items": [[1, 2]]}, "/items"),
        ({"items": []}, "/items"),
        ({"items": [RIGHT, " " * 9000]}, "/items/1"),
        ({"temperature": 0.5}, "/temperature"),
        ({"return_token_logprobs": True}, "/return_token_logprobs"),
        ({"rerank_type": "qwen3-rerank"}, "/rerank_type"),
        ({"model": "another"}, "/model"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_sglang_s_form_asks_and_no_prm_has_is_refused(
    server: Running, change: dict[str, Any], pointer: str
) -> None:
    answer = server.post("/v1/score", {"query": QUERY, "items": [RIGHT]} | change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert QUERY not in answer.text


def test_sglang_s_labels_are_a_model_s_verdicts(tmp_path: Path) -> None:
    """Rows are what the softmax of the two tokens' probabilities at the last tag is, in the labels' order."""
    engine = load_engine(
        str(checkpoints.write("math-shepherd", tmp_path / "model")), device="cpu", family="math-shepherd"
    )
    positive, negative = engine.format.readout.positive, engine.format.readout.negative  # type: ignore[attr-defined]
    sent = {"query": f"{QUERY} ", "items": ["Step 1: 6 * 7 = 42. ки\nStep 2: So 42. ки"], "apply_softmax": True}
    with serving(engine) as running:
        (plain,) = running.post("/v1/score", sent).json()["scores"]
        assert sum(plain) == pytest.approx(1)
        (row,) = running.post("/v1/score", sent | {"label_token_ids": [positive, negative]}).json()["scores"]
        assert row == plain[::-1]
        (row,) = running.post("/v1/score", sent | {"label_token_ids": [negative, positive]}).json()["scores"]
        assert row == plain
        (item,) = running.post("/v1/score", sent | {"score_extraction_token": " ки"}).json()["scores"]
        assert (len(item), item[-1]) == (2, plain)
        for change in (
            {"label_token_ids": [positive, 1]},
            {"label_token_ids": [positive, negative], "apply_softmax": False},
        ):
            refused = running.post("/v1/score", sent | change)
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/label_token_ids")
            assert str([negative, positive]) in refused.json()["detail"]


def test_tei_s_reranking(server: Running) -> None:
    """LlamaIndex's `TextEmbeddingInference` and Haystack's `HuggingFaceTEIRanker`."""
    rewards = [step_scores(server, text)[0] for text in (WRONG, RIGHT)]
    order = sorted((0, 1), key=lambda index: -rewards[index])
    sent = {"query": QUERY, "texts": [WRONG, RIGHT]}
    assert server.post("/rerank", sent).json() == [{"index": index, "score": rewards[index]} for index in order]
    raw = server.post("/rerank", sent | {"raw_scores": True, "return_text": True, "truncate": True}).json()
    assert raw == [
        {"index": index, "score": log_odds(rewards[index]), "text": (WRONG, RIGHT)[index]} for index in order
    ]
    refused = server.post("/rerank", {"query": QUERY, "texts": []})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/texts")


def test_huggingface_hub_s_client(server: Running) -> None:
    client = InferenceClient(model=server.url, provider="hf-inference")
    info = client.get_endpoint_info()
    assert (info["model_id"], info["max_input_length"]) == ("fake", 2048)
    reward = step_scores(server, RIGHT)[0]
    single = server.post("/predict", {"inputs": QUERY + rendered(RIGHT)}).json()
    assert {each["label"]: each["score"] for each in single} == {"correct": reward, "incorrect": 1 - reward}
    assert single[0]["score"] >= single[1]["score"]
    best = client.text_classification(QUERY + rendered(RIGHT), model=f"{server.url}/predict")
    assert best == single[0]
    with pytest.raises(HfHubHTTPError, match="inputs: must not be blank"):
        client.text_classification(" ", model=f"{server.url}/predict")


def test_tei_s_classification_of_several(server: Running) -> None:
    rewards = [step_scores(server, text)[0] for text in (RIGHT, WRONG)]
    several = {"inputs": [[QUERY + rendered(RIGHT)], [QUERY + rendered(WRONG)]], "raw_scores": True}
    found = server.post("/predict", several).json()
    assert [{each["label"]: each["score"] for each in row}["correct"] for row in found] == list(map(log_odds, rewards))
    assert all(row[0]["score"] >= row[1]["score"] for row in found)
    refused = server.post("/predict", {"inputs": [[QUERY], [" "]]})
    assert (refused.status_code, refused.json()["detail"]) == (422, "/inputs/1/0: must not be blank")


def test_kserve_s_protocol(server: Running) -> None:
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}
    assert server.get("/v2/models/fake/ready").json() == {"name": "fake", "ready": True}
    described = server.get("/v2/models/fake").json()
    assert [each["name"] for each in described["inputs"]] == [each["name"] for each in TENSORS["inputs"]]
    answer = server.post("/v2/models/fake/infer", TENSORS | {"id": "r1"}).json()
    scores = step_scores(server, *STEPS)
    assert answer == {"model_name": "fake", "id": "r1", "outputs": [
        {"name": "step_scores", "datatype": "FP32", "shape": [2], "data": scores},
        {"name": "reward", "datatype": "FP32", "shape": [1], "data": [min(scores)]},
    ]}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": TENSORS["inputs"][:1]}, "/inputs"),
        ({"inputs": [TENSORS["inputs"][0]] * 2}, "steps"),
        ({"inputs": [TENSORS["inputs"][0] | {"data": STEPS}, TENSORS["inputs"][1]]}, "of one text"),
        ({"inputs": [TENSORS["inputs"][0], TENSORS["inputs"][1] | {"datatype": "FP32"}]}, "BYTES"),
        ({"inputs": [TENSORS["inputs"][0], TENSORS["inputs"][1] | {"data": [STEPS[0], " "]}]}, "/inputs/1/data/1: "),
        (
            {"inputs": [TENSORS["inputs"][0], TENSORS["inputs"][1] | {"data": []}]},
            "/inputs/1/data: expected at least 1",
        ),
    ],
)
def test_kserve_s_clients_read_the_error(server: Running, change: dict[str, Any], said: str) -> None:
    answer = server.post("/v2/models/fake/infer", TENSORS | change)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/json")
    assert said in answer.json()["error"]
    assert QUERY not in answer.text


def test_sagemaker_s_and_sglang_s_own_addresses(server: Running) -> None:
    sent = {"problem": QUERY, "solutions": [STEPS]}
    found = server.post("/invocations", sent).json()["solutions"]
    assert found == server.post("/score_steps", sent).json()["solutions"]
    for path in ("/ping", "/health_generate"):
        assert server.get(path).status_code == 200
    assert server.get("/model_info").json() == server.get("/get_model_info").json()
    assert server.get("/model_info").json()["is_generation"] is False


def test_only_probes_need_no_key() -> None:
    with serving(FakeEngine(), api_key="secret") as running:
        for path in ("/ping", "/health_generate", "/v2/health/live", "/v2/health/ready"):
            assert running.get(path).status_code == 200
        for path in ("/info", "/model_info", "/v2/models/fake", "/v2/models/fake/ready"):
            assert running.get(path).status_code == 401
        for path in ("/predict", "/invocations", "/v2/models/fake/infer"):
            assert running.post(path, {}).status_code == 401
