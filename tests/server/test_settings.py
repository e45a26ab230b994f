"""The server's settings, as options and variables give them."""

from pathlib import Path

import pytest

from server.models.load import load
from server.scale.settings import ScaleSettings
from server.settings import Settings, SettingsInvalid
from tests.server.options import read

# what Kubernetes sets beside Services called unprm and unprm-ray-serve-svc
INJECTED = {
    "UNPRM_SERVICE_HOST": "10.0.0.11",
    "UNPRM_SERVICE_PORT": "80",
    "UNPRM_SERVICE_PORT_HTTP": "80",
    "UNPRM_PORT": "tcp://10.0.0.11:80",
    "UNPRM_PORT_80_TCP": "tcp://10.0.0.11:80",
    "UNPRM_PORT_80_TCP_PROTO": "tcp",
    "UNPRM_PORT_80_TCP_PORT": "80",
    "UNPRM_PORT_80_TCP_ADDR": "10.0.0.11",
    "UNPRM_RAY_SERVE_SVC_SERVICE_HOST": "fd00::1",
    "UNPRM_RAY_SERVE_SVC_PORT": "tcp://[fd00::1]:8000",
    "UNPRM_RAY_SERVE_SVC_PORT_8000_TCP": "tcp://[fd00::1]:8000",
}


def test_what_kubernetes_tells_of_services_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read(Settings, [])
    for name, value in INJECTED.items():
        monkeypatch.setenv(name, value)
    assert read(Settings, []) == expected
    assert read(Settings, ["--port=9001"]).port == 9001
    monkeypatch.setenv("UNPRM_PORT", "9002")
    assert read(Settings, []).port == 9002


def test_a_model_is_chosen_by_option_variable_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "unprm.toml"
    file.write_text('model = ["unprm-mini"]', "utf-8")
    unchosen = read(Settings, ["--port=9001"])
    chosen = [read(Settings, ["--model=unprm-mini"]), read(Settings, [f"--config={file}"])]
    monkeypatch.setenv("UNPRM_MODEL", "unprm-mini")
    for settings in (*chosen, read(Settings, [])):
        assert settings.model == unchosen.model


def test_upstreams_are_the_same_as_options_in_a_variable_and_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "unprm.toml"
    urls, key, model = ["small=http://a", "large=http://b/?c=d"], "large=K==", "small=org/a"
    file.write_text(f'upstream-url = {urls}\nupstream-key = "{key}"\nupstream-model = ["{model}"]', "utf-8")
    options = [f"--upstream-url={each}" for each in urls]
    given = [
        read(Settings, [*options, f"--upstream-key={key}", f"--upstream-model={model}"]).upstreams(),
        read(Settings, [f"--config={file}"]).upstreams(),
    ]
    for name, value in (("URL", ",".join(urls)), ("KEY", key), ("MODEL", model)):
        monkeypatch.setenv(f"UNPRM_UPSTREAM_{name}", value)
    for upstreams in (*given, read(Settings, []).upstreams()):
        assert upstreams == {"small": ("http://a", None, "org/a"), "large": ("http://b/?c=d", "K==", None)}


