"""The server as a process: signals, exit statuses, options, and what it logs."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from server.settings import Settings, SettingsInvalid
from tests.server.harness import Background, ask, boxed, raw
from tests.server.options import read
from tests.server.processes import process, started
from tests.support import PATIENCE, ROOT, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_status_0(tmp_path: Path, number: int) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with process(tmp_path / "log", gate=gate) as server:
        server.http.post("/score_steps", json=ask("the first batch fails"))
        gate.unlink()
        running = Background(lambda: server.http.post("/score_steps", json=ask("running")))
        until(lambda: "unprm_running_requests 1.0" in server.http.get("/metrics").text)
        server.process.send_signal(number)
        until(lambda: server.http.get("/readyz").status_code == 503)
        assert server.http.post("/score_steps", json=ask("late")).json()["code"] == "shutting_down"
        gate.touch()
        assert running.result().status_code == 200
        assert server.process.wait(PATIENCE) == 0


def test_an_idle_server_does_not_wait_for_the_time_to_drain(tmp_path: Path) -> None:
    with process(tmp_path / "log", "--drain-seconds=3600") as server:
        assert server.http.get("/healthz").status_code == 200
        assert server.end() == 0


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    never = tmp_path / "never"
    with (
        process(tmp_path / "log", "--drain-seconds=3600", gate=never) as server,
        server.connect(raw(ask("runs for ever"))),
    ):
        until(lambda: "unprm_running_requests 1.0" in server.http.get("/metrics").text)
        server.process.send_signal(signal.SIGINT)
        until(lambda: server.http.get("/readyz").status_code == 503)
        assert server.end(signal.SIGINT) == 0
        assert "code=shutting_down" in server.text
        assert "exception=" not in server.text


def test_an_engine_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    with process(tmp_path / "log", "--drain-seconds=0.2", gate=tmp_path / "never") as server:
        running = Background(lambda: server.http.post("/score_steps", json=ask("runs for ever")))
        until(lambda: "unprm_running_requests 1.0" in server.http.get("/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        assert running.result().json()["code"] == "shutting_down"
        assert server.process.wait(PATIENCE) == 0


def test_a_model_that_hangs_ends_the_process_with_status_1(tmp_path: Path) -> None:
    options = ("--max-batch-seconds=0.5", "--batch-tokens=10")
    with process(tmp_path / "log", *options, gate=tmp_path / "never") as server:
        running = [Background(lambda: server.http.post("/score_steps", json=ask("hangs"))) for _ in range(3)]
        for one in running:
            response = one.result()
            assert (response.status_code, response.json()["code"]) == (503, "model_unavailable")
            assert "did not answer within 0.5 s" in response.json()["detail"]
        assert server.process.wait(PATIENCE) == 1
        assert "the model is lost" in server.text


def test_a_model_that_is_still_being_loaded_does_not_keep_the_process(tmp_path: Path) -> None:
    """The loading thread may be anywhere in PyTorch; it must not return to an interpreter that has been finalized."""
    key = {"Authorization": "Bearer admin"}
    with started(tmp_path / "log", "-m", "server", "--admin-key=admin") as server:
        until(lambda: "serving unprm-mini" in server.text)
        for name in ("one", "other"):
            request = {"name": name, "model": "unprm-mini"}
            assert server.http.post("/admin/models", json=request, headers=key).status_code == 202
        time.sleep(0.1)  # into the midst of it
        assert server.end() == 0
        assert "terminate called" not in server.text


def test_a_gpu_that_is_lost_ends_the_process_with_status_1(tmp_path: Path) -> None:
    with process(tmp_path / "log", gate="lost") as server:
        for _ in range(3):
            response = server.http.post("/score_steps", json=ask("fails"))
            assert (response.status_code, response.json()["code"]) == (503, "model_unavailable")
        assert server.process.wait(PATIENCE) == 1
        assert "failed 3 times in a row, then on a plain sum" in server.text
        assert "CANARY" not in server.text


def test_the_log_has_a_line_per_request_and_no_word_of_a_caller(tmp_path: Path) -> None:
    with process(tmp_path / "log", "--log-format=json", "--log-level=debug") as server:
        http = server.http
        ids = {"X-Request-ID": "mine"}
        http.post("/score_steps", json=ask("CANARY"), headers=ids)  # the engine fails with it, too
        http.post("/score_steps?CANARY=CANARY", json={"problem": "CANARY", "solutions": ["CANARY", ["a"]]})
        http.post("/vote/wrf", json=ask(boxed("CANARY"), boxed(1), CANARY="CANARY"))
        http.post("/vote/majority", json=ask(boxed("CANARY^{^}"), {"text": "a", "answer": "\\CANARY{"}))
        http.post("/score_steps", content=b'{"CANARY', headers={"Content-Type": "application/json"})
        http.post("/score_steps", json=ask("CANARY"), headers={"Content-Type": "CANARY"})
        http.get("/CANARY/x?CANARY")
        http.get("/model", headers={"Authorization": "Bearer CANARY", "X-Request-Timeout": "CANARY"})
        http.get("/healthz", headers={"X-Request-ID": "not sane: CANARY"})
        assert server.end() == 0
        lines = [json.loads(line) for line in server.text.splitlines()]
    assert "CANARY" not in server.text
    requests = [line for line in lines if line["message"] == "request"]
    assert len(requests) == 9
    assert (
        requests[0].items()
        >= {
            "level": "info",
            "method": "POST",
            "route": "/score_steps",
            "status": 503,
            "code": "model_unavailable",
            "request_id": "mine",
            "solutions": 1,
        }.items()
    )
    assert requests[0]["tokens"] > 0  # the model has had them
    assert requests[1].items() >= {"status": 200, "solutions": 2}.items()
    assert "code" not in requests[1]
    assert [line.get("code") for line in requests[2:7]] == [
        "invalid_request",
        None,
        "malformed_json",
        "unsupported_media_type",
        "not_found",
    ]
    assert requests[1]["tokens"] == requests[1]["computed_tokens"] > 0
    assert requests[6].items() >= {"route": "unmatched", "status": 404}.items()
    failure = next(line for line in lines if "failed on a batch" in line["message"])
    assert failure["exception"].startswith("RuntimeError at ")
    assert "fake_engine.py" in failure["exception"]


def test_the_log_as_text_has_a_line_per_record_too(tmp_path: Path) -> None:
    with process(tmp_path / "log") as server:
        server.http.post("/score_steps", json=ask("CANARY"))
        assert server.end() == 0
        lines = server.text.splitlines()
    assert "CANARY" not in server.text
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ [\w.]+: ", line) for line in lines), lines
    assert any("request method=POST route=/score_steps status=503 code=model_unavailable ms=" in line for line in lines)


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "server", *options]
    environment: dict[str, Any] = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)


def test_https_is_served_with_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with process(tmp_path / "log", f"--ssl-certfile={tmp_path / 'own.pem'}") as server:
        trusting = ssl.create_default_context(cafile=tmp_path / "authority.pem")
        assert httpx.get(f"{server.url}/healthz", verify=trusting, timeout=PATIENCE).json() == {"status": "ok"}
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/healthz", timeout=PATIENCE)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{server.url.replace('https', 'http')}/healthz", timeout=PATIENCE)
        assert server.end() == 0


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"

    def renew() -> str:
        """As a tool that renews does: first the certificate, then its key."""
        issued = authority.issue_cert("127.0.0.1")
        for file, content in ((certificate, issued.cert_chain_pems[0]), (key, issued.private_key_pem)):
            content.write_to_path(tmp_path / "next")
            os.replace(tmp_path / "next", file)
        return issued.cert_chain_pems[0].bytes().decode()

    first = renew()
    with process(tmp_path / "log", f"--ssl-certfile={certificate}", f"--ssl-keyfile={key}") as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))

        def served() -> str:
            return ssl.get_server_certificate(address, ca_certs=str(tmp_path / "authority.pem"))

        assert served() == first
        second = renew()
        until(lambda: served() == second)
        certificate.write_text("nothing")
        until(lambda: "ERROR server.reloading: kept the old certificate" in server.text)
        assert served() == second
        third = renew()
        until(lambda: served() == third)
        assert server.end() == 0


def test_help_lists_every_setting_without_loading_torch() -> None:
    ended = run("--help", PYTHONPATH="", PYTHONPROFILEIMPORTTIME="1")
    assert ended.returncode == 0
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in ended.stdout
        assert f"UNPRM_{name.upper()}" in ended.stdout
        assert str(field.description) in " ".join(ended.stdout.split())
    assert "torch" not in re.findall(r"\| +([\w.]+)$", ended.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (["--port", "words"], {}, "--port: Input should be a valid integer, unable to parse string as an integer"),
        (["--device", "tpu"], {}, "--device: Input should be 'auto', 'cpu' or 'cuda'"),
        (["--config", "/nope.toml"], {}, "--config: Path does not point to a file"),
        (
            [],
            {"UNPRM_PORT": "CANARY"},
            "UNPRM_PORT: Input should be a valid integer, unable to parse string as an integer",
        ),
        (
            [],
            {"UNPRM_PROT": "CANARY"},
            "UNPRM_PROT is not a setting; `unprm serve --help` lists them (did you mean UNPRM_PORT?)",
        ),
        ([], {"UNPRM_NONSENSE": "CANARY"}, "UNPRM_NONSENSE"),
        ([], {"UNPRM_MAX_SOLUTIONS": "257"}, "UNPRM_MAX_SOLUTIONS: Input should be less than or equal to 256"),
        ([], {"UNPRM_API_KEY": ""}, "UNPRM_API_KEY: must not be empty"),
        (["--upstream-url", "CANARY:8000"], {}, "--upstream-url: expected the URL of a server, such as http://"),
        ([], {"UNPRM_URL": "ftp://CANARY"}, "UNPRM_URL: expected the URL of a server, such as http://"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    options: list[str], variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid) as refused:
        read(Settings, options)
    assert message in str(refused.value).splitlines()[-1]
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nonsense", "1"], "--nonsense"),
        (["--journal", "/nowhere/journal"], "the journal /nowhere/journal can't be written to"),
        (["--ssl-keyfile", "/nowhere/own.pem"], "--ssl-keyfile goes with --ssl-certfile"),
        (["--ssl-certfile", "/nowhere/own.pem"], "the certificate or its key can't be used"),
    ],
)
def test_settings_that_cannot_be_used_end_with_status_2(options: list[str], message: str) -> None:
    ended = run(*options)
    assert ended.returncode == 2
    assert message in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert "CANARY" not in ended.stderr


def test_a_model_that_cannot_be_used_ends_with_status_2_and_one_sentence() -> None:
    ended = run("--model", ".", "--port", "0")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert "ERROR server.serving: ended with status 2: the model can't be served: " in last
    assert "has no readable config.json: it is not a model's directory" in last
    assert ended.stderr.count("has no readable config.json") == 1


class _NotThere(BaseHTTPRequestHandler):
    """A hub that has no model."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    do_GET = do_HEAD  # noqa: N815 (the library's name)

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_model_that_the_hub_does_not_have_ends_with_status_2(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _NotThere) as hub:
        threading.Thread(target=hub.serve_forever).start()
        ended = run(
            "--model=no/body", "--port=0", HF_ENDPOINT=f"http://127.0.0.1:{hub.server_port}", HF_HOME=str(tmp_path)
        )
        hub.shutdown()
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert "model 'no/body' is not a directory here and could not be fetched from the hub" in last
    assert "404 Not Found" in last
    assert "Traceback" not in ended.stderr


