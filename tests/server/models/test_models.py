"""Several models in one server: chosen by name, their scores averaged, and one swapped for another."""

import gc
import threading
import weakref
from typing import Any

import pytest

from server.settings import Settings, SettingsInvalid
from tests.fake_engine import FakeEngine
from tests.server.harness import PROBLEM, Running, ask, boxed, raw, serving
from tests.server.options import read
from tests.support import until
from unprm.calibration import Calibration
from unprm.errors import ModelInvalid
from unprm.models.options import LoadModelRequest
from unprm.types import Encoded, Engine

ADMIN = {"Authorization": "Bearer admin"}


def fixed(value: float, **options: Any) -> FakeEngine:
    """An engine that gives every step this score."""

    def scores(item: Encoded) -> list[float]:
        return [value] * len(item.positions)

    return FakeEngine(scores=scores, **options)


def scores(running: Running, model: Any = None) -> tuple[str, list[float]]:
    body = running.post("/score_steps", ask(["one", "two"], model=model)).json()
    return body["model"], body["solutions"][0]["step_scores"]


def test_a_request_names_its_model() -> None:
    with serving({"first": fixed(0.25), "second": fixed(0.75)}) as running:
        assert scores(running) == ("first", [0.25, 0.25])
        assert scores(running, "first") == ("first", [0.25, 0.25])
        assert scores(running, "second") == ("second", [0.75, 0.75])
        assert running.get("/model").json()["models"] == ["first", "second"]
        assert running.get("/model").json()["name"] == "first"
        assert running.get("/model?name=second").json()["name"] == "second"
        preview = running.post("/preview", {"problem": PROBLEM, "solution": "x", "model": "second"}).json()
        assert preview["model"] == "second"


def test_several_models_give_the_mean_of_their_calibrated_scores() -> None:
    # log-odds of 0.8 are log 4: times 2 and minus log 4 they are log 4 again; of 0.2 they are -log 4: -log 64
    odd = Calibration(scale=2.0, shift=-1.3862943611198906)
    models = {"a": fixed(0.5), "b": fixed(0.8, calibration=odd), "c": fixed(0.2, calibration=odd)}
    with serving(models) as running:
        assert scores(running, "c") == ("c", [0.2, 0.2])  # alone a model's scores are as they are
        assert scores(running, ["a", "b"]) == ("a+b", pytest.approx([0.65, 0.65]))
        assert scores(running, ["c", "a"]) == ("c+a", pytest.approx([(1 / 65 + 0.5) / 2] * 2))
        body = ask(boxed(1), boxed(2), model=["a", "b", "c"])
        comparison = running.post("/vote/compare", body).json()
        assert comparison["model"] == "a+b+c"
        assert comparison["solutions"][0]["reward"] == pytest.approx((0.5 + 0.8 + 1 / 65) / 3)
        one = running.post("/score_steps", ask("x", model="a")).json()["usage"]["tokens"]
        assert running.post("/score_steps", ask("x", model=["a", "b", "c"])).json()["usage"]["tokens"] == 3 * one


def test_log_odds_are_returned_on_request() -> None:
    with serving(fixed(0.8)) as running:
        for path in ("/score_steps", "/vote/prm"):
            body = ask(boxed(1), boxed(2))
            solution = running.post(path, body | {"log_odds": True}).json()["solutions"][0]
            assert solution["step_log_odds"] == [pytest.approx(1.3862943611198906)]
            assert "step_log_odds" not in running.post(path, body).json()["solutions"][0]


@pytest.mark.parametrize("model", ["nobody", ["a", "nobody"]])
def test_a_model_that_is_not_served_is_refused(model: Any) -> None:
    with serving({"a": fixed(0.5)}) as running:
        for path in ("/score_steps", "/vote/majority", "/vote/compare"):
            refused = running.post(path, ask(boxed(1), model=model))
            assert (refused.status_code, refused.json()["code"]) == (422, "unknown_model")
            assert refused.json()["errors"] == [
                {"pointer": "/model", "detail": "no served model has the name that was sent; expected one of a"}
            ]


@pytest.mark.parametrize("model", ["", "a b", [], ["a"] * 17, 7, "x" * 201])
def test_what_can_be_no_model_s_name_is_refused(model: Any) -> None:
    with serving({"a": fixed(0.5)}) as running:
        refused = running.post("/score_steps", ask("x", model=model))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
        assert refused.json()["errors"][0]["pointer"].startswith("/model")


def test_if_one_of_several_models_fails_the_request_does() -> None:
    models = {"a": fixed(0.5), "small": fixed(0.5, max_tokens=12), "broken": FakeEngine(failures={0: RuntimeError()})}
    with serving(models) as running:
        refused = running.post("/score_steps", ask("a long solution", model=["a", "small"]))
        assert refused.json()["code"] == "solution_too_long"
        refused = running.post("/score_steps", ask("x", model=["a", "broken"]))
        assert refused.json()["code"] == "model_unavailable"
        assert scores(running, ["a", "broken"])[0] == "a+broken"


def test_administration_is_not_there_without_a_key_of_its_own() -> None:
    with serving(open_model=lambda request: fixed(0.5), api_key="user") as running:
        user = {"Authorization": "Bearer user"}
        assert running.get("/admin/models", headers=user).status_code == 404
    with serving(open_model=lambda request: fixed(0.5), api_key="user", admin_key="admin") as running:
        for headers in ({}, user):
            assert running.get("/admin/models", headers=headers).status_code == 401
            refused = running.post("/admin/models", {"name": "b", "model": "x"}, headers=headers)
            assert refused.json()["code"] == "unauthorized"
        assert running.get("/admin/models", headers=ADMIN).status_code == 200
        assert running.get("/model", headers=ADMIN).status_code == 401


def test_administration_takes_no_longer_a_body_than_work_does() -> None:
    options: dict[str, Any] = {"admin_key": "admin", "max_body_bytes": 1000}
    with serving(open_model=lambda request: fixed(0.5), **options) as running:
        refused = running.post("/admin/models", {"name": "b", "model": "x" * 1001}, headers=ADMIN)
        assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
        assert running.get("/admin/models", headers=ADMIN).status_code == 200


def load(running: Running, name: str, **more: Any) -> None:
    assert running.post("/admin/models", {"name": name, "model": "x", **more}, headers=ADMIN).status_code == 202


def states(running: Running) -> dict[str, str]:
    models = running.get("/admin/models", headers=ADMIN).json()["models"]
    return {model["name"]: model["state"] for model in models}


def test_a_model_is_swapped_without_losing_a_request() -> None:
    old, gate = fixed(0.25, delay=0.02), threading.Event()
    requests: list[LoadModelRequest] = []

    def open_model(request: LoadModelRequest) -> Engine:
        requests.append(request)
        gate.wait()
        return fixed(0.75, delay=0.02)

    with serving({"prm": old}, open_model, admin_key="admin") as running:
        answered: list[float] = []
        failed: list[str] = []
        over = threading.Event()

        def keep_asking() -> None:
            while not over.is_set():
                response = running.post("/score_steps", ask("x"))
                if response.status_code == 200:
                    answered.append(response.json()["solutions"][0]["reward"])
                else:
                    failed.append(response.text)

        callers = [threading.Thread(target=keep_asking) for _ in range(4)]
        for caller in callers:
            caller.start()
        load(running, "prm", adapter="new", family="unprm")
        until(lambda: bool(requests))
        assert requests[0].adapter == "new"
        models = running.get("/admin/models", headers=ADMIN).json()["models"]
        assert [model["state"] for model in models] == ["ready", "loading"]
        until(lambda: len(answered) > 20)
        assert set(answered) == {0.25}
        gate.set()
        until(lambda: old.closed)
        seen = len(answered)
        until(lambda: len(answered) > seen + 20)
        over.set()
        for caller in callers:
            caller.join()
        assert not failed
        assert answered[-1] == 0.75
        assert set(answered) == {0.25, 0.75}
        assert states(running) == {"prm": "ready"}


def test_a_model_that_cannot_be_loaded_leaves_the_old_one() -> None:
    def open_model(request: LoadModelRequest) -> Engine:
        raise ModelInvalid("it has no head")

    with serving({"prm": fixed(0.25)}, open_model, admin_key="admin") as running:
        load(running, "prm")
        until(lambda: "failed" in str(running.get("/admin/models", headers=ADMIN).json()))
        models = running.get("/admin/models", headers=ADMIN).json()["models"]
        assert [(model["name"], model["state"], model["detail"]) for model in models] == [
            ("prm", "ready", None),
            ("prm", "failed", "it has no head"),
        ]
        assert scores(running) == ("prm", [0.25, 0.25])
        assert running.get("/readyz").status_code == 200


