"""What Prometheus would have recorded of a running server: minutes, of which each repeats as often as a test says, and
the alerts that fire after them.

A minute is what /metrics says before and after some requests; up is 0 where it does not answer. `promtool` evaluates
docker/prometheus/alerts.yml on the series that these make.
"""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from server.settings import Settings
from tests.server.options import read
from tests.support import ROOT

TARGET = {"job": "unprm", "instance": "one"}
UP = "up"


class Scrape(NamedTuple):
    """Values by series, those that only grow apart from the others."""

    counters: dict[str, float]
    gauges: dict[str, float]


class Minute(NamedTuple):
    before: Scrape
    after: Scrape


def _series(name: str, labels: dict[str, str]) -> str:
    pairs = ", ".join(f'{key}="{value}"' for key, value in sorted({**labels, **TARGET}.items()))
    return f"{name}{{{pairs}}}"


def scrape(url: str) -> Scrape:
    """As Prometheus asks: without a key."""
    counters, gauges = dict[str, float](), dict[str, float]()
    try:
        answer = httpx.get(f"{url}/metrics").raise_for_status().text
    except httpx.HTTPError:
        return Scrape({}, {_series(UP, {}): 0})
    for family in text_string_to_metric_families(answer):
        values = gauges if family.type == "gauge" else counters
        values.update({_series(sample.name, sample.labels): sample.value for sample in family.samples})
    return Scrape(counters, gauges | {_series(UP, {}): 1})


def minute(url: str, happens: Callable[[], object] = lambda: None) -> Minute:
    before = scrape(url)
    happens()
    return Minute(before, scrape(url))


def shipped(keys: Path) -> dict[str, object]:
    """The settings that the chart gives its server, which are compose.yaml's too but for the file of keys."""
    manifest = (ROOT / "docker" / "helm" / "templates" / "deployment.yaml").read_text("utf-8")
    arguments = [line.split("#")[0].strip(" -") for line in manifest.splitlines() if line.strip().startswith("- --")]
    settings = read(Settings, [f"--{each}".replace("/keys/keys", str(keys)) for each in arguments])
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    assert settings.open_metrics is (compose["services"]["unprm"]["environment"]["UNPRM_OPEN_METRICS"] == "true")
    return {name: getattr(settings, name) for name in settings.model_fields_set}


def _values(minutes: Sequence[Minute]) -> dict[str, list[float | None]]:
    """The values of each series at the end of each minute; None where it is not exported."""
    known = dict(minutes[0].before.counters)
    rows = list[dict[str, float]]()
    for before, after in minutes:
        for name, value in after.counters.items():
            known[name] = known.get(name, 0.0) + value - before.counters.get(name, 0.0)
        here = known if after.counters else {}
        rows.append(here | after.gauges)
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def firing(directory: Path, minutes: Sequence[Minute], *at: int) -> list[set[str]]:
    """The alerts that fire after so many minutes."""
    series = [
        {"series": name, "values": " ".join("_" if value is None else f"{value!r}" for value in values)}
        for name, values in _values(minutes).items()
        if "_created" not in name
    ]
    found = []
    for time in at:
        expected = {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{time - 1}m"}
        # promtool tells what there is where it is not what is expected
        expected["exp_samples"] = [{"labels": '{alertname="NONE"}', "value": 1}]
        file = directory / "recorded.yml"
        rules = str(ROOT / "docker" / "prometheus" / "alerts.yml")
        test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
        file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}), "utf-8")
        told = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
        got = told.stdout + told.stderr
        assert "got:" in got, got
        found.append(set(re.findall(r'alertname="(\w+)"', got.partition("got:")[2])))
    return found
