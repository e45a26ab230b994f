"""What the metrics tell of readiness, errors, models, and the servers behind."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from starlette.responses import PlainTextResponse

from server.models.load import load
from server.observe import Metrics
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.judge_server import MODEL, judging
from tests.server.harness import ask, boxed, serving
from tests.support import until
from unprm.types import Engine


def test_a_server_says_whether_it_takes_work() -> None:
    gate = threading.Event()

    def slow() -> Engine:
        gate.wait()
        return FakeEngine()

    with serving(slow) as server:
        assert (server.metric("unprm_ready"), server.metric("unprm_loading_models")) == (0, 1)
        gate.set()
        until(lambda: server.metric("unprm_ready") == 1)
        assert server.metric("unprm_loading_models") == 0


@pytest.mark.parametrize(("seconds", "code"), [("0.0005", "caller_deadline"), ("0.4", "deadline_exceeded")])
def test_a_caller_s_haste_is_told_from_the_server_s_slowness(
    seconds: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    gate = threading.Event()
    with serving(FakeEngine(gate=gate), max_request_seconds=0.5) as server:
        late = server.post("/score_steps", ask("a"), headers={"X-Request-Timeout": seconds})
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        assert server.metric(f'unprm_requests_total{{route="/score_steps",status="504",code="{code}"}}') == 1
        gate.set()
    lines: list[Any] = [record.__dict__["fields"] for record in caplog.records if record.message == "request"]
    assert lines[0]["code"] == code


def test_models_are_told_apart() -> None:
    with serving({"one": FakeEngine(), "other": FakeEngine()}) as server:
        one, _ = (server.post("/score_steps", ask("a", **more)).json() for more in ({}, {"model": "other"}))
        server.post("/score_steps", ask("b", model=["one", "other"]))
        for name in ("one", "other"):
            tokens = server.metric(f'unprm_tokens_total{{model="{name}"}}')
            assert tokens == 2 * one["usage"]["tokens"]
            assert server.metric(f'unprm_forward_seconds_count{{model="{name}"}}') == 2
            assert server.metric(f'unprm_queued_tokens{{model="{name}"}}') == 0
        assert server.metric('unprm_tokens_total{model="one+other"}') == 0


def test_calls_to_the_upstream_are_counted_by_their_outcome() -> None:
    message: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
    errors = {1: PlainTextResponse("no", 500), 2: PlainTextResponse("no", 404)}
    with (
        upstream(boxed(1)[0], errors=errors) as reasoner,
        serving(upstream_url=reasoner.url) as server,
    ):
        for _ in range(3):
            server.post("/v1/chat/completions", message | {"unprm": {"budget": 1}})
        counts = {
            outcome: server.metric(f'unprm_upstream_seconds_count{{upstream="first",outcome="{outcome}"}}')
            for outcome in ("ok", "5xx", "4xx")
        }
    assert counts == {"ok": 1, "5xx": 1, "4xx": 1}


def test_calls_to_the_judge_are_counted() -> None:
    metrics = Metrics()
    with judging() as judge:
        settings = Settings(model=["judge"], judge_url=judge.url, judge_model=MODEL)
        (request,) = settings.models().values()
        load(settings, request, metrics.count_judge_call).close()
        assert (
            f'unprm_judge_seconds_count{{outcome="ok"}} {len(judge.requests)}.0'
            in generate_latest(metrics.registry).decode()
        )


def test_callers_are_counted_by_the_names_of_their_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("".join(f"caller-{number} key-of-{number}\n" for number in range(260)))
    with serving(api_keys_file=tmp_path / "keys") as server:
        for number in range(260):
            headers = {"Authorization": f"Bearer key-of-{number}"}
            sent = server.post("/score_steps", ask("a" * 100) if number else {}, headers=headers)
            assert sent.status_code == (200 if number else 422)
        server.http.headers.update(headers)
        assert server.metric('unprm_caller_requests_total{caller="caller-0",code="invalid_request"}') == 1
        assert server.metric('unprm_caller_requests_total{caller="caller-9",code=""}') == 1
        assert server.metric('unprm_caller_tokens_total{caller="caller-9"}') == sent.json()["usage"]["tokens"]
        assert server.metric('unprm_caller_bytes_total{caller="caller-9"}') == len(sent.request.content)
        assert server.metric('unprm_caller_seconds_count{caller="caller-9"}') == 1
        assert server.metric('unprm_caller_requests_total{caller="(others)"}') == 4
        assert server.get("/metrics").text.count("unprm_caller_bytes_total{") == 257


def test_a_file_that_cannot_be_read_any_more_is_told(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one 11111111\n")
    with serving(api_keys_file=file, open_metrics=True) as server:
        states = []
        for text in ("one 11111111\n", "one\n", "", None, "one 22222222\n"):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            states.append(server.metric('unprm_stale_files{contents="keys"}'))
    assert states == [0, 1, 1, 1, 0]


def test_a_request_whose_caller_left_is_in_the_usage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "keys").write_text("one 11111111\n")
    gate = threading.Event()
    with serving(FakeEngine(gate=gate), api_keys_file=tmp_path / "keys", open_metrics=True) as server:
        with pytest.raises(httpx.ReadTimeout):
            server.post("/score_steps", ask("a" * 100), headers={"Authorization": "Bearer 11111111"}, timeout=0.3)
        until(lambda: server.metric('unprm_caller_requests_total{code="caller_left"}') == 1)
        assert server.metric('unprm_caller_tokens_total{caller="1"}') > 100
        gate.set()
        whole = server.post("/score_steps", ask("a" * 100), headers={"Authorization": "Bearer 11111111"})
        assert server.metric('unprm_caller_tokens_total{caller="1"}') == 2 * whole.json()["usage"]["tokens"]
