"""What KubeRay does with docker/kubernetes/ray.yaml, without Kubernetes: starts Ray's head, puts serveConfigV2 to its
dashboard, and reads the state there and from the probes."""

import copy
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from server.settings import SettingsInvalid
from tests.docker.manifests import ray_service
from tests.server.harness import ask, bearer, boxed
from tests.support import ROOT, free_ports, until

pytest.importorskip("ray")

from server.scale.deploy import NAME, build

pytestmark = pytest.mark.ray

SPEC = ray_service()["spec"]
HEAD, WORKER = (
    group["template"]["spec"]["containers"][0]
    for group in (SPEC["rayClusterConfig"]["headGroupSpec"], *SPEC["rayClusterConfig"]["workerGroupSpecs"])
)
KEY, TOKEN = "CANARY-key", "token-of-the-cluster"
PATIENCE = 200.0
wait = partial(until, seconds=PATIENCE, every=0.2)


@dataclass(frozen=True)
class Service:
    """A cluster; `config` is the manifest's, except for what this machine lacks."""

    dashboard: httpx.Client
    http: httpx.Client
    config: dict[str, Any]
    logs: Path

    def put(self, **arguments: Any) -> None:
        """Deploys the manifest with these `arguments` changed, as KubeRay does."""
        config = copy.deepcopy(self.config)
        config["applications"][0]["args"] |= arguments
        response = self.dashboard.put("/api/serve/applications/", json=config)
        assert response.status_code == 200, response.text

    def application(self) -> dict[str, Any]:
        """The application's state in the dashboard."""
        details = self.dashboard.get("/api/serve/applications/", params={"api_type": "declarative"}).json()
        application: dict[str, Any] = details["applications"].get(NAME, {"status": "NOT_STARTED"})
        return application

    def vote(self, solutions: int) -> int:
        """The status of the answer."""
        return self.http.post("/vote/prm", json=ask(*map(boxed, range(solutions)))).status_code


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A running one."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"tests {KEY}\n")
    dashboard, agent, serving, *others = free_ports(5)
    config = yaml.safe_load(SPEC["serveConfigV2"])
    config["http_options"]["port"] = serving
    config["applications"][0]["args"] |= {
        "model": "unprm-mini",
        "replica_cpus": 0.5,
        "replica_gpus": 0,
        "api_keys_file": str(keys),
    }
    options = {
        "port": 0,
        "node-ip-address": "127.0.0.1",
        "dashboard-port": dashboard,
        "dashboard-agent-listen-port": agent,
        "ray-client-server-port": others[0],
        "metrics-export-port": others[1],
        "num-cpus": 2,
        "num-gpus": 0,
        "object-store-memory": 100_000_000,
    }
    environment = {row["name"]: row["value"] for row in HEAD["env"]}
    environment |= {"RAY_AUTH_MODE": SPEC["rayClusterConfig"]["authOptions"]["mode"], "RAY_AUTH_TOKEN": TOKEN}
    environment |= {"PYTHONPATH": str(ROOT)}  # as the image has it
    environment |= {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}  # there is no other node to drain to
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets' names may not be long
    started = subprocess.Popen(
        [Path(sys.executable).parent / "ray", "start", "--head", "--block", f"--temp-dir={place}"]
        + [f"--{name}={value}" for name, value in options.items()],
        env=os.environ | environment,
        cwd=place,
        stdout=subprocess.DEVNULL,
    )
    try:
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{dashboard}", timeout=PATIENCE) as client,
            httpx.Client(base_url=f"http://127.0.0.1:{serving}", timeout=60, headers=bearer(KEY)) as http,
        ):
            wait(lambda: _answers(f"http://127.0.0.1:{agent}{HEAD['readinessProbe']['httpGet']['path']}"))
            client.headers["x-ray-authorization"] = f"Bearer {TOKEN}"
            running = Service(client, http, config, Path(place, "session_latest", "logs", "serve"))
            running.put()
            wait(lambda: running.application()["status"] not in ("NOT_STARTED", "DEPLOYING"))
            yield running
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(PATIENCE)
        shutil.rmtree(place, ignore_errors=True)  # Ray's agents end after it, and still write logs


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_it_runs_and_votes(service: Service) -> None:
    application = service.application()
    assert application["status"] == "RUNNING", application["message"]
    targets = {name: deployment["target_num_replicas"] for name, deployment in application["deployments"].items()}
    assert targets == {"replica": 2}
    assert service.vote(2) == 200
    assert httpx.post(f"{service.http.base_url}/vote/prm", json=ask(boxed(1))).status_code == 401
    assert service.http.get("/metrics").status_code == 200
    assert service.http.get(WORKER["readinessProbe"]["httpGet"]["path"]).status_code == 200


def test_nobody_deploys_without_the_token(service: Service) -> None:
    url = f"{service.dashboard.base_url}/api/serve/applications/"
    assert httpx.put(url, json=service.config).status_code == 401
    assert httpx.put(url, json=service.config, headers={"x-ray-authorization": "Bearer other"}).status_code == 403


def test_another_configuration_takes_over_without_a_failed_request(service: Service) -> None:
    seen: list[int] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            seen.append(service.vote(2))
            time.sleep(0.1)  # the new replicas need the cores too

    caller = threading.Thread(target=work)
    caller.start()
    assert service.vote(3) == 200
    service.put(max_solutions=2, max_replicas=3)
    wait(lambda: service.application()["status"] == "RUNNING")
    assert service.vote(3) == 422
    stop.set()
    caller.join()
    assert set(seen) == {200}
    scaling = service.application()["deployments"]["replica"]["deployment_config"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (2, 3)


def test_ray_logs_nothing_of_what_a_caller_wrote(service: Service) -> None:
    response = service.http.post("/CANARY-path?a=CANARY", json=ask("CANARY"), headers={"X-Request-ID": "CANARY-id"})
    assert response.status_code == 404
    files = [file for file in service.logs.rglob("*") if file.is_file()]
    assert any("proxy" in file.name for file in files)
    assert [row for file in files for row in file.read_text("utf-8").splitlines() if "CANARY" in row] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replica": 2}, "--replica is not a setting"),
        ({"_env_file": "CANARY"}, "---env-file is not a setting"),
        ({"replicas": "CANARY"}, "replicas: Input should be a valid integer, unable to parse string as an integer"),
        ({"replicas": 2, "max_replicas": 1}, "--max-replicas is 1, less than --replicas, 2"),
        ({"api_key": "CANARY", "upstream_key": "CANARY"}, "for a variable: api_key, upstream_key"),
    ],
)
def test_what_cannot_be_used_is_named_without_its_value(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsInvalid) as raised:
        build(arguments)
    assert message in str(raised.value)
    assert "CANARY" not in str(raised.value)


def test_what_a_configuration_leaves_out_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNPRM_API_KEY", KEY)
    monkeypatch.setenv("UNPRM_REPLICAS", "3")
    deployed = build({"max_ongoing_requests": 7})._bound_deployment
    assert (deployed.num_replicas, deployed.max_ongoing_requests) == (3, 7)
    (settings, _) = deployed.init_args
    assert settings.api_key.get_secret_value() == KEY
    monkeypatch.setenv("UNPRM_ENTRANCES", "3")
    with pytest.raises(SettingsInvalid, match="UNPRM_ENTRANCES"):
        build({})
