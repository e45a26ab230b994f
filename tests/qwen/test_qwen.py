"""The PRM on Qwen2.5 that comes with the package, on real problems: over HTTP, and its AUROC."""

import json
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from research import steps
from research.auroc import auroc
from tests.server.harness import serving
from tests.support import ROOT
from training.evaluate.scorers import EngineScorer, SolutionToScore
from unprm.models.load import load_engine
from unprm.steps import split
from unprm.types import Engine

NAME = "unprm-qwen-0.5b"
DATA = ROOT / "tests/data"
PAIRS = [json.loads(line) for line in (DATA / "qwen/pairs.jsonl").read_text("utf-8").splitlines()]

pytestmark = pytest.mark.qwen


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with closing(load_engine(NAME, dtype="float32")) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[httpx.Client]:
    with serving(engine) as running:
        yield running.http


def test_right_and_wrong_solutions_of_real_problems_over_http(engine: Engine, server: httpx.Client) -> None:
    texts = [[pair[kind]["text"] for kind in ("right", "wrong")] for pair in PAIRS]
    answers = [
        server.post(
            "/vote/wrf", json={"problem": pair["problem"], "solutions": both, "extraction": "last_number"}
        ).json()
        for pair, both in zip(PAIRS, texts, strict=True)
    ]
    for pair, both, voted in zip(PAIRS, texts, answers, strict=True):
        assert voted["model"] == NAME
        said = [float(each["answer"].lstrip("$")) for each in voted["solutions"]]
        assert said[0] == float(pair["answer"]) != said[1]
        alone = EngineScorer(engine).score([SolutionToScore(pair["problem"], tuple(split(text))) for text in both])
        assert [each["step_scores"] for each in voted["solutions"]] == [
            pytest.approx(scores, abs=1e-3) for scores in alone
        ]


def test_its_auroc_is_what_was_measured(engine: Engine) -> None:
    """It is a weak PRM: on these short solutions a coin has 0.5."""
    sets, _ = steps.load_sets(str(DATA / "processbench/gsm8k.jsonl"), [])
    (solutions,) = sets.values()
    scores = EngineScorer(engine).score([SolutionToScore(each.problem, tuple(each.steps)) for each in solutions])
    scored = steps.scored_steps(solutions, {each.id: found for each, found in zip(solutions, scores, strict=True)})
    assert auroc(scored, matched=False).value == pytest.approx(0.577, abs=0.03)