def test_published_models_are_listed() -> None:
    ended = run("models")
    assert ended.returncode == 0
    assert re.search(r"Qwen/Qwen2.5-Math-PRM-7B +qwen-prm +Qwen +7.6 B +15.2 GB +73.5", ended.stdout)
    assert re.search(r"PRIME-RL/EurusPRM-Stage2 +eurus +Apache-2.0 +7.6 B +30.4 GB +31.3", ended.stdout)


def test_the_log_tells_at_the_start_what_is_on_and_of_probes_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one CANARY-key\n")
    options = [f"--api-keys-file={tmp_path / 'keys'}", "--upstream-url=small=http://CANARY@10.0.0.7:9/v1?CANARY"]
    options += [f"--journal={tmp_path / 'journal'}", "--upstream-key=small=CANARY"]
    with process(tmp_path / "log", "--log-format=json", *options) as server:
        for path in ("/healthz", "/readyz", "/page/app.js", "/"):
            server.http.get(path)
        assert server.http.get("/model").status_code == 401
        assert server.end() == 0
        lines = [json.loads(line) for line in server.text.splitlines()]
    assert "CANARY" not in server.text
    (start,) = [line for line in lines if line["message"] == "starts"]
    told = {name: start[name] for name in ("models", "keys", "upstreams", "calibration", "journal")}
    assert told == {
        "models": "unprm-mini",
        "keys": str(tmp_path / "keys"),
        "upstreams": "small at 10.0.0.7:9",
        "calibration": "none",
        "journal": str(tmp_path / "journal"),
    }
    assert [line["status"] for line in lines if line["message"] == "request"] == [401]
    assert len(lines) <= 6


def test_a_port_that_is_taken_ends_with_status_2(tmp_path: Path) -> None:
    with process(tmp_path / "log") as server:
        ended = run("--port", server.url.rpartition(":")[2])
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[-1].startswith("the server can't listen at 127.0.0.1, port ")
        assert "Address already in use; choose others by --host and --port" in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr
