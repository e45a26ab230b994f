"""What an agent that searches sees: unchanged scores, and tokens that are run once."""

import random
import threading

import pytest
import torch

from tests.fake_engine import FakeEngine
from tests.server.harness import Background, serving
from tests.support import until
from tests.tiny import write_prm
from unprm import mini
from unprm.models.load import load_engine

PROBLEM = "Zoe has 23 coins. Zoe finds 45 coins. Zoe loses 8 coins. How many coins does Zoe have now?"
STEPS = ["Step 1: 23 + 45 = 68.", "Step 2: 68 - 8 = 60.", "The answer is \\boxed{60}."]


def _mini(**options):
    """The embedded model, as if any text was of its domain."""
    engine = load_engine(mini.NAME, device="cpu", **options)
    engine.description = engine.description.model_copy(update={"demo": False})
    return engine


@pytest.fixture
def server():
    with serving(_mini(prefix_cache_gb=0.05), clock=lambda: 0.0) as running:
        yield running


def score(server, *solutions):
    response = server.post("/score_steps", {"problem": PROBLEM, "solutions": list(solutions)})
    assert response.status_code == 200, response.text
    body = response.json()
    return [solution["step_scores"] for solution in body["solutions"]], body["usage"]


def test_a_search_pays_for_each_step_once(server):
    with serving(_mini()) as stateless:
        expected, whole = score(stateless, STEPS)
    tokens = 0
    for count in range(1, 4):
        scores, usage = score(server, STEPS[:count])
        assert scores[0] == pytest.approx(expected[0][:count], abs=1e-5)
        assert usage["computed_tokens"] == usage["tokens"] - tokens
        assert usage["cached_tokens"] == tokens
        tokens = usage["tokens"]
    assert tokens == whole["tokens"] == whole["computed_tokens"]
    assert 0 < server.metric("unprm_cache_utilization") < 1
    assert score(server, STEPS, STEPS) == (
        [scores[0]] * 2,
        usage | {"tokens": 2 * tokens, "computed_tokens": 0, "cached_tokens": 2 * tokens},
    )


def test_a_batch_runs_a_problem_once_for_all_its_solutions():
    other = PROBLEM.replace("Zoe", "Moor Farm")
    with serving(_mini(), clock=lambda: 0.0) as stateless:
        steps = [[f"Step 1: 23 + 45 = {number}."] for number in (68, 69, 78)]
        alone = [
            stateless.post("/score_steps", {"problem": problem, "solutions": solutions}).json()
            for problem, solutions in ((PROBLEM, [steps[0], steps[2]]), (other, [steps[1]]))
        ]
        batch = {"problems": [PROBLEM, other, PROBLEM], "solutions": steps}
        found = stateless.post("/score_steps", batch).json()
    assert found["usage"]["computed_tokens"] == sum(each["usage"]["computed_tokens"] for each in alone)
    assert found["usage"]["computed_tokens"] < found["usage"]["tokens"]
    (first, third), (second,) = ([each["step_scores"] for each in one["solutions"]] for one in alone)
    for each, expected in zip(found["solutions"], (first, second, third), strict=True):
        assert each["step_scores"] == pytest.approx(expected, abs=1e-5)


def test_metrics_count_what_was_run(server):
    before = server.metric("unprm_tokens_total"), server.metric("unprm_computed_tokens_total")
    _, first = score(server, ["Step 1: 23 + 45 = 70."], ["Step 1: 23 + 45 = 71."])
    _, second = score(server, ["Step 1: 23 + 45 = 70."])
    after = server.metric("unprm_tokens_total"), server.metric("unprm_computed_tokens_total")
    assert after[0] - before[0] == first["tokens"] + second["tokens"]
    assert after[1] - before[1] == first["computed_tokens"]
    assert second["computed_tokens"] == 0


# where the clock stands still, no batch takes so long that smaller ones follow it


def test_a_model_that_runs_out_of_memory_answers_all_the_same():
    many = [[f"Step 1: 23 + {number} = {23 + number}.", *STEPS[1:]] for number in range(24)]
    with serving(_mini(), clock=lambda: 0.0) as untroubled:
        expected, _ = score(untroubled, *many)
    engine = _mini()
    sizes = []

    def allocate(module, positional, named):
        sizes.append(named["input_ids"].shape[1])
        if sizes[-1] > 300:
            raise torch.OutOfMemoryError

    engine._reader.decoders[0].register_forward_pre_hook(allocate, with_kwargs=True)
    with serving(engine, clock=lambda: 0.0) as server:
        scores, _ = score(server, *many)
        assert max(sizes) > 300
        for actual, reference in zip(scores, expected, strict=True):
            assert actual == pytest.approx(reference, abs=1e-5)
        assert server.get("/readyz").status_code == 200


