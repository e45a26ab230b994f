"""A small hub over HTTP on loopback: who a token belongs to, models that are made, commits to them, and their files."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_test"


@dataclass
class Hub:
    """What the hub has: a model's files by their paths, the licences of models and data sets, and the requests that
    would change something, in their order."""

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The JSON answer to a request, None for what is not there."""
        match path.strip("/").split("/"):
            case ["api", "whoami-v2"]:
                return {"name": "somebody", "type": "user"}
            case ["api", "validate-yaml"]:
                return {"errors": [], "warnings": []}
            case ["api", "repos", "create"]:
                self.changes.append("create")
                name = "somebody/" + json.loads(body)["name"]
                self.files.setdefault(name, {})
                return {"url": f"{self.url}/{name}"}
            case ["api", "models", owner, name, "preupload", "main"]:
                kept = self.files[f"{owner}/{name}"]
                paths = [file["path"] for file in json.loads(body)["files"]]
                return {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False, "oid": _blob(kept.get(p))}
                                  for p in paths]}  # fmt: skip
            case ["api", "models", owner, name, "commit", "main"]:
                self.changes.append("commit")
                for line in map(json.loads, body.splitlines()):
                    if line["key"] != "header":
                        assert line["key"] == "file"
                        content = base64.b64decode(line["value"]["content"])
                        self.files[f"{owner}/{name}"][line["value"]["path"]] = content
                return {"commitUrl": f"{self.url}/{owner}/{name}/commit/{'1' * 40}", "commitOid": "1" * 40}
            case ["api", "models" | "datasets", owner, name] if method == "GET" and f"{owner}/{name}" in self.licences:
                card = {"license": self.licences[f"{owner}/{name}"]}
                return {"id": f"{owner}/{name}", "cardData": card, "siblings": [], "tags": []}
            case ["api", "models", owner, name, *_] if method == "GET" and f"{owner}/{name}" in self.files:
                return {"id": f"{owner}/{name}", "sha": "1" * 40, "siblings": [], "tags": []}
        return None


def _blob(content: bytes | None) -> str | None:
    """Git's name of a file's content."""
    return None if content is None else hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serves a hub that knows `TOKEN` alone."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            known = self.headers.get("authorization") == f"Bearer {TOKEN}"
            found = hub.answer(self.command, self.path.partition("?")[0], body) if known else {"error": "who is it?"}
            payload = json.dumps({"error": "not found"} if found is None else found).encode()
            self.send_response(401 if not known else 404 if found is None else 200)
            if known and found is None:
                self.send_header("x-error-code", "RepoNotFound")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def do_GET(self) -> None:
            match self.path.strip("/").split("/"):
                case [owner, name, "resolve", revision, path]:
                    self.send_file(hub.files.get(f"{owner}/{name}", {}).get(path), revision)
                case _:
                    self.do_POST()

        def do_HEAD(self) -> None:
            self.do_GET()

        def send_file(self, content: bytes | None, revision: str) -> None:
            """Anybody gets a file, at any revision."""
            self.send_response(404 if content is None else 200)
            if content is None:
                self.send_header("x-error-code", "EntryNotFound")
            self.send_header("etag", f'"{_blob(content)}"')
            self.send_header("x-repo-commit", revision)
            self.send_header("content-length", str(len(content or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content or b"")

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
