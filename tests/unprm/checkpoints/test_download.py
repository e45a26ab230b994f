"""A model from the hub: downloaded with progress in the log, then found again without a network."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import ROOT

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b'{"model_type": "qwen2"}', "model.safetensors": b"\x00" * 3_000_000, "model.bin": b"code"}
PROGRAM = """
import logging, sys
from huggingface_hub import constants
from unprm.checkpoints.files import fetch
from unprm.errors import ModelInvalid
from unprm.models.options import EngineOptions, ModelSpec
from unprm.models.remote import load_remote
try:
    load_remote(ModelSpec(model="some/body", family="qwen-prm"), EngineOptions(engine="remote", url="http://a"))
except ModelInvalid as error:
    print("remote", error, flush=True)
    input()
constants.HF_HUB_OFFLINE = True
for name in ("some/body", "some/other"):
    try:
        fetch(name, None)
    except ModelInvalid as error:
        print("offline", error, flush=True)
constants.HF_HUB_OFFLINE = False
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
print("place", fetch("some/body", None), flush=True)
input()
print("again", fetch("some/body", None))
"""


class _Hub(BaseHTTPRequestHandler):
    """The part of the hub that a download uses."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2].partition("?")[0]
        if self.path.startswith("/api/models/some/body/tree/"):
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in FILES.items()
            ]
            self._answer(json.dumps(rows).encode())
        elif self.path.startswith("/api/models/some/body"):
            siblings = [{"rfilename": name, "size": len(content)} for name, content in FILES.items()]
            self._answer(json.dumps({"id": "some/body", "sha": COMMIT, "siblings": siblings}).encode())
        elif f"/some/body/resolve/{COMMIT}/" in self.path and name in FILES:
            self._answer(FILES[name])
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 (the library's name)

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_model_is_downloaded_once_and_its_weights_where_needed(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    environment = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        refused = process.stdout.readline()
        without = [path.name for path in tmp_path.glob("hub/*/snapshots/*/*")]
        assert refused.startswith("remote the tokenizer has no token")  # up to here no weights were needed
        assert without == ["config.json"]
        process.stdin.write("\n")
        process.stdin.flush()
        offline = process.stdout.readline()  # only the settings are there
        assert offline.startswith("offline model 'some/body' is not a directory here and could not be fetched")
        assert "HF_HUB_OFFLINE is set" in offline
        assert offline.rstrip().endswith("is incomplete: 1 file(s) are missing (model.safetensors))")
        assert process.stdout.readline().endswith("give the directory, or fetch it once without that\n")
        log = []
        for line in process.stdout:
            log.append(line)
            if line.startswith("place "):
                break
        place = Path(log[-1].removeprefix("place ").strip())
        assert sorted(path.name for path in place.iterdir()) == ["config.json", "model.safetensors"]
        assert (place / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert any("downloaded 3.00MB of 3.00MB" in line for line in log)
        hub.shutdown()
        hub.server_close()
        rest, _ = process.communicate("\n")
    assert process.returncode == 0
    assert f"again {place}" in rest.splitlines()
