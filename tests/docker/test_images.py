"""Images, compose files and manifests: they keep to their schemas and rules, and say what the documentation says."""

import configparser
import hashlib
import importlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from server.scale.settings import RAY, ScaleSettings
from server.serving import LAST_SECONDS
from server.settings import PREFIX, Settings, is_secret
from tests.docker.manifests import DOCKER, ray_service
from tests.server.options import read
from tests.support import ROOT
from unprm.affinity import HEADER

DOCKERFILES = ["Dockerfile", "Dockerfile.cpu", "Dockerfile.gateway"]
UNIT = DOCKER / "systemd" / "unprm.service"
COMPOSE = ["compose.yaml", "compose.gpu.yaml", "compose.scale.yaml"]
WATCHERS = ["prometheus", "alertmanager", "grafana"]
SETTINGS = {"compose.scale.yaml": ScaleSettings}
BIN = Path(sys.executable).parent


CPU = ["--set", "model=unprm-mini,options={--log-level=debug},image.repository=here/unprm,image.tag=cpu,gpus=0"]
CPU += ["--set", "nodeSelector.disk=ssd,storage.class=fast"]
DIGEST = "sha256:" + "0" * 64
EVERYTHING = ["--set", f"image.digest={DIGEST},image.pullSecrets[0].name=registry,variablesSecret=unprm-variables"]
EVERYTHING += ["--set", "ingress.host=prm.example,ingress.class=nginx,ingress.tlsSecret=prm-tls"]
EVERYTHING += ["--set-string", "ingress.annotations.nginx\\.ingress\\.kubernetes\\.io/proxy-read-timeout=605"]
EVERYTHING += ["--set", "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus"]
EVERYTHING += ["--set", "podDisruptionBudget.maxUnavailable=0,networkPolicy.enabled=true"]
EVERYTHING += ["--set", "httpRoute.gateways[0].name=public,httpRoute.hosts={prm.example},questionHash=istio"]
EVERYTHING += [
    "--set",
    "strategy=RollingUpdate,storage.accessMode=ReadWriteMany,autoscaling.by=HorizontalPodAutoscaler",
]
KEDA = [
    "--set",
    "storage.accessMode=ReadWriteMany,autoscaling.by=ScaledObject,questionHash=envoy-gateway,networkPolicy.enabled=true",
]
KEDA += ["--set", "networkPolicy.from[0].namespaceSelector.matchLabels.team=search"]
SCHEMAS = Path(sys.prefix) / "kubernetes" / "node_modules" / "@kubernetes-models"
needs_helm = pytest.mark.skipif(not (BIN / "helm").exists(), reason="there is no package of Helm for this machine")


def rendered(*values: str, template: str = "") -> str:
    """The manifests that the chart makes, or one of them."""
    only = ["--show-only", f"templates/{template}.yaml"] if template else []
    command = [BIN / "helm", "template", "unprm", DOCKER / "helm", *values, *only]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def checked(*command: str | Path) -> None:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_keep_to_the_rules_of_hadolint(name: str) -> None:
    checked(BIN / "hadolint", DOCKER / name)


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_keep_to_their_schema(name: str) -> None:
    checked(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / name)


def test_the_ray_cluster_keeps_to_the_schema_of_kubernetes() -> None:
    checked(BIN / "kubernetes-validate", "--strict", DOCKER / "kubernetes" / "ray.yaml")


@needs_helm
@pytest.mark.parametrize("values", [[], CPU, EVERYTHING, KEDA], ids=["gpu", "cpu", "everything", "keda"])
def test_the_chart_keeps_to_the_schema_of_kubernetes(values: list[str], tmp_path: Path) -> None:
    (tmp_path / "rendered.yaml").write_text(rendered(*values), "utf-8")
    checked(BIN / "kubernetes-validate", "--strict", tmp_path / "rendered.yaml")
    checked(BIN / "helm", "lint", "--strict", DOCKER / "helm", *values)


@needs_helm
@pytest.mark.skipif(not SCHEMAS.exists(), reason="`make .venv/kubernetes` fetches the schemas by npm")
@pytest.mark.parametrize(
    ("template", "values", "schema"),
    [
        ("route", EVERYTHING, "gateway-api/gateway.networking.k8s.io/v1/HTTPRoute"),
        ("hash", EVERYTHING, "istio/networking.istio.io/v1/DestinationRule"),
        ("autoscaler", KEDA, "keda/keda.sh/v1alpha1/ScaledObject"),
    ],
)
def test_what_others_define_keeps_to_their_schemas(template: str, values: list[str], schema: str) -> None:
    made = yaml.safe_load(rendered(*values, template=template))
    kind = schema.rpartition("/")[2]
    assert _refusal(schema, kind, made) == ""
    assert "spec" in _refusal(schema, kind, {**made, "spec": 1})


