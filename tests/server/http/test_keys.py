"""Callers' keys: several, each with a name, changed without a restart, and never revealed."""

import logging
import os
import re
import sys
import threading
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from server.lease import Admission, Lease
from server.middleware import Access, Caller, Keys, KeysInvalid, share_of
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.server.harness import PROBLEM, Background, ask, bearer, boxed, read, serving
from tests.support import until


def test_keys_of_a_file_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text("# agents\nsearch CANARY-search\n\ntraining CANARY-training\n")
    caplog.set_level(logging.INFO, "server")
    with serving(api_key="CANARY-plain", api_keys_file=file) as server:

        def status(key: str) -> int:
            return server.post("/vote/majority", ask(boxed(1)), headers=bearer(key)).status_code

        assert [status(key) for key in ("CANARY-search", "CANARY-training", "CANARY-plain")] == [200, 200, 200]
        assert [status(key) for key in ("CANARY", "search")] == [401, 401]
        assert server.get("/metrics").status_code == 401
        (tmp_path / "next").write_text("search CANARY-rotated\n")
        os.replace(tmp_path / "next", file)
        assert [status(key) for key in ("CANARY-rotated", "CANARY-search", "CANARY-training")] == [200, 401, 401]
        file.write_text("nonsense\n")
        assert [status(key) for key in ("CANARY-rotated", "nonsense")] == [200, 401]
        file.unlink()
        assert status("CANARY-rotated") == 200
    callers = [record.fields.get("caller") for record in caplog.records if record.message == "request"]
    assert callers[:3] == ["search", "training", None]
    messages = [record.getMessage() for record in caplog.records]
    assert any("line 1: expected NAME KEY" in line for line in messages)
    assert any("can't be read" in line for line in messages)
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize("key", ["CANARY-à", "CANARY-\u00a0", "CANARY-\x85", "CANARY-\u2028x"])
def test_a_key_may_have_any_character_but_ascii_space(tmp_path: Path, key: str) -> None:
    """Even if its last byte is a space in Latin-1, as which headers are decoded."""
    file = tmp_path / "keys"
    file.write_text(f"search {key}\n", "utf-8")
    for options in ({"api_keys_file": file}, {"api_key": key}):
        with serving(**options) as server:
            sent = {b"Authorization": b"Bearer " + key.encode()}
            assert server.http.get("/metrics", headers=sent).status_code == 200
            assert server.http.get("/metrics", headers={b"Authorization": b"Bearer CANARY-"}).status_code == 401


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no keys"),
        ("# nobody\n", "has no keys"),
        ("one short\n", "line 1: expected NAME KEY"),
        ("o/ne 12345678\n", "line 1"),
        ("one 12345678\none 87654321\n", "line 2: the name or the key is a duplicate"),
        ("one 12345678\ntwo 12345678\n", "line 2: the name or the key is a duplicate"),
        ("one 12345678 more\n", "line 1"),
        ("one 12345678 0\n", "line 1"),
        ("one 12345678 1000 more\n", "line 1"),
    ],
)
def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(KeysInvalid, match=message) as refused:
        Keys(None, file)
    assert "1234" not in str(refused.value)
    with pytest.raises(KeysInvalid, match="can't be read"):
        Keys(None, tmp_path / "nowhere")


