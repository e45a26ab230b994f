"""No evaluation takes one model's scores for another's."""

import io
import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.fake_engine import FakeEngine, FakeFormat, hashed
from tests.server.harness import serving
from tests.tiny import write_prm
from training.evaluate import judging, pool, processbench
from training.evaluate.scorers import EngineScorer, ServerScorer
from training.schema import BenchmarkSolution
from unprm.errors import ModelUnavailable, OutputMismatch
from unprm.models.load import load_engine
from unprm.types import Solution

SILENT = Console(file=io.StringIO())
ROW = {"problem": "1 + 1?", "answer": "2", "candidates": [{"text": "1 + 1 = 2.\n\nSo \\boxed{2}."}]}
SAMPLES = {"easy": [BenchmarkSolution("a", "1 + 1?", ("1 + 1 = 2.", "So 2."), -1)]}


def _load(directory: Path, **options):
    return load_engine(str(directory), device="cpu", **options)


@pytest.fixture(scope="module")
def prms(tmp_path_factory):
    """Two models of the same name with other weights, and a copy of the first."""
    place = tmp_path_factory.mktemp("prms")
    first, second = (write_prm(place / str(seed) / "prm", "prm", seed) for seed in (0, 1))
    return first, second, Path(shutil.copytree(first, place / "copy" / "another"))


def _votes(scorer, output):
    path = output.parent / "pool.jsonl"
    path.write_text(json.dumps(ROW), "utf-8")
    return judging.judge(pool.read_pool(path), scorer, output, SILENT)


def _first_errors(scorer, output):
    return processbench.score(SAMPLES, scorer, output, SILENT)


@pytest.mark.parametrize(("evaluate", "file"), [(_votes, "candidates.jsonl"), (_first_errors, "easy.jsonl")])
def test_a_model_never_gets_the_scores_of_another_of_its_name(prms, tmp_path, evaluate, file):
    output = tmp_path / "out"
    first, second, copy = (EngineScorer(_load(directory)) for directory in prms)
    assert first.identity.model == second.identity.model
    expected = evaluate(first, output)
    before = (output / file).read_bytes()
    with pytest.raises(OutputMismatch, match=f'digest was "{first.identity.digest}", is "{second.identity.digest}"'):
        evaluate(second, output)
    assert (output / file).read_bytes() == before
    assert evaluate(second, tmp_path / "second") != expected
    assert evaluate(copy, output) == expected


def test_the_digest_is_of_weights_layout_and_numbers(prms, tmp_path):
    first, second, copy = prms
    as_it_is = _load(first).description.digest
    layout = write_prm(tmp_path / "layout", "prm", problem_template="Problem: {problem}\n")
    scaled = Path(shutil.copytree(first, tmp_path / "scaled"))
    config = json.loads((scaled / "config.json").read_text("utf-8"))
    (scaled / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}), "utf-8")
    others = [_load(place).description.digest for place in (second, layout, scaled)]
    others.append(_load(first, dtype="bfloat16").description.digest)
    assert len({as_it_is, *others}) == 5
    assert _load(copy).description.digest == as_it_is


def test_a_server_tells_the_digest_of_the_model_it_serves(prms, tmp_path):
    local = EngineScorer(_load(prms[0]))
    scores = _first_errors(local, tmp_path)
    with serving(_load(prms[0])) as running, closing(ServerScorer(running.url)) as scorer:
        assert scorer.identity == local.identity
        assert _first_errors(scorer, tmp_path) == scores
    with (
        serving(_load(prms[1])) as running,
        closing(ServerScorer(running.url)) as other,
        pytest.raises(OutputMismatch, match="digest was"),
    ):
        _first_errors(other, tmp_path)


def test_scores_of_a_server_that_does_not_tell_are_not_kept(tmp_path):
    with serving(FakeEngine(digest=None)) as running, closing(ServerScorer(running.url)) as scorer:
        with pytest.raises(ModelUnavailable, match="does not tell the `digest` of fake"):
            _first_errors(scorer, tmp_path)
        assert scorer.score([Solution(("1 + 1 = 2.", "So 2."), problem="1 + 1?")])
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_swapped_during_a_run_is_noticed(tmp_path):
    engine = FakeEngine()
    with serving(engine) as running, closing(ServerScorer(running.url)) as scorer:
        engine.description = engine.description.model_copy(update={"digest": "another"})
        with pytest.raises(ModelUnavailable, match="another model than at the start"):
            _first_errors(scorer, tmp_path)
    assert (tmp_path / "easy.jsonl").read_text("utf-8") == ""


def test_a_model_is_told_what_actions_are_judged_by():
    engine = FakeEngine()
    with serving(engine) as running, closing(ServerScorer(running.url)) as scorer:
        scorer.score([Solution(("<think>a", "b"), problem="p", evidence="before")])
    ((item,),) = engine.batches
    assert item == replace(engine.format.encode("p", ["<think>a", "b"]), scope=item.scope, evidence="before")
    EngineScorer(engine).score([Solution(("<think>a", "b"), problem="p", evidence="before")])
    assert engine.batches[1] == (replace(item, scope=""),)


def test_what_a_judge_did_not_judge_has_no_scores():
    class Silent(FakeEngine):
        def score(self, batch):
            first, *others = super().score(batch)
            return [first._replace(missing=1), *others]

    first, second, long = EngineScorer(Silent(max_tokens=20)).score(
        [Solution(steps, problem="q") for steps in (("a",), ("a", "b"), ("a" * 20,))]
    )
    assert (first, long) == (None, None)
    assert second == hashed(FakeFormat().encode("q", ["a", "b"]))