def _refusal(schema: str, kind: str, document: Any) -> str:
    script = f"import {{ {kind} }} from '{SCHEMAS}/{schema}.js'; new {kind}({json.dumps(document)}).validate()"
    ended = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=False)
    return ended.stderr


@needs_helm
def test_a_new_pod_is_ready_before_an_old_one_goes_only_where_it_is_told_to() -> None:
    rolling, recreated = (
        yaml.safe_load(rendered(*values, template="deployment"))["spec"]
        for values in (EVERYTHING, ["--set=replicas=3,storage.accessMode=ReadWriteMany"])
    )
    assert rolling["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert (recreated["strategy"], recreated["replicas"]) == ({"type": "Recreate"}, 3)
    assert "replicas" not in rolling  # the autoscaler's
    assert yaml.safe_load(rendered(*EVERYTHING, template="claim"))["spec"]["accessModes"] == ["ReadWriteMany"]
    (term,) = rolling["template"]["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


@needs_helm
@pytest.mark.parametrize("values", ["replicas=2", "autoscaling.by=ScaledObject"])
def test_a_volume_of_one_pod_is_refused_to_several(values: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered("--set", values)
    assert "set storage.accessMode=ReadWriteMany" in refused.value.stderr
    assert rendered("--set", values, "--set", "storage.accessMode=ReadWriteMany")


@needs_helm
def test_probes_have_as_long_as_a_busy_server_takes() -> None:
    (container,) = yaml.safe_load(rendered(template="deployment"))["spec"]["template"]["spec"]["containers"]
    probes = [container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [probe["timeoutSeconds"] for probe in probes] == [5] * 3


@needs_helm
def test_keda_counts_the_pods_of_its_release_alone() -> None:
    (trigger,) = yaml.safe_load(rendered(*KEDA, template="autoscaler"))["spec"]["triggers"]
    (pods,) = re.findall(r'pod=~"(.+?)"', trigger["metadata"]["query"])
    named = ["unprm-5d4f8c7b9-x2x4z", "unprm-2-5d4f8c7b9-x2x4z", "other-5d4f8c7b9-x2x4z"]
    assert [re.fullmatch(pods, name) is not None for name in named] == [True, False, False]


@needs_helm
def test_replicas_follow_the_queue_and_a_question_goes_where_it_is_known() -> None:
    (metric,) = yaml.safe_load(rendered(*EVERYTHING, template="autoscaler"))["spec"]["metrics"]
    (trigger,) = yaml.safe_load(rendered(*KEDA, template="autoscaler"))["spec"]["triggers"]
    assert metric["pods"]["metric"]["name"] in trigger["metadata"]["query"]
    assert metric["pods"]["target"]["averageValue"] == trigger["metadata"]["threshold"] == "65536"
    assert trigger["metadata"]["serverAddress"] == "http://prometheus:9090"
    balancers = [yaml.safe_load(rendered(*values, template="hash"))["spec"] for values in (EVERYTHING, KEDA)]
    assert balancers[0]["trafficPolicy"]["loadBalancer"]["consistentHash"] == {"httpHeaderName": HEADER}
    assert balancers[1]["loadBalancer"]["consistentHash"] == {"type": "Header", "header": {"name": HEADER}}
    (rule,) = yaml.safe_load(rendered(*EVERYTHING, template="route"))["spec"]["rules"]
    assert float(rule["timeouts"]["request"].rstrip("s")) > Settings().gateway_seconds
    opened, closed = (
        yaml.safe_load(rendered(*values, template="network"))["spec"]["ingress"] for values in (EVERYTHING, KEDA)
    )
    assert "from" not in opened[0]
    assert closed[0]["from"] == [{"namespaceSelector": {"matchLabels": {"team": "search"}}}]


def test_what_nginx_hashes_on_kubernetes_is_what_it_hashes_elsewhere() -> None:
    (hashed,) = re.findall(r"upstream-hash-by: (\$\w+)", (DOCKER / "helm" / "values.yaml").read_text("utf-8"))
    nginx = (DOCKER / "nginx" / "unprm.conf").read_text("utf-8")
    name = HEADER.lower().replace("-", "_")
    assert f"map $http_{name} {hashed} {{" in nginx
    assert f"hash {hashed} consistent;" in nginx


def test_the_table_of_values_is_that_of_their_comments() -> None:
    written = (DOCKER / "helm" / "README.md").read_text("utf-8")
    table = runpy.run_path(str(DOCKER / "values.py"))["table"]
    assert table((DOCKER / "helm" / "values.yaml").read_text("utf-8")) == written
    assert "| `autoscaling.maxReplicas` | `4` |" in written


@needs_helm
def test_values_of_the_chart() -> None:
    pod = yaml.safe_load(rendered(*CPU, template="deployment"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "here/unprm:cpu"
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    settings = read(Settings, container["args"])
    assert (settings.model, settings.log_level) == (["unprm-mini"], "debug")
    assert pod["nodeSelector"] == {"disk": "ssd"}
    claim = yaml.safe_load(rendered(*CPU, template="claim"))["spec"]
    assert claim["storageClassName"] == "fast"


@needs_helm
def test_secrets_become_variables_and_the_image_is_pulled_by_its_digest() -> None:
    pod = yaml.safe_load(rendered(*EVERYTHING, template="deployment"))["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["image"] == f"unprm@{DIGEST}"
    assert container["envFrom"] == [{"secretRef": {"name": "unprm-variables"}}]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "annotations" not in pod["metadata"]  # the monitor would be the second to ask
    assert {"envFrom", "imagePullSecrets"} & {*_container(), *_server()["spec"]} == set()
    named = set(re.findall(r"UNPRM_[A-Z_]+", (DOCKER / "helm" / "values.yaml").read_text("utf-8")))
    fields = Settings.model_fields.items()
    secret = {PREFIX + name.upper() for name, field in fields if is_secret(field)}
    assert named == secret - {"UNPRM_API_KEY"}


@needs_helm
def test_the_server_is_reached_watched_and_kept_as_the_values_say() -> None:
    ingress, monitor, budget = (
        yaml.safe_load(rendered(*EVERYTHING, template=name)) for name in ("ingress", "monitor", "budget")
    )
    service = yaml.safe_load(rendered(*EVERYTHING, template="service"))
    name, labels = service["metadata"]["name"], service["metadata"]["labels"]
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "prm.example"
    assert rule["http"]["paths"][0]["backend"] == {"service": {"name": name, "port": {"name": "http"}}}
    assert ingress["spec"]["tls"] == [{"hosts": ["prm.example"], "secretName": "prm-tls"}]
    assert ingress["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/proxy-read-timeout": "605"}
    assert monitor["metadata"]["labels"] == {"app": name, "release": "prometheus"}
    assert monitor["spec"]["selector"]["matchLabels"] == labels
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (service["spec"]["ports"][0]["name"], "/metrics")
    assert budget["spec"] == {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    assert {document["kind"] for document in yaml.safe_load_all(rendered())} == {
        "Deployment", "PersistentVolumeClaim", "Service"
    }  # fmt: skip


@needs_helm
@pytest.mark.parametrize(
    "value",
    [
        "image.digest=latest",
        "podDisruptionBudget.most=1",
        "ingress.hots=a",
        "gpus=two",
        "modle=unprm-mini",
        "service.port=0",
        "options={model}",
        "autoscaling.by=magic",
        "strategy=Rolling",
    ],
)
def test_the_chart_refuses_wrong_values(value: str) -> None:
    refused = subprocess.run(
        [BIN / "helm", "template", "unprm", DOCKER / "helm", "--set", value], capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert re.split("[.=]", value)[0] in refused.stderr


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((DOCKER / "helm" / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_is_not_rooted_and_checks_itself(name: str) -> None:
    with (DOCKER / name).open("rb") as file:
        instructions = [(row["instruction"], row["value"]) for row in DockerfileParser(fileobj=file).structure]
    assert ("USER", "10001") in instructions
    assert any("ready.py" in value for instruction, value in instructions if instruction == "HEALTHCHECK")
    assert instructions[-1] == ("ENTRYPOINT", '["python3", "-m", "server"]')


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_an_image_copies_is_there_and_not_ignored(name: str) -> None:
    everything, *rules = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert everything == "*"
    sent = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    with (DOCKER / name).open("rb") as file:
        copies = [row["value"] for row in DockerfileParser(fileobj=file).structure if row["instruction"] == "COPY"]
    sources = [source for line in copies if not line.startswith("--from") for source in line.split()[:-1]]
    assert len(sources) > 5
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, rule) for rule in sent), source


@pytest.mark.parametrize("name", [*DOCKERFILES, *COMPOSE])
def test_variables_are_those_of_settings(name: str) -> None:
    named = set(re.findall(rf"^\s*({PREFIX}[A-Z_]+)[:=]", (DOCKER / name).read_text("utf-8"), re.MULTILINE))
    assert named <= {PREFIX + field.upper() for field in SETTINGS.get(name, Settings).model_fields}
    assert named


def test_every_image_is_named_by_its_digest() -> None:
    named = {
        service["image"]
        for file in COMPOSE
        for service in yaml.safe_load((DOCKER / file).read_text("utf-8"))["services"].values()
        if "image" in service
    }
    for name in DOCKERFILES:
        text = (DOCKER / name).read_text("utf-8")
        named |= set(re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE))
        assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}", "scratch"}
    assert len(named) == 5
    assert all(re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image) for image in named)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_can_be_built_without_a_network(name: str) -> None:
    with (DOCKER / name).open("rb") as file:
        rows = [(row["instruction"], row["value"]) for row in DockerfileParser(fileobj=file).structure]
    assert rows.index(("FROM", "scratch AS wheels")) < rows.index(("ARG", "PIP_NO_INDEX"))
    assert any("PIP_FIND_LINKS=/wheels" in value.split() for instruction, value in rows if instruction == "ENV")
    runs = [value for instruction, value in rows if instruction == "RUN"]
    asking = [value for value in runs if "pip install" in value]
    assert len(asking) == 2 + (name == "Dockerfile.cpu")
    assert all(value.startswith("--mount=from=wheels,target=/wheels pip install ") for value in asking)
    from_debian = [value.partition(" || {")[0] for value in runs if "apt-get" in value]
    assert all(re.fullmatch(r"which [a-z0-9 -]+|python3 -m venv /opt/unprm", value) for value in from_debian)
    text = (DOCKER / name).read_text("utf-8")
    assert "--build-arg PIP_NO_INDEX=1 --build-context wheels=wheels" in text


@pytest.mark.parametrize("name", ["cpu", "cuda", "gateway"])
def test_every_package_of_an_image_is_pinned(name: str) -> None:
    lines = (DOCKER / f"requirements-{name}.txt").read_text("ascii").splitlines()
    pinned = dict(line.split(" ")[0].split("==") for line in lines)
    assert len(pinned) == len(lines)
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    assert ("vllm" in pinned) is (name == "cuda")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["gateway"], *extras["trace"]]
    if name == "gateway":
        assert "torch" not in pinned
    else:
        wanted += [each for each in extras["serve"] if each != "unprm[gateway]"]
    for needed in map(Requirement, wanted):
        assert needed.specifier.contains(pinned[canonicalize_name(needed.name)]), needed
    tested = re.findall(r"^([a-z]+)==(.*)$", (ROOT / "constraints.txt").read_text("ascii"), re.MULTILINE)
    assert len(tested) == 3
    assert name == "gateway" or dict(tested).items() <= pinned.items()


def test_the_image_for_cpus_begins_with_the_torch_of_its_list() -> None:
    (listed,) = re.findall(r"^torch==\S+", (DOCKER / "requirements-cpu.txt").read_text("ascii"), re.MULTILINE)
    assert f"--no-deps {listed}\n" in (DOCKER / "Dockerfile.cpu").read_text("utf-8")


def test_hashes_are_those_of_the_wheels_of_each_machine(tmp_path: Path) -> None:
    expected = []
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_17_aarch64"):
        wheel = tmp_path / f"Some_Thing-1.0-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            about = "Some_Thing-1.0.dist-info"
            archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.0\n")
            archive.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
            archive.writestr(f"{about}/RECORD", "")
        expected.append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    file = tmp_path / "requirements.txt"
    file.write_text("some-thing==1.0 --hash=sha256:old\n")
    offline = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, DOCKER / "lock.py", file, "x86_64", "aarch64"]
    subprocess.run(command, env=offline, check=True)
    hashes = " ".join(f"--hash=sha256:{each}" for each in sorted(expected))
    assert file.read_text() == f"some-thing==1.0 {hashes}\n"


def _server() -> dict[str, Any]:
    """The template of the server's pod, from the chart."""
    template: dict[str, Any] = yaml.safe_load(rendered(template="deployment"))["spec"]["template"]
    return template


def _container() -> dict[str, Any]:
    container: dict[str, Any] = _server()["spec"]["containers"][0]
    return container


@needs_helm
def test_kubernetes_asks_for_a_gpu_and_gives_nothing_away() -> None:
    container = _container()
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["startupProbe"]["httpGet"]["path"] == container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@needs_helm
def test_options_of_the_chart_are_the_servers() -> None:
    settings = read(Settings, _container()["args"])
    assert settings.model == ["Qwen/Qwen2.5-Math-PRM-7B"]
    assert settings.api_keys_file is not None


def _pods() -> dict[str, dict[str, Any]]:
    """All templates of pods of the manifests."""
    return {"server": _server(), **_nodes()}


@needs_helm
@pytest.mark.parametrize("name", ["server", "head", "worker"])
def test_pods_are_told_of_no_services(name: str) -> None:
    assert _pods()[name]["spec"]["enableServiceLinks"] is False


def test_a_published_model_needs_no_adapter_and_grafana_a_password_of_its_own() -> None:
    monitored, on_gpu = (yaml.safe_load((DOCKER / name).read_text("utf-8"))["services"] for name in COMPOSE[:2])
    assert on_gpu["unprm"]["environment"]["UNPRM_ADAPTER"] is None
    assert monitored["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")


def test_compose_publishes_to_this_machine_alone_and_passes_a_key_on() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
    assert services["unprm"]["ports"] == ["${UNPRM_PUBLISH:-127.0.0.1}:${UNPRM_PORT:-8000}:8000"]
    assert all(port.startswith("127.0.0.1:") for name in WATCHERS for port in services[name]["ports"])
    environment = services["unprm"]["environment"]
    assert environment["UNPRM_API_KEY"] is None  # the shell's, if there is one
    assert environment["UNPRM_MODEL"] is None  # a default here would name the demonstration
    assert environment["UNPRM_OPEN_METRICS"] == "true"


@pytest.mark.parametrize(("port", "served"), [(None, 8000), ("9001", 9001), ("tcp://10.0.0.11:80", 8000)])
def test_the_health_check_asks_the_port_that_is_served(
    port: str | None, served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UNPRM_PORT", raising=False)
    if port is not None:
        monkeypatch.setenv("UNPRM_PORT", port)
    assert read(Settings, []).port == served
    monkeypatch.setenv("UNPRM_SSL_CERTFILE", "own.pem")  # fails whatever may listen there without a certificate
    with pytest.raises(SystemExit, match=rf"^https://127\.0\.0\.1:{served}/readyz: "):
        runpy.run_path(str(DOCKER / "ready.py"))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.scale.yaml"])
def test_who_stops_the_server_waits_for_it_to_drain(name: str) -> None:
    compose = yaml.safe_load((DOCKER / name).read_text("utf-8"))
    assert int(compose["services"]["unprm"]["stop_grace_period"].rstrip("s")) > _longest_end()


@needs_helm
def test_kubernetes_waits_for_the_server_to_drain() -> None:
    assert _server()["spec"]["terminationGracePeriodSeconds"] > _longest_end(upstream_url="http://upstream")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = UNIT.read_text("utf-8").replace("/opt/unprm/bin/unprm", sys.executable)  # which has to be there
    (tmp_path / UNIT.name).write_text(unit, "utf-8")
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_the_unit_starts_the_server_and_waits_for_it(tmp_path: Path) -> None:
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT, "utf-8")
    service = dict(unit["Service"])
    program, command, option = service["ExecStart"].split()
    assert (program, command) == ("/opt/unprm/bin/unprm", "serve")
    (tmp_path / "unprm.toml").write_text("port = 9005", "utf-8")
    assert read(Settings, [option.replace("/etc/unprm", str(tmp_path))]).port == 9005
    assert int(service["TimeoutStopSec"].rstrip("s")) > _longest_end(upstream_url="http://upstream")
    assert service["RestartPreventExitStatus"] == "2"


def _longest_end(**options: Any) -> float:
    """Seconds that a server may take from SIGTERM to its end."""
    return Settings(**options).max_drain_seconds + LAST_SECONDS


def _nodes() -> dict[str, dict[str, Any]]:
    """The templates of the cluster's pods."""
    cluster = ray_service()["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    return {"head": cluster["headGroupSpec"]["template"], "worker": workers["template"]}


def test_ray_is_set_on_kubernetes_as_elsewhere() -> None:
    for pod in _nodes().values():
        variables = {row["name"]: row["value"] for row in pod["spec"]["containers"][0]["env"]}
        assert variables.items() >= RAY.items()


@pytest.mark.parametrize("name", ["head", "worker"])
def test_pods_of_the_ray_cluster_keep_to_kubernetes_schema(name: str, tmp_path: Path) -> None:
    template = _nodes()[name]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": name, **template.get("metadata", {})}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod), "utf-8")
    checked(BIN / "kubernetes-validate", "--strict", tmp_path / "pod.yaml")


@needs_helm
@pytest.mark.parametrize("name", ["head", "worker"])
def test_pods_of_the_ray_cluster_have_no_rights_and_what_they_write_to(name: str) -> None:
    pod = _nodes()[name]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"] == _container()["securityContext"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {"/models", "/tmp", "/dev/shm"}
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in mounts.values()}


def test_kuberay_needs_no_program_that_the_image_has_not() -> None:
    """Its own readiness probe of a worker that serves calls wget."""
    for template in _nodes().values():
        (container,) = template["spec"]["containers"]
        assert {*container["livenessProbe"], *container["readinessProbe"]} >= {"httpGet"}
        assert not {"exec", "command"} & {*container["livenessProbe"], *container["readinessProbe"], *container}
    (worker,) = _nodes()["worker"]["spec"]["containers"]
    assert worker["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": "serve"}
    config = yaml.safe_load(ray_service()["spec"]["serveConfigV2"])
    assert [port["containerPort"] for port in worker["ports"]] == [config["http_options"]["port"]]


def test_every_replica_on_kubernetes_has_its_gpu() -> None:
    (group,) = ray_service()["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    (head,) = _nodes()["head"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    settings = _ray_settings()
    assert settings.replica_gpus == 1
    assert settings.replicas == group["replicas"] == group["minReplicas"]
    assert settings.upper_replicas <= group["maxReplicas"]
    assert settings.replica_cpus <= float(worker["resources"]["requests"]["cpu"])


def _ray_settings() -> ScaleSettings:
    (application,) = yaml.safe_load(ray_service()["spec"]["serveConfigV2"])["applications"]
    return ScaleSettings.of(application["args"])


def test_ray_is_told_what_it_can_be_and_logs_no_request() -> None:
    schema = pytest.importorskip("ray.serve.schema")
    document = yaml.safe_load(ray_service()["spec"]["serveConfigV2"])
    config = schema.ServeDeploySchema.model_validate(document)
    (application,) = config.applications
    assert document.keys() <= schema.ServeDeploySchema.model_fields.keys()  # it takes unknown ones, and does nothing
    assert document["applications"][0].keys() <= schema.ServeApplicationSchema.model_fields.keys()
    assert (config.http_options.host, application.route_prefix) == ("0.0.0.0", "/")
    assert config.logging_config.enable_access_log is application.logging_config.enable_access_log is False
    module, _, name = application.import_path.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    keys = _nodes()["worker"]["spec"]["containers"][0]["volumeMounts"]
    assert str(_ray_settings().api_keys_file).startswith(tuple(f"{mount['mountPath']}/" for mount in keys))


def test_ray_is_of_one_version() -> None:
    (wanted,) = re.findall(r"ray\[.*\]==([0-9.]+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    pinned = [(DOCKER / f"requirements-{name}.txt").read_text("ascii").split() for name in ("cpu", "cuda")]
    assert all(f"ray=={wanted}" in words for words in pinned)
    cluster = ray_service()["spec"]["rayClusterConfig"]
    assert cluster["rayVersion"] == wanted
    assert cluster["authOptions"] == {"mode": "token"}


@needs_helm
def test_what_prometheus_scrapes_by_annotation_needs_no_key() -> None:
    scraped = {
        name
        for name, pod in _pods().items()
        if "prometheus.io/scrape" in pod.get("metadata", {}).get("annotations", {})
    }
    assert scraped == {"server"}
    assert read(Settings, _container()["args"]).open_metrics
