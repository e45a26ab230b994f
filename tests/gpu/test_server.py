"""A server whose model is on the device, over HTTP."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.server.harness import serving
from tests.support import columns
from unprm.models.load import load_engine

PROBLEM = "what is 12 + 34 - 5"
SOLUTIONS = [["12 + 34 = 46", f"46 - 5 = {k}", f"The answer is \\boxed{{{k}}}."] for k in range(38, 44)]


def test_scores_and_votes_over_http_are_the_engine_s(device, adapter):
    with closing(load_engine(str(adapter), device="cpu", dtype="float32")) as engine:
        expected = columns(engine.score([engine.format.encode(PROBLEM, steps) for steps in SOLUTIONS])).values

    engine = load_engine(str(adapter), device=device.type, dtype="bfloat16", prefix_cache_gb=0.05)
    with serving(engine) as running:
        about = running.get("/model").json()
        assert about["device"].startswith(device.type)
        assert about["self_test"]["difference"] <= about["self_test"]["tolerance"]
        body = {"problem": PROBLEM, "solutions": SOLUTIONS}
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: running.post("/score_steps", body), range(8)))
        for answer in answers:
            assert answer.status_code == 200, answer.text
            for solution, scores in zip(answer.json()["solutions"], expected, strict=True):
                assert solution["step_scores"] == pytest.approx(scores, abs=0.05)
        vote = running.post("/vote/wrf", body).json()
        assert vote["answer"] in {str(k) for k in range(38, 44)}
        assert vote["usage"]["computed_tokens"] == 0  # from the cache