def test_opened_metrics_need_no_key_and_name_no_caller(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("CANARY-name CANARY-key\n")
    with serving(api_keys_file=file, open_metrics=True) as server:
        body = {"problem": "CANARY-text", "solutions": [boxed("CANARY-answer"), boxed(1)]}
        headers = bearer("CANARY-key") | {"X-Request-ID": "CANARY-id"}
        assert server.post("/vote/wrf", body, headers=headers).status_code == 200
        server.get("/CANARY-path", headers=headers)
        response = server.get("/metrics")
        assert response.status_code == 200
        assert "unprm_votes_total" in response.text
        assert "CANARY" not in response.text
        assert set(re.findall(r'[{,](\w+)="', response.text)) == {
            "route",
            "caller",
            "contents",
            "status",
            "code",
            "model",
            "strategy",
            "le",
        }
        assert set(re.findall(r'caller="(.*?)"', response.text)) == {"1"}
        for header in ("X-Forwarded-For", "Forwarded"):  # by an ingress
            assert server.get("/metrics", headers={header: "203.0.113.9"}).status_code == 401
            assert server.get("/metrics", headers=headers | {header: "203.0.113.9"}).status_code == 200
        assert [server.get(path).status_code for path in ("/model", "/metrics/")] == [401, 401]


def test_a_key_has_so_many_tokens_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("few 11111111 1\nmany 22222222 1000000\nfree 33333333\n")
    with serving(api_keys_file=file) as server:
        for key in ("22222222", "33333333", "11111111"):
            answer = server.post("/score_steps", ask("text"), headers=bearer(key))
            refused = server.post("/score_steps", ask("text"), headers=bearer(key))
            assert (answer.status_code, refused.status_code) == (200, 429 if key == "11111111" else 200)
        tokens = answer.json()["usage"]["tokens"]
        assert refused.json()["code"] == "quota_exceeded"
        assert "the 1 tokens a minute of this key are used up" in refused.json()["detail"]
        # what is owed beyond the one token is paid back by one a minute
        assert 60 * (tokens - 1) < int(refused.headers["Retry-After"]) <= 60 * tokens
        file.write_text("few 11111111 1\nother 44444444\n")  # which gives it no new tokens
        assert server.post("/score_steps", ask("text"), headers=bearer("11111111")).status_code == 429
        file.write_text("few 11111111 2000000\n")
        assert server.post("/score_steps", ask("text"), headers=bearer("11111111")).status_code == 200


def test_a_long_file_of_keys_is_read_quickly(tmp_path: Path) -> None:
    """Its lines are looked at once: a million comparisons of names would take as many calls."""
    file = tmp_path / "keys"
    file.write_text("".join(f"caller-{number} key-of-{number}\n" for number in range(1000)))
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        keys = Keys(None, file)
    finally:
        sys.setprofile(None)
    assert calls < 100_000
    assert keys.caller(b"key-of-999") == Caller("caller-999")


def test_a_caller_with_much_to_ask_does_not_hold_up_another(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("many 11111111\none 22222222\n")
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    with serving(engine, api_keys_file=file, batch_tokens=2, open_metrics=True) as server:
        body = {"problem": PROBLEM, "solutions": [[str(k)] for k in range(20)]}
        waiting = [Background(lambda: server.post("/score_steps", body, headers=bearer("11111111"))) for _ in range(6)]
        until(lambda: server.metric("unprm_queued_requests") == 6)
        last = Background(lambda: server.post("/score_steps", ask(["x"]), headers=bearer("22222222")))
        until(lambda: server.metric("unprm_queued_requests") == 7)
        gate.set()
        assert [one.result().status_code for one in (*waiting, last)] == [200] * 7
    asked = read("x").ids
    assert any(item.ids == asked for batch in engine.batches[:4] for item in batch)  # of the 120 that wait


def test_a_caller_who_fills_the_queue_keeps_out_neither_others_nor_the_probe(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("many 11111111\none 22222222\n")
    gate = threading.Event()
    engine = FakeEngine(gate=gate)
    with serving(engine, api_keys_file=file, open_metrics=True, max_queued_tokens=1000) as server:

        def score(key: str, *texts: str) -> httpx.Response:
            return server.post("/score_steps", ask(*([text] for text in texts)), headers=bearer(key))

        calls = [Background(lambda: score("11111111", "running"))]
        until(lambda: len(engine.batches) == 1)
        large = [chr(97 + number) * 300 for number in range(10)]  # together more than the queue has room for
        calls.append(Background(lambda: score("11111111", *large)))
        until(lambda: server.metric("unprm_queued_requests") == 1)
        assert score("11111111", "more").status_code == 429
        assert server.get("/readyz").status_code == 200
        calls.append(Background(lambda: score("22222222", "honest")))
        until(lambda: server.metric("unprm_queued_requests") == 2)
        gate.set()
        assert [call.result().status_code for call in calls] == [200] * 3


def admitted(access: Access, headers: dict[str, str], client: tuple[str, int] | None = None) -> Lease:
    """A request's lease once it is let in."""
    lease = Lease(Admission(max_body_bytes=1))
    access.admit("/model", Headers(headers), client, lease)
    return lease


@pytest.mark.parametrize(
    ("headers", "local"),
    [
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, True),
        ({"Host": "127.0.0.1", "Origin": "http://[::1]:80"}, True),
        ({"Host": "[::1]:8000"}, True),
        ({"Host": "unprm:8000", "Origin": "https://gpu.local"}, True),
        ({"Host": "unprm.default.svc.cluster.local."}, True),
        ({"Host": "rebinding.example:8000"}, False),
        ({"Host": "127.0.0.1.rebinding.example"}, False),
        ({"Host": "localhost.rebinding.example."}, False),
        ({"Host": "[::1"}, False),
        ({"Host": ""}, False),
        ({"Origin": "http://rebinding.example:8000"}, False),
        ({"Origin": "null"}, False),
    ],
)
def test_a_site_that_a_stranger_may_own_is_let_in_by_a_key_alone(headers: dict[str, str], local: bool) -> None:
    """Who owns a name can let it point to this server, whose pages are then of the same origin (DNS rebinding)."""
    if local:
        admitted(Access(Settings()), headers)
    else:
        with pytest.raises(HTTPException) as refused:
            admitted(Access(Settings()), headers)
        assert refused.value.status_code == 403
    admitted(Access(Settings(api_key=SecretStr("secret"))), bearer("secret") | headers)


def test_the_name_that_the_server_listens_at_is_its_own() -> None:
    access = Access(Settings(host=["gpu.example"]))
    admitted(access, {"Host": "gpu.example:8000"})
    with pytest.raises(HTTPException):
        admitted(access, {"Host": "other.example:8000"})


@pytest.mark.parametrize(
    ("caller", "client", "share"),
    [
        ("agents", ("10.0.0.1", 1), "agents"),
        ("", ("10.0.0.1", 1), "10.0.0.1/32"),
        ("", ("::ffff:10.0.0.1", 1), "10.0.0.1/32"),
        ("", ("2001:db8::1", 1), "2001:0db8:0000:0000::/64"),
        ("", ("2001:db8::2:3:4:5", 1), "2001:0db8:0000:0000::/64"),
        ("", ("a socket", 0), ""),
        ("", None, ""),
    ],
)
def test_a_share_is_a_name_s_or_an_address_s(caller: str, client: tuple[str, int] | None, share: str) -> None:
    assert share_of(caller, client) == share


def test_a_request_counts_against_its_share_and_has_caches_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("agents 11111111 50\n")
    lease = admitted(Access(Settings(api_keys_file=file)), bearer("11111111"), ("10.0.0.1", 1))
    assert (lease.caller, lease.share, lease.scope) == ("agents", "agents", "agents")
    assert lease.quota is not None
    assert lease.quota.per_minute == 50
    shared = Access(Settings(api_keys_file=file, share_caches=True))
    assert admitted(shared, {"x-api-key": "11111111"}).scope == ""
    nameless = admitted(Access(Settings()), {}, ("2001:db8::2:3:4:5", 1))
    assert (nameless.share, nameless.quota) == ("2001:0db8:0000:0000::/64", None)
