"""The server's settings, as options and variables give them."""

import pytest

from server.settings import Settings, SettingsInvalid

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
    expected = Settings.load([])
    for name, value in INJECTED.items():
        monkeypatch.setenv(name, value)
    assert Settings.load([]) == expected
    assert Settings.load(["--port=9001"]).port == 9001
    monkeypatch.setenv("UNPRM_PORT", "9002")
    assert Settings.load([]).port == 9002


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
    with pytest.raises(SettingsInvalid, match="port" if name == "UNPRM_PORT" else name):
        Settings.load([])


def test_running_requests_may_finish_as_late_as_they_may_end() -> None:
    assert Settings.load(["--max-request-seconds=7"]).most_drain_seconds == 7
    assert Settings.load(["--upstream-url=http://upstream", "--gateway-seconds=99"]).most_drain_seconds == 99
    assert Settings.load(["--upstream-url=http://upstream", "--drain-seconds=0"]).most_drain_seconds == 0


def test_the_address_of_a_service_is_no_port_as_an_option() -> None:
    with pytest.raises(SettingsInvalid, match="port"):
        Settings.load(["--port=tcp://10.0.0.11:80"])
