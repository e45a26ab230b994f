"""Every alert, seen firing and silent on the metrics of a running server that is set up as the shipped files do it."""

import re
import resource
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.responses import PlainTextResponse

from tests.docker.recordings import Minute, firing, minute, shipped
from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.harness import Background, Running, ask, bearer, boxed, serving
from tests.server.processes import process
from tests.server.test_feedback import CALIBRATION, VOTE
from tests.support import PATIENCE, ROOT, until
from unprm.errors import ModelInvalid
from unprm.types import Encoded, Engine, StepScores

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool comes with Prometheus, which is not installed"
)

ONE, OTHER = bearer("key-of-one"), bearer("key-of-the-other")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "What is 3 + 4?"}], "unprm": {"budget": 2}}
ALERTS = {
    rule["alert"]
    for group in yaml.safe_load((ROOT / "docker" / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    keys = tmp_path / "keys"
    keys.write_text("one key-of-one\nother key-of-the-other\nfew key-of-the-few 10\n")
    return shipped(keys)


def work(server: Running, *callers: dict[str, str], times: int = 3, **more: Any) -> Callable[[], object]:
    return lambda: [
        server.post("/score_steps", ask("a"), headers=caller | more) for caller in callers for _ in range(times)
    ]


def chats(server: Running, *callers: dict[str, str], times: int = 2, patience: float = PATIENCE) -> Callable[[], None]:
    """Chat completions, whose callers leave when their patience ends."""

    def happens() -> None:
        for caller in callers * times:
            with suppress(httpx.ReadTimeout):
                server.post("/v1/chat/completions", CHAT, headers=caller, timeout=patience)
        until(lambda: server.service.admission.running.count == 0)

    return happens


def seen(directory: Path, before: Minute, fault: list[Minute], after: Minute, *expected: str) -> None:
    """Nothing fires before the fault, what is expected at its end, nothing an hour later."""
    minutes = [before] * 15 + fault + [after] * 90
    found = firing(directory, minutes, 15, 15 + len(fault), len(minutes))
    assert found == [set(), set(expected), set()]


def both(server: Running) -> Minute:
    return minute(server.url, work(server, ONE, OTHER))


def test_what_is_well_rings_nothing(settings: dict[str, Any], tmp_path: Path) -> None:
    with upstream(boxed(7)[0]) as reasoner, serving(upstream_url=reasoner.url, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE)()))
        quota = minute(server.url, lambda: (work(server, ONE)(), work(server, bearer("key-of-the-few"), times=9)()))
        assert server.metric('unprm_requests_total{code="quota_exceeded"}') == 8
    seen(tmp_path, well, [quota] * 30, well)


@pytest.mark.parametrize("waits", [0.05, None])
def test_an_upstream_that_hangs(waits: float | None, settings: dict[str, Any], tmp_path: Path) -> None:
    """Its callers leave, or wait for a 504."""
    gate = threading.Event()
    held = dict.fromkeys(range(2, 99), gate)
    with upstream(boxed(7)[0], held=held) as reasoner, serving(upstream_url=reasoner.url, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, times=2)()))
        late = ONE | {"X-Request-Timeout": "0.05"}
        hangs = chats(server, OTHER, patience=waits) if waits else chats(server, late)
        hung = minute(server.url, lambda: (work(server, ONE, OTHER)(), hangs()))
    alerts = ["UnprmUpstreamDown", "UnprmUpstreamFails"]
    seen(tmp_path, well, [hung] * 15, well, *alerts)


def test_an_upstream_that_answers_503_pages_within_ten_minutes(settings: dict[str, Any], tmp_path: Path) -> None:
    errors = {number: PlainTextResponse("no", 503) for number in range(2, 99)}
    with upstream(boxed(7)[0], errors=errors) as reasoner, serving(upstream_url=reasoner.url, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, times=2)()))
        fails = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, OTHER)()))
        assert server.metric('unprm_requests_total{code="upstream_unavailable",status="503"}') == 4
    assert "UnprmUpstreamDown" in firing(tmp_path, [well] * 15 + [fails] * 10, 25)[0]
    alerts = ["UnprmUpstreamDown", "UnprmUpstreamFails", "UnprmErrors", "UnprmErrorsOfOne"]
    seen(tmp_path, well, [fails] * 30, well, *alerts)