def test_models_are_added_and_unloaded() -> None:
    made: list[FakeEngine] = []

    def open_model(request: LoadModelRequest) -> Engine:
        made.append(fixed(0.75))
        return made[-1]

    with serving({"a": fixed(0.25)}, open_model, admin_key="admin") as running:
        load(running, "org/b")
        until(lambda: states(running) == {"a": "ready", "org/b": "ready"})
        assert scores(running, "org/b") == ("org/b", [0.75, 0.75])
        assert running.http.delete("/admin/models/org/b", headers=ADMIN).status_code == 202
        until(lambda: made[0].closed)
        assert running.post("/score_steps", ask("x", model="org/b")).json()["code"] == "unknown_model"
        only = running.http.delete("/admin/models/a", headers=ADMIN)
        assert only.json()["detail"] == "the only model can't be unloaded; load another one in its place"
        assert running.http.delete("/admin/models/c", headers=ADMIN).json()["code"] == "unknown_model"


def test_a_model_is_left_alone_by_the_garbage_collector_until_it_goes() -> None:
    made: list[weakref.ref[FakeEngine]] = []

    class Tangled(FakeEngine):
        """Refers to itself, as the modules of a network do."""

        def __init__(self) -> None:
            super().__init__()
            self.me = self

    def open_model(request: LoadModelRequest) -> Engine:
        engine = Tangled()
        made.append(weakref.ref(engine))
        return engine

    with serving({"a": fixed(0.25)}, open_model, admin_key="admin") as running:
        load(running, "b")
        until(lambda: states(running) == {"a": "ready", "b": "ready"})
        assert not any(isinstance(tracked, Tangled) for tracked in gc.get_objects())  # frozen ones are not listed
        running.http.delete("/admin/models/b", headers=ADMIN)
        until(lambda: made[0]() is None)


def test_the_model_requested_last_is_served() -> None:
    gates = [threading.Event(), threading.Event()]
    engines = [fixed(0.5), fixed(0.75)]
    begun: list[str] = []

    def open_model(request: LoadModelRequest) -> Engine:
        number = int(request.model)
        begun.append(request.model)
        gates[number].wait()
        return engines[number]

    with serving({"prm": fixed(0.25)}, open_model, admin_key="admin") as running:
        load(running, "prm", model="0")
        until(lambda: begun == ["0"])
        load(running, "prm", model="1")
        until(lambda: begun == ["0", "1"])
        gates[0].set()  # ready, but not what is wanted any more
        until(lambda: engines[0].closed)
        assert scores(running)[1] == [0.25, 0.25]
        gates[1].set()
        until(lambda: scores(running)[1] == [0.75, 0.75])


def test_a_server_s_end_closes_all_models() -> None:
    engines = {"a": fixed(0.25), "b": fixed(0.5)}
    with serving(engines):
        pass
    assert all(engine.closed for engine in engines.values())


def test_a_server_s_end_closes_a_model_that_is_about_to_go() -> None:
    gate = threading.Event()
    going = fixed(0.25, gate=gate)
    models = {"a": going, "b": fixed(0.5)}
    with serving(models, lambda request: fixed(0.5), admin_key="admin", drain_seconds=0) as running:
        connection = running.connect(raw(ask("x")))
        until(lambda: bool(going.batches))
        assert running.http.delete("/admin/models/a", headers=ADMIN).status_code == 202
    with connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 503")
    assert not going.closed
    gate.set()
    until(lambda: going.closed)  # when its thread comes to it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "a=x", "--model", "a=y"], "NAME=MODEL, with different names"),
        (["--model", "x", "--model", "a=y"], "NAME=MODEL, with different names"),
        (["--model", "a=x,b=y", "--adapter", "z"], "go with a single --model"),
        (["--model", "a b=x"], "--model: name: String should match"),
        (["--model", "a=x,b=y", "--engine", "remote", "--url", "http://x"], "goes with a single --model"),
    ],
)
def test_models_that_cannot_be_told_apart_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message):
        read(Settings, arguments)


def test_models_are_given_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def models(*arguments: str) -> dict[str, tuple[str, str | None]]:
        return {name: (request.model, request.adapter) for name, request in read(Settings, arguments).models().items()}

    assert models() == {"": ("unprm-mini", None)}
    assert models("--model=base", "--adapter=prm") == {"": ("base", "prm")}
    assert models("--model", "a=org/x", "--model", "b=/y") == {"a": ("org/x", None), "b": ("/y", None)}
    monkeypatch.setenv("UNPRM_MODEL", "a=org/x,b=/y")
    assert list(models()) == ["a", "b"]