class Paced:
    """Takes 5 ms a batch and the rest by its tokens, as `unprm-mini` on a slow processor, whatever the machine's."""

    def __init__(self, engine):
        self.format, self.description, self.close = engine.format, engine.description, engine.close
        self.new_tokens, self._score, self.now, self.batches = engine.new_tokens, engine.score, 0.0, []

    def score(self, batch):
        scores = self._score(batch)
        self.batches.append(sum(each.computed for each in scores))
        read = sum(each.tokens - each.computed for each in scores if each.computed)
        self.now += 0.005 + (self.batches[-1] + read / 8) / 6000
        return scores


@pytest.fixture(scope="module")
def tiny_prm(tmp_path_factory):
    place = tmp_path_factory.mktemp("tiny")
    write_prm(place, "tiny", window=2048)
    return place


def words(rng, count):
    return " ".join(rng.choices(["12", "+", "34", "=", "46", "is", "what"], k=count))


def test_a_request_of_a_search_is_one_batch(tiny_prm):
    """Ten requests of 64 solutions, on a server whose model's speed is not known yet."""
    rng = random.Random(0)
    problem, beams = words(rng, 80), [[] for _ in range(8)]
    engine = Paced(load_engine(str(tiny_prm), device="cpu", prefix_cache_gb=0.1))
    with serving(engine, clock=lambda: engine.now) as server:
        for _ in range(10):
            grown = [[*beam, words(rng, 11)] for beam in beams for _ in range(8)]
            assert server.post("/score_steps", {"problem": problem, "solutions": grown}).status_code == 200
            beams = rng.sample(grown, 8)
    assert 10_000 < sum(engine.batches) < 16_000
    assert len(engine.batches) <= 12, engine.batches


def test_solutions_of_a_long_problem_are_two_batches_at_most(tiny_prm):
    rng = random.Random(0)
    engine = Paced(load_engine(str(tiny_prm), device="cpu", prefix_cache_gb=0.1))
    body = {"problem": words(rng, 900), "solutions": [[words(rng, 40)] for _ in range(8)]}
    with serving(engine, clock=lambda: engine.now) as server:
        usage = server.post("/score_steps", body).json()["usage"]
    assert usage["tokens"] > 10_000
    assert len(engine.batches) <= 2, engine.batches


def test_the_server_tells_what_the_self_test_found(server):
    found = server.get("/model").json()["self_test"]
    assert 0 < found["difference"] < found["tolerance"] < 2e-3
    assert found["cached"] is True


@pytest.mark.parametrize("shared", [False, True])
def test_a_key_learns_nothing_of_what_another_had_scored(tmp_path, shared):
    file = tmp_path / "keys"
    file.write_text("one 11111111\ntwo 22222222\n")
    engine = _mini(prefix_cache_gb=0.05)
    with serving(engine, api_keys_file=file, share_caches=shared) as server:

        def cached(key: str) -> int:
            server.http.headers["Authorization"] = f"Bearer {key}"
            _, usage = score(server, STEPS)
            return usage["cached_tokens"] // usage["tokens"]

        assert [cached(key) for key in ("11111111", "22222222", "11111111")] == [0, int(shared), 1]


def test_a_key_learns_nothing_of_what_is_scored_for_another_at_the_same_time(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one 11111111\ntwo 22222222\n")
    gate = threading.Event()
    fake = FakeEngine(gate=gate)
    with serving(fake, clock=lambda: 0.0, api_keys_file=file, open_metrics=True) as server:

        def ask_as(key: str) -> Background:
            headers = {"Authorization": f"Bearer {key}"}
            body = {"problem": PROBLEM, "solutions": [STEPS]}
            return Background(lambda: server.post("/score_steps", body, headers=headers))

        calls = [ask_as("11111111")]
        until(lambda: len(fake.batches) == 1)
        for waiting, key in enumerate(("11111111", "22222222"), 1):
            calls.append(ask_as(key))
            until(lambda waiting=waiting: server.metric("unprm_queued_requests") == waiting)
        gate.set()
        assert [call.result().json()["usage"]["cached_tokens"] for call in calls] == [0, 0, 0]
    assert len(fake.batches[1]) == 2