def test_the_key_of_an_upstream_without_a_name_is_taken_as_it_is() -> None:
    settings = read(Settings, ["--upstream-url=http://a/?b=c", "--upstream-key=a,small=K=="])
    assert settings.upstreams() == {"first": ("http://a/?b=c", "a,small=K==", None)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream-url=http://a", "--upstream-url=http://b"], "each given as NAME=URL, with different names"),
        (["--upstream-url=a=http://a", "--upstream-url=b=CANARY"], "^--upstream-url: expected the URL of a server"),
        (["--upstream-url=a=http://a", "--upstream-key=CANARY"], "^--upstream-key: expected a=KEY, each once"),
        (["--upstream-url=a=http://a", "--upstream-key=b=CANARY"], "^--upstream-key: expected a=KEY, each once"),
        (["--upstream-url=http://a", "--upstream-key="], "^--upstream-key: must not be empty"),
        (["--upstream-url=a=http://a", "--upstream-model=a=b,a=c"], "^--upstream-model: expected a=MODEL, each once"),
    ],
)
def test_what_is_wrong_with_upstreams_is_said_without_any_key(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message) as refused:
        read(Settings, arguments)
    assert "CANARY" not in str(refused.value).partition(", got ")[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UNPRM_SERVICE", "10.0.0.11"),
        ("UNPRM_SERVICE_PORT", "http"),
        ("UNPRM_PORT_HTTP", "80"),
        ("UNPRM_GATEWAY_PORT", "80"),
        ("UNPRM_PORTS", "tcp://10.0.0.11:80"),
        ("UNPRM_PORT", "http://10.0.0.11:80"),
    ],
)
def test_other_variables_are_refused_as_ever(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid, match=name):
        read(Settings, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", 'max-solutions = 7\nmodel = ["one=unprm-mini", "other=unprm-mini"]\nport = 9003\napi-key = "k"'),
        ("a.yaml", "max_solutions: 7\nmodel: [one=unprm-mini, other=unprm-mini]\nport: 9003\napi-key: k"),
    ],
)
def test_settings_come_from_a_file_unless_an_option_or_a_variable_says_otherwise(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    settings = read(Settings, [f"--config={file}"])
    assert (settings.max_solutions, settings.port, len(settings.model)) == (7, 9003, 2)
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "k"
    monkeypatch.setenv("UNPRM_CONFIG", str(file))
    monkeypatch.setenv("UNPRM_PORT", "9004")
    settings = read(Settings, ["--max-solutions=8"])
    assert (settings.max_solutions, settings.port, len(settings.model)) == (8, 9004, 2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", 'nonsense = "CANARY"', "^nonsense in .*a.toml is not a setting"),
        ("a.toml", "max-solutions = 1000", "^max_solutions in .*a.toml: Input should be less than or equal to 256"),
        ("a.toml", "api-key = 31415926", "^api_key in .*a.toml: Input should be a valid string$"),
        ("a.toml", "config = 'other.toml'", "^config: a file can't name another"),
        ("a.toml", "CANARY", r"^config: .*a\.toml can't be read \(TOMLDecodeError\)$"),
        ("a.yaml", "a: [CANARY", r"^config: .*a\.yaml can't be read \(ParserError\)$"),
        ("a.yml", "- CANARY", r"^config: .*a\.yml can't be read \("),
        ("", "", "^--config: Path does not point to a file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    if name:
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(SettingsInvalid, match=message) as refused:
        read(Settings, [f"--config={tmp_path / name}"])
    assert "CANARY" not in str(refused.value)


def test_running_requests_may_finish_as_late_as_they_may_end() -> None:
    assert read(Settings, ["--max-request-seconds=7"]).max_drain_seconds == 7
    assert read(Settings, ["--upstream-url=http://upstream", "--gateway-seconds=99"]).max_drain_seconds == 99
    assert read(Settings, ["--upstream-url=http://upstream", "--drain-seconds=0"]).max_drain_seconds == 0


def test_the_address_of_a_service_is_no_port_as_an_option() -> None:
    with pytest.raises(SettingsInvalid, match="port"):
        read(Settings, ["--port=tcp://10.0.0.11:80"])


@pytest.mark.parametrize(
    ("arguments", "share"),
    [
        ([], 0.9),
        (["--model=a=org/a", "--model=b=org/b"], 0.45),
        (["--model=a=org/a", "--model=b=org/b", "--admin-key=k"], 0.3),
        (["--model=a=org/a", "--model=b=judge", "--judge-url=http://judge"], 0.9),
        (["--model=a=org/a", "--model=b=org/b", "--memory=0.4"], 0.4),
        (["--model=org/base", "--adapter=a=org/a,b=org/b", "--admin-key=k"], 0.3),
    ],
)
def test_models_share_a_gpu_s_memory(arguments: list[str], share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, loaded = read(Settings, arguments), []
    monkeypatch.setattr("unprm.models.load.load_model", lambda _, options, sharers: loaded.append(options.memory))
    load(settings, next(iter(settings.models().values())))
    assert loaded == [pytest.approx(share)]


@pytest.mark.parametrize(
    ("options", "share"), [({}, 0.9), ({"replica_gpus": 2}, 0.9), ({"replica_gpus": 0.5}, 0.45)], ids=str
)
def test_replicas_that_share_a_gpu_share_its_memory(options: dict[str, float], share: float) -> None:
    assert ScaleSettings.of(options).memory_of_each == pytest.approx(share)
    assert ScaleSettings.of(options | {"memory": 0.8}).memory_of_each == 0.8


@pytest.mark.parametrize(("name", "content"), [("a.toml", "port = 9002"), ("a.yaml", "port: 9002")])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, name: str, content: str) -> None:
    file = tmp_path / name
    file.write_text(f"\ufeff{content}", "utf-8")
    assert read(Settings, [f"--config={file}"]).port == 9002
