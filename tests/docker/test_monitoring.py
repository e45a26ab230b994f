"""Dashboard and alerts: they load, and speak of metrics that the server has."""

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from server.problem_details import CALLER_DEADLINE, TABLE
from tests.server.harness import serving
from tests.support import ROOT

DOCKER = ROOT / "docker"
DASHBOARD = json.loads((DOCKER / "grafana" / "unprm.json").read_text("utf-8"))
ALERTS = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text("utf-8"))
PANELS = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in DASHBOARD["panels"]}
RULES = {rule.get("alert") or rule["record"]: [rule["expr"]] for group in ALERTS["groups"] for rule in group["rules"]}
METRIC = re.compile(r"\b(?:unprm|process)_[a-z_]+")


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names that a server exports, those without a value yet among them."""
    with serving(journal=tmp_path_factory.mktemp("journal") / "j") as server:
        families = text_string_to_metric_families(server.get("/metrics").text)
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "gauge": [""]}
    return {family.name + ending for family in families for ending in endings[family.type]}


@pytest.mark.parametrize("title", [*PANELS, *RULES])
def test_only_metrics_that_there_are(metrics: set[str], title: str) -> None:
    for expression in (PANELS | RULES)[title]:
        named = set(METRIC.findall(expression))
        assert named or re.search(r"up\{|unprm:|DCGM_FI_DEV_", expression)
        assert named <= metrics
        assert expression.count("(") == expression.count(")")


def test_nothing_of_the_server_is_left_out(metrics: set[str]) -> None:
    shown = " ".join(expression for several in PANELS.values() for expression in several)
    exported = {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics if name.startswith("unprm_")}
    assert {name for name in exported if name not in shown} <= {"unprm_equivalence_answers_total"}


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]}
    assert len(places) == len(DASHBOARD["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def test_alerts_say_how_bad_it_is_and_what_to_do() -> None:
    for group in ALERTS["groups"]:
        for rule in (rule for rule in group["rules"] if "alert" in rule):
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["description"]
            page, _, place = rule["annotations"]["runbook"].partition("#")
            section = (ROOT / page).read_text("utf-8").partition(f"## {place.title()}\n")[2].partition("\n## ")[0]
            assert f"**{rule['alert']}**" in section


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus, which is not installed")
def test_prometheus_takes_its_files() -> None:
    for command in (["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"]):
        subprocess.run(["promtool", *command], cwd=DOCKER / "prometheus", check=True, capture_output=True)


def test_alerts_reach_a_receiver_of_their_severity_and_gpus_are_asked() -> None:
    prometheus, alertmanager, gpus = (
        yaml.safe_load((DOCKER / "prometheus" / f"{name}.yml").read_text("utf-8"))
        for name in ("prometheus", "alertmanager", "gpu")
    )
    base, on_gpu = (yaml.safe_load((DOCKER / name).read_text("utf-8")) for name in ("compose.yaml", "compose.gpu.yaml"))
    ((manager,),) = (each["static_configs"][0]["targets"] for each in prometheus["alerting"]["alertmanagers"])
    host, _, port = manager.partition(":")
    service = base["services"][host]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert service["volumes"][0].startswith("${ALERTMANAGER_CONFIG:-./prometheus/alertmanager.yml}:")
    severities = {
        rule["labels"]["severity"] for group in ALERTS["groups"] for rule in group["rules"] if "alert" in rule
    }
    assert severities == {receiver["name"] for receiver in alertmanager["receivers"]} == {"page", "ticket"}
    (route,) = alertmanager["route"]["routes"]
    assert (route["matchers"], route["receiver"], alertmanager["route"]["receiver"]) == (
        ['severity="page"'], "page", "ticket"
    )  # fmt: skip
    assert gpus == [{"targets": ["dcgm-exporter:9400"]}]
    assert "dcgm-exporter" in on_gpu["services"]
    (mounted,) = on_gpu["services"]["prometheus"]["volumes"]
    (files,) = (job["file_sd_configs"][0]["files"] for job in prometheus["scrape_configs"] if job["job_name"] == "dcgm")
    assert fnmatch(mounted.split(":")[1], *files)


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool comes with prometheus-alertmanager, not installed")
def test_alertmanager_takes_its_file_and_wakes_by_severity() -> None:
    file = DOCKER / "prometheus" / "alertmanager.yml"
    subprocess.run(["amtool", "check-config", file], check=True, capture_output=True)
    for severity in ("page", "ticket"):
        command = ["amtool", "config", "routes", "test", f"--config.file={file}", f"severity={severity}"]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{severity}\n"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus, which is not installed")
def test_errors_wake_somebody_and_loading_does_not() -> None:
    ended = subprocess.run(
        ["promtool", "test", "rules", Path(__file__).parent / "alerts_test.yml"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_neither_probes_nor_loading_count_as_errors() -> None:
    (expression,) = RULES["UnprmErrors"]
    counted, condition, loading = expression.partition(" unless on (instance) ")
    assert counted.count("unprm_requests_total") == counted.count('route!~"/healthz?|/readyz|/metrics"') == 2
    codes = re.findall(r'code=~"(.*?)"', counted)
    assert [set(each.split("|")) <= TABLE.keys() - {CALLER_DEADLINE} for each in codes] == [True]
    assert condition
    assert "max_over_time(unprm_loading_models[5m])" in loading
