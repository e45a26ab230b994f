"""The page's files as they are served: to everybody, with the headers that hold them to themselves."""

import re
import socket
import threading
from pathlib import Path

import httpx
import pytest

import server.page
from server.serving import AddressUnusable, listening, page_address
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving
from tests.support import PATIENCE, until
from unprm.votes.registry import REWARD_STRATEGIES

FILES = Path(server.page.__file__).parent / "files"
NAMES = sorted(path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file())


@pytest.mark.parametrize("address", ["/", "/?path=docs.html"])
def test_the_root_is_the_page(server: Running, address: str) -> None:
    response = server.get(address)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.text == (FILES / "index.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("host", "secure", "address"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8000/"),
        ("0.0.0.0", False, "http://localhost:8000/"),
        ("::", True, "https://localhost:8000/"),
        ("::1", False, "http://[::1]:8000/"),
        ("gpu-1", True, "https://gpu-1:8000/"),
    ],
)
def test_its_address_is_one_that_a_browser_can_open(host: str, secure: bool, address: str) -> None:
    assert page_address(host, 8000, secure=secure) == address


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("hosts", [["::"], ["127.0.0.1", "::1"], ["0.0.0.0", "::"], ["localhost", "::1"]])
def test_every_address_is_listened_at(hosts: list[str]) -> None:
    with serving(host=hosts) as running:
        for address in ("127.0.0.1", "[::1]"):
            assert httpx.get(f"http://{address}:{running.port}/healthz", timeout=PATIENCE).status_code == 200


def test_an_address_that_is_taken_frees_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressUnusable, match=rf"at 127\.0\.0\.1, port {port}: .*Address already in use"):
            listening(["127.0.0.2", "127.0.0.1"], port)
    for each in listening(["127.0.0.2", "127.0.0.1"], port):
        each.close()


def test_its_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "server.serving"), serving() as running:
        assert f"the page is at {running.url}/" in caplog.text


def test_it_says_once_that_it_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def load() -> FakeEngine:
        gate.wait(PATIENCE)
        return FakeEngine()

    with caplog.at_level("INFO", "server.serving"), serving(load) as running:
        assert running.get("/readyz").status_code == 503
        assert "ready: " not in caplog.text
        gate.set()
        until(lambda: f"ready: {running.url}/ serves fake; base URL of requests: {running.url}\n" in caplog.text)
        assert running.get("/readyz").status_code == 200


def test_every_file_is_served_with_the_headers(server: Running) -> None:
    assert len(NAMES) > 30
    swagger = ("swagger-ui.css", "swagger-ui-bundle.js")
    for path in ("/", "/docs", *(f"/page/{name}" for name in (*NAMES, *swagger))):
        for method in ("GET", "HEAD"):
            response = server.http.request(method, path)
            assert response.status_code == 200, path
            policy = dict(part.split(" ", 1) for part in response.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"
    script = server.get("/page/app.js").headers
    assert script["content-type"].startswith("text/javascript")
    assert server.get("/page/app.js", headers={"If-None-Match": script["etag"]}).status_code == 304


def test_the_page_learns_of_every_strategy(server: Running) -> None:
    response = server.get("/page/strategies.json")
    assert list(response.json()) == list(REWARD_STRATEGIES)
    for text in response.json().values():
        assert text["title"]
        assert text["score"]
    assert response.headers["content-type"] == "application/json"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert server.http.head("/page/strategies.json").status_code == 200


def test_the_page_needs_no_key_and_what_it_asks_does() -> None:
    with serving(api_key="k") as locked:
        for path in (
            "/",
            "/docs",
            "/page/swagger-ui-bundle.js",
            "/page/app.js",
            "/page/strategies.json",
            "/page/vendor/katex-0.19.1/katex.min.js",
        ):
            assert locked.get(path).status_code == 200
        for path in ("/model", "/pages", "/page", "/metrics"):
            assert locked.get(path).status_code == 401, path


@pytest.mark.parametrize(
    "path",
    ["__init__.py", "../__init__.py", "%2e%2e/__init__.py", "..%2f__init__.py", "/etc/passwd", "", "vendor", "%00"],
)
def test_nothing_but_the_files_is_served(server: Running, path: str) -> None:
    with server.connect(f"GET /page/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()) as connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split()[1] == b"404", answer
    assert b"not_found" in answer


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.startswith("vendor/") and name.endswith(("html", "css", "js"))]
)
def test_no_file_names_another_place_to_load_from(name: str) -> None:
    """What a visitor may follow or copy is no place to load from."""
    text = re.sub(r'<a href="https:[^"]*"|<code>[^<]*</code>', "", (FILES / name).read_text("utf-8"))
    assert not re.search(
        r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|outerHTML|insertAdjacentHTML|\beval\b|<style|style=", text
    )