def test_an_upstream_that_refuses_for_its_limit_is_a_ticket(settings: dict[str, Any], tmp_path: Path) -> None:
    errors = {number: PlainTextResponse("no", 429) for number in range(2, 99)}
    with upstream(boxed(7)[0], errors=errors) as reasoner, serving(upstream_url=reasoner.url, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, times=2)()))
        fails = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, OTHER)()))
        assert server.metric('unprm_requests_total{code="upstream_busy",status="429"}') == 4
    seen(tmp_path, well, [fails] * 30, well, "UnprmUpstreamFails")


def test_one_impatient_caller_of_an_upstream_that_answers_others(settings: dict[str, Any], tmp_path: Path) -> None:
    held = {2: threading.Event()}
    with upstream(boxed(7)[0], held=held) as reasoner, serving(upstream_url=reasoner.url, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), chats(server, ONE, times=2)()))
        mixed = minute(server.url, lambda: (chats(server, OTHER, times=1, patience=0.05)(), chats(server, ONE)()))
    seen(tmp_path, well, [mixed] * 30, well, "UnprmUpstreamFails")


@pytest.mark.parametrize("callers", [1, 2])
def test_a_model_that_fails(callers: int, settings: dict[str, Any], tmp_path: Path) -> None:
    """What one of two callers suffers wakes nobody."""
    failures = {number: RuntimeError() for number in (6, 7)[:callers]}
    with serving(FakeEngine(failures=failures), **settings) as server:
        well = minute(server.url, work(server, ONE, OTHER))
        fails = minute(server.url, lambda: (work(server, *[OTHER, ONE][:callers], times=1)(), work(server, ONE)()))
        assert server.metric('unprm_requests_total{code="model_unavailable"}') == callers
    seen(tmp_path, well, [fails] * 30, well, *["UnprmErrorsOfOne", "UnprmErrors"][:callers])


