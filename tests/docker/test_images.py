"""Images, compose files and manifests: they keep to their schemas and rules, and say what the documentation says."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from dockerfile_parse import DockerfileParser

from server.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = ["Dockerfile", "Dockerfile.cpu"]
COMPOSE = ["compose.yaml", "compose.gpu.yaml"]
BIN = Path(sys.executable).parent


def checked(*command: str | Path) -> None:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_keep_to_the_rules_of_hadolint(name: str) -> None:
    checked(BIN / "hadolint", DOCKER / name)


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_files_keep_to_their_schema(name: str) -> None:
    checked(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / name)


def test_manifests_keep_to_kubernetes_schema() -> None:
    checked(BIN / "kubernetes-validate", "--strict", *sorted((DOCKER / "kubernetes").glob("*.yaml")))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_is_not_rooted_and_checks_itself(name: str) -> None:
    with (DOCKER / name).open("rb") as file:
        told = [(row["instruction"], row["value"]) for row in DockerfileParser(fileobj=file).structure]
    assert ("USER", "10001") in told
    assert any("ready.py" in value for instruction, value in told if instruction == "HEALTHCHECK")
    assert told[-1] == ("ENTRYPOINT", '["python3", "-m", "server"]')


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_an_image_copies_is_there_and_not_ignored(name: str) -> None:
    everything, *rules = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert everything == "*"
    sent = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    with (DOCKER / name).open("rb") as file:
        copies = [row["value"] for row in DockerfileParser(fileobj=file).structure if row["instruction"] == "COPY"]
    sources = [source for own in copies if not own.startswith("--from") for source in own.split()[:-1]]
    assert len(sources) > 5
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, rule) for rule in sent), source


@pytest.mark.parametrize("name", [*DOCKERFILES, *COMPOSE])
def test_variables_are_those_of_settings(name: str) -> None:
    named = set(re.findall(rf"^\s*({PREFIX}[A-Z_]+)[:=]", (DOCKER / name).read_text("utf-8"), re.MULTILINE))
    assert named <= {PREFIX + field.upper() for field in Settings.model_fields}
    assert named


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_every_package_of_an_image_is_pinned(name: str) -> None:
    lines = (DOCKER / f"requirements-{name}.txt").read_text("ascii").splitlines()
    pinned = dict(line.split("==") for line in lines)
    assert len(pinned) == len(lines)
    assert pinned["torch"] == "2.13.0"
    assert ("vllm" in pinned) is (name == "cuda")


def _container() -> dict[str, Any]:
    documents = yaml.safe_load_all((DOCKER / "kubernetes" / "unprm.yaml").read_text("utf-8"))
    (deployment,) = [own for own in documents if own["kind"] == "Deployment"]
    container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def test_kubernetes_asks_for_a_gpu_and_gives_nothing_away() -> None:
    container = _container()
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["startupProbe"]["httpGet"]["path"] == container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_options_of_the_manifest_are_the_servers() -> None:
    (tmp := Settings.load([own for own in _container()["args"] if "keys" not in own]))
    assert tmp.model == ["Qwen/Qwen2.5-Math-PRM-7B"]


def test_who_stops_the_server_waits_for_it_to_drain() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
    assert int(compose["services"]["unprm"]["stop_grace_period"].rstrip("s")) > Settings().drain_seconds
