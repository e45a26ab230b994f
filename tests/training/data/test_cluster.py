"""The sampling stages on a local Ray cluster: the same records, also when an actor is killed."""

import io
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import ROOT
from tests.training.data.test_construct import ANNOTATE, QUESTIONS, SAMPLE, _annotate, _records, _sample, _select
from tests.training.scripted import ScriptedSampler
from unprm.answers.equivalence import Equivalence

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from training.data import cluster  # noqa: E402


@dataclass(frozen=True)
class ScriptedSource:
    """Loads scripted samplers. The first whose actor is asked for `fatal` kills its own process and leaves `mark`."""

    mark: Path
    fatal: str = ""
    model: str = "scripted"
    neutral: Mapping[str, float] = field(default_factory=dict)

    def load(self, settings):
        return _Mortal(self.mark, self.fatal)


class _Mortal(ScriptedSampler):
    def __init__(self, mark, fatal):
        super().__init__()
        self.mark, self.fatal = mark, fatal

    async def complete(self, prompt, count, seed, affinity):
        if self.fatal and self.fatal in self.decode(prompt) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().complete(prompt, count, seed, affinity)


@pytest.fixture(scope="module", autouse=True)
def local_cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    root = str(ROOT)
    environment = {"env_vars": {"PYTHONPATH": root}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A directory with the records that one process makes."""
    place = tmp_path_factory.mktemp("one")
    _sample(place)
    equivalence = Equivalence()
    _select(place, equivalence)
    _annotate(place, equivalence)
    return place


@pytest.mark.parametrize("fatal", ["", QUESTIONS[4].problem], ids=["quiet", "killed"])
def test_sampling_gives_the_same_records(undisturbed, tmp_path, fatal):
    source, output = ScriptedSource(tmp_path / "mark", fatal), tmp_path / "samples.jsonl"
    where = cluster.Cluster(actors=2, batch=3)
    assert cluster.sample(QUESTIONS, source, output, SAMPLE, where, Console(file=io.StringIO())) == {}
    assert source.mark.exists() is bool(fatal)
    assert _records(output) == _records(undisturbed / "samples.jsonl")


@pytest.mark.parametrize("fatal", ["", QUESTIONS[4].problem], ids=["quiet", "killed"])
def test_annotation_gives_the_same_records(undisturbed, tmp_path, fatal):
    source, output = ScriptedSource(tmp_path / "mark", fatal), tmp_path / "annotated.jsonl"
    where = cluster.Cluster(actors=2, batch=3)
    selected = undisturbed / "selected.jsonl"
    assert cluster.annotate(selected, source, output, ANNOTATE, where, Console(file=io.StringIO())) == {}
    assert source.mark.exists() is bool(fatal)
    for name in (".jsonl", ".unresolved.jsonl", ".questions.jsonl"):
        assert _records(output.with_suffix(name)) == _records((undisturbed / "annotated").with_suffix(name))
