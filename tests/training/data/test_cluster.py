"""The sampling stages on a local Ray cluster: the same records, also when an actor is killed."""

import asyncio
import os
import signal
from functools import partial
from types import SimpleNamespace

import pytest

from tests.support import ROOT
from tests.training.data.test_construct import QUESTIONS, _annotate, _records, _sample, _select
from tests.training.scripted import ScriptedSampler
from unprm.answers.equivalence import Equivalence

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from training.data.cluster import ClusterSampler  # noqa: E402


class _Mortal(ScriptedSampler):
    """The first that is asked for `fatal` kills its own process and leaves `mark`."""

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


@pytest.fixture
def cluster():
    """Makes a sampler with two actors, each of which takes one of the two processors; ends those made before."""
    made = []

    def make(load):
        if made:
            asyncio.run(made.pop().close())
        scripted = ScriptedSampler()
        prompts = SimpleNamespace(encode=scripted.prompt, decode=scripted.decode)
        made.append(ClusterSampler("scripted", load, prompts, actors=2))
        return made[-1]

    yield make
    for sampler in made:
        asyncio.run(sampler.close())


@pytest.mark.parametrize("fatal", ["", QUESTIONS[4].problem], ids=["quiet", "killed"])
def test_stages_give_the_same_records(undisturbed, tmp_path, cluster, fatal):
    equivalence = Equivalence()
    for stage in ("sample", "annotate"):
        sampler = cluster(partial(_Mortal, tmp_path / stage, fatal))
        if stage == "sample":
            assert _sample(tmp_path, sampler) == {}
            _select(tmp_path, equivalence)
        else:
            assert _annotate(tmp_path, equivalence, sampler=sampler)[0] == {}
        assert (tmp_path / stage).exists() is bool(fatal)
    for name in ("samples", "annotated", "annotated.unresolved", "annotated.questions"):
        assert _records(tmp_path / f"{name}.jsonl") == _records(undisturbed / f"{name}.jsonl")


def test_what_fails_in_an_actor_is_reported_as_here(tmp_path, cluster):
    failing = QUESTIONS[3]
    failures = _sample(tmp_path, cluster(partial(ScriptedSampler, failing.problem)))
    assert failures == {failing.id: "the script says so"}


def test_a_model_that_no_actor_can_load_fails_every_question(tmp_path, cluster):
    failures = _sample(tmp_path, cluster(partial(ScriptedSampler, no="such option")))
    assert failures.keys() == {question.id for question in QUESTIONS}
    assert all("could not load the model" in reason for reason in failures.values())