def test_a_caller_with_too_little_time(settings: dict[str, Any], tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    with serving(FakeEngine(gate=gate), **settings) as server:
        well = both(server)
        gate.clear()
        hurried = minute(server.url, work(server, OTHER, times=1, **{"X-Request-Timeout": "0.05"}))
        gate.set()
    seen(tmp_path, well, [hurried] * 30, well, "UnprmHurried")


def test_a_queue_that_is_full_or_slow(settings: dict[str, Any], tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    with serving(FakeEngine(gate=gate), batch_tokens=2, max_queued_tokens=400, **settings) as server:
        well = both(server)
        gate.clear()
        waiting: list[Background] = []

        def begins() -> None:
            for caller in (ONE, OTHER):
                waiting.extend(
                    Background(lambda text=text, caller=caller: server.post("/score_steps", ask(text), headers=caller))
                    for text in ("b", "c", "d")
                )
            until(lambda: server.metric("unprm_queued_requests") + len(waiting) >= 11)
            for _ in range(3):
                server.post("/score_steps", ask("a" * 300), headers=ONE)

        full = minute(server.url, begins)
        assert server.metric('unprm_requests_total{code="overloaded"}') == 3

        def ends() -> None:
            threading.Event().wait(10.5)
            gate.set()
            assert {each.result().status_code for each in waiting} == {200}

        slow = minute(server.url, ends)
    seen(tmp_path, well, [full] * 30, well, "UnprmOverloaded")
    seen(tmp_path, well, [slow] * 30, well, "UnprmSlow", "UnprmSlowForAll")


def test_keys_that_are_lost(settings: dict[str, Any], tmp_path: Path) -> None:
    with serving(**settings) as server:
        well = both(server)
        settings["api_keys_file"].write_text("broken")
        stale = both(server)
        settings["api_keys_file"].write_text("new the-new-keys\n")
        refused = both(server)
        settings["api_keys_file"].write_text("one key-of-one\nother key-of-the-other\n")
        again = both(server)
    seen(tmp_path, well, [stale] * 15, again, "UnprmStaleFile")
    seen(tmp_path, well, [refused] * 20, again, "UnprmNobodyLetIn")


def test_a_model_that_loads_or_cannot_be_loaded(settings: dict[str, Any], tmp_path: Path) -> None:
    gate = threading.Event()

    def slow() -> Engine:
        gate.wait()
        return FakeEngine()

    def broken() -> Engine:
        raise ModelInvalid("no")

    with serving(slow, **settings) as server:
        loading = both(server)
        gate.set()
        until(lambda: server.metric("unprm_ready") == 1)
        well = both(server)
    with serving(broken, **settings) as server:
        until(lambda: server.metric("unprm_loading_models") == 0)
        failed = minute(server.url)
    seen(tmp_path, well, [loading] * 19, well)
    seen(tmp_path, well, [loading] * 35, well, "UnprmUnavailable")
    seen(tmp_path, well, [failed] * 15, well, "UnprmNotReady")
    seen(tmp_path, well, [loading, loading, well, well] * 5, well, "UnprmReloading")


def test_a_server_that_is_gone_or_comes_and_goes(settings: dict[str, Any], tmp_path: Path) -> None:
    with serving(**settings) as server:
        well = both(server)
    down = minute(server.url)
    unknown = Minute(well.before._replace(counters={}, gauges={}), well.after._replace(counters={}, gauges={}))
    seen(tmp_path, well, [down] * 4, well, "UnprmDown")
    seen(tmp_path, well, [unknown] * 15, well, "UnprmGone")
    seen(tmp_path, well, [down, well] * 9, well, "UnprmFlapping")


def test_a_server_that_dies_again_and_again(settings: dict[str, Any], tmp_path: Path) -> None:
    starts = []
    for number in range(4):
        with process(tmp_path / f"log-{number}", "--open-metrics") as server:
            starts.append(minute(server.url))
    seen(tmp_path, starts[0], [each for each in starts for _ in range(5)], starts[-1], "UnprmRestarting")


def test_a_journal_that_cannot_be_written(settings: dict[str, Any], tmp_path: Path) -> None:
    with serving(journal=tmp_path / "journal", **settings) as server:
        well = both(server)
        until(lambda: server.service.journal._writer._work_queue.empty())  # type: ignore[union-attr]
        with closing(sqlite3.connect(tmp_path / "journal")) as database:
            database.execute("ALTER TABLE requests RENAME TO others")
        fails = minute(server.url, lambda: (work(server, ONE)(), until(lambda: server.service.journal.dropped == 3)))  # type: ignore[union-attr]
    seen(tmp_path, well, [fails] * 30, well, "UnprmJournalDrops")


def test_a_risk_that_is_broken(settings: dict[str, Any], tmp_path: Path) -> None:
    CALIBRATION.write(tmp_path / "calibration.json")
    journal = {"journal": tmp_path / "journal", "vote_calibration": tmp_path / "calibration.json"}
    with serving(**journal, **settings) as server:

        def judged(correct: bool) -> None:
            ids = [server.post("/vote/majority", VOTE | {"risk": 0.05}, headers=ONE) for _ in range(6)]
            for each in ids:
                body = {"request_id": each.headers["X-Request-ID"], "correct": correct}
                assert server.post("/feedback", body, headers=ONE).json()["accept"]

        well = minute(server.url, lambda: judged(True))
        broken = minute(server.url, lambda: judged(False))
    seen(tmp_path, well, [broken] * 15, well, "UnprmRiskBroken")


def test_descriptors_that_run_out(settings: dict[str, Any], tmp_path: Path) -> None:
    with serving(**settings) as server:
        well = both(server)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        opened = well.after.gauges['process_open_fds{instance="one", job="unprm"}']
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(opened / 0.9) + 4, hard))
        try:
            short = both(server)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    seen(tmp_path, well, [short] * 15, well, "UnprmDescriptors")


class _SilentJudge(FakeEngine):
    """Gives no verdict on a step."""

    def score(self, batch: Sequence[Encoded]) -> list[StepScores]:
        return [scores._replace(missing=1) for scores in super().score(batch)]


def test_a_judge_that_is_silent(settings: dict[str, Any], tmp_path: Path) -> None:
    with serving({"fake": FakeEngine(), "judge": _SilentJudge()}, **settings) as server:
        well = both(server)
        silent = minute(
            server.url,
            lambda: [server.post("/score_steps", ask(str(number), model="judge"), headers=ONE) for number in range(9)],
        )
    seen(tmp_path, well, [silent] * 30, well, "UnprmJudgeSilent")


def test_answers_that_take_too_long(settings: dict[str, Any], tmp_path: Path) -> None:
    hard = [boxed(f"\\sqrt{{{number}}}+\\frac{{1}}{{{number}}}") for number in range(2, 40)]
    with serving(equivalence_deadline=1e-6, **settings) as server:
        well = minute(server.url, lambda: (work(server, ONE, OTHER)(), server.post("/vote/majority", ask(boxed(1)))))
        late = minute(server.url, lambda: server.post("/vote/majority", ask(*hard), headers=ONE))
    seen(tmp_path, well, [late] * 30, well, "UnprmAnswersByText")


def test_every_alert_is_among_them() -> None:
    assert set(re.findall(r'"(Unprm\w+)"', Path(__file__).read_text("utf-8"))) == ALERTS
