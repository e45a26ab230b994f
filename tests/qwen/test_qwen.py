"""A real Qwen2.5 through the whole chain: a probe of it is trained, served, and votes on real problems over HTTP."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from rich.progress import Progress

from research.bases import BASES
from tests.server.harness import serving
from tests.support import ROOT
from tests.unprm.engines.torch.probe_reference import reference
from training.evaluate.scorers import EngineScorer
from training.prm.probe import ProbeTrainer
from training.prm.train_settings import TrainSettings
from unprm.models.load import load_engine
from unprm.steps import split
from unprm.types import Engine, Solution

BASE = "qwen2.5-coder-0.5b-instruct"
DATA = ROOT / "tests/data"
PAIRS = [json.loads(line) for line in (DATA / "qwen/pairs.jsonl").read_text("utf-8").splitlines()]

pytestmark = pytest.mark.qwen


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A probe trained on ProcessBench's few solutions here, beside a link to its base."""
    place = tmp_path_factory.mktemp("qwen")
    (place / "base").symlink_to(BASES[BASE].directory())
    ProbeTrainer(
        TrainSettings(
            base=str(place / "base"),
            data=(DATA / "processbench/gsm8k.jsonl",),
            output=place / "probe",
            tune="none",
            head="probe",
        )
    ).train(Progress(disable=True))
    return place / "probe"


@pytest.fixture(scope="module")
def engine(probe: Path) -> Iterator[Engine]:
    with closing(load_engine(str(probe), dtype="float32")) as loaded:
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
        assert voted["model"] == "probe"
        said = [float(each["answer"].lstrip("$")) for each in voted["solutions"]]
        assert said[0] == float(pair["answer"]) != said[1]
        alone = EngineScorer(engine).score([Solution(tuple(split(text)), problem=pair["problem"]) for text in both])
        assert [each["step_scores"] for each in voted["solutions"]] == [
            pytest.approx(scores, abs=1e-3) for scores in alone
        ]


def test_scores_are_those_of_transformers(engine: Engine, probe: Path) -> None:
    items = [engine.format.encode(pair["problem"], split(pair["wrong"]["text"])) for pair in PAIRS[:2]]
    for item, scored in zip(items, engine.score(items), strict=True):
        assert scored.values == pytest.approx(reference(probe, item), abs=1e-4)
