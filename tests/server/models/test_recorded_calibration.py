"""`--calibration recorded`: one model's scores calibrated, with the threshold that goes with them."""

import logging
from pathlib import Path

import pytest

from server.models import load as loading
from server.settings import Settings
from tests.server.harness import Running, ask, serving
from tests.server.models.test_models import fixed
from tests.server.options import read
from unprm.calibration import Calibration, RecordedCalibration
from unprm.engines.fake import FakeEngine
from unprm.errors import ModelInvalid
from unprm.formats import recorded
from unprm.models.options import LoadModelRequest
from unprm.types import Encoded

# log-odds of 0.8 are log 4; half of them log 2: calibrated 2/3. Of 0.2: 1/3, of 0.5: 1/2
HALVED = RecordedCalibration("org/prm", Calibration(scale=0.5), threshold=0.6)
PRM = "Qwen/Qwen2.5-Math-PRM-7B"


def served(*values: float) -> FakeEngine:
    def scores(item: Encoded) -> list[float]:
        return list(values[: len(item.positions)])

    return FakeEngine(scores=scores, recorded=HALVED)


def first(running: Running, *solutions: object, path: str = "/score_steps", **more: object) -> dict[str, object]:
    solution: dict[str, object] = running.post(path, ask(*solutions, **more)).json()["solutions"][0]
    return solution


@pytest.mark.parametrize("path", ["/score_steps", "/vote/prm"])
def test_scores_of_the_model_are_calibrated_and_its_threshold_is_the_default(path: str) -> None:
    steps, other = ["a", "b", "\\boxed{3}"], ["a", "b", "\\boxed{4}"]
    with serving(served(0.8, 0.5, 0.2)) as running:
        solution = first(running, steps, other, path=path, log_odds=True)
        assert solution["step_scores"] == pytest.approx([2 / 3, 1 / 2, 1 / 3])
        assert solution["step_log_odds"] == pytest.approx([0.6931, 0, -0.6931], abs=1e-4)
        assert (solution["first_error"], solution["threshold"]) == (1, 0.6)
        assert solution["reward"] == pytest.approx(1 / 3)
        named = first(running, steps, other, path=path, threshold=0.4)
        assert named["first_error"] == 2
        assert "threshold" not in named
        assert first(running, steps, other, path=path, threshold=0.0)["first_error"] is None


def test_scores_that_come_with_a_request_stay_as_they_are() -> None:
    with serving(served(0.8)) as running:
        solution = first(running, {"steps": ["a", "b"], "step_scores": [0.55, 0.45]}, "x")
        assert solution["step_scores"] == [0.55, 0.45]
        assert solution["first_error"] == 1
        assert "threshold" not in solution


def test_several_models_take_the_recorded_calibration_but_no_threshold_of_one() -> None:
    with serving({"a": served(0.2), "b": fixed(0.7)}) as running:
        solution = first(running, "x", model=["a", "b"])
        assert solution["step_scores"] == pytest.approx([(1 / 3 + 0.7) / 2])
        assert solution["first_error"] is None
        assert "threshold" not in solution


def test_the_model_tells_its_calibration() -> None:
    with serving({"a": served(0.8), "b": fixed(0.5)}) as running:
        expected = {"model": "org/prm", "scale": 0.5, "shift": 0.0, "threshold": 0.6}
        assert running.get("/model").json()["calibration"] == expected
        assert running.get("/model?name=b").json()["calibration"] is None


def load(monkeypatch: pytest.MonkeyPatch, *models: str, **options: object) -> RecordedCalibration | None:
    """The recorded calibration that the first of these models is loaded with."""
    monkeypatch.setenv("UNPRM_CALIBRATION", "recorded")
    arguments = [f"--{name}={value}" for name, value in options.items()]
    settings = read(Settings, [*(f"--model={model}" for model in models), "--device=cpu", *arguments])
    (request, *_) = settings.models().values()
    engine = loading.load(settings, request)
    engine.close()
    return engine.description.recorded


def test_a_directory_is_known_by_the_hub_name_that_it_is_served_by(
    adapter: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "server.models.load"):
        found = load(monkeypatch, f"{PRM}={adapter}")
    assert found == recorded.find(PRM)
    assert found.calibration == Calibration(0.9317, -0.6785)
    assert [record.getMessage() for record in caplog.records] == [
        f"the recorded calibration of {PRM} makes the calibration error on math worse: 0.043 with it, 0.023 without"
    ]


@pytest.mark.parametrize("model", ["{adapter}", "mine={adapter}", "unprm-mini", f"Other/{PRM.partition('/')[2]}"])
def test_a_model_of_which_none_is_recorded_is_refused_before_it_is_loaded(
    model: str, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model.format(adapter=adapter)
    with pytest.raises(ModelInvalid, match=r"none is recorded of .*; there are .*Skywork") as refused:
        load(monkeypatch, model)
    assert repr(model.rpartition("=")[2]) in str(refused.value)


def test_an_adapter_makes_another_model(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelInvalid, match=f"{PRM}' with an adapter"):
        load(monkeypatch, PRM, adapter=adapter)


def test_a_published_model_is_known_by_whatever_name_it_is_served() -> None:
    request = LoadModelRequest(name="qwen", model=PRM)
    assert recorded.find(request.model, request.name).model == PRM
    assert [len(recorded.drawbacks(name)) for name in recorded.read()["models"]] == [1, 2, 0, 1, 2]
