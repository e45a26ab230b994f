"""The README's examples, run as they stand there against the server that `make serve` starts."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```sh\n(curl [^`]*?)```\n+```json\n([^`]*?)```", README)


@pytest.fixture(scope="module")
def port():
    """A server with the embedded model, started as a user would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    command = [sys.executable, "-m", "server", "--port", str(free)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        try:
            _wait(free, server)
            yield free
        finally:
            server.terminate()
            told = server.communicate(timeout=60)[1]
    assert "demonstration model" in told
    assert server.returncode == 0


def _wait(port, server):
    for _ in range(600):
        assert server.poll() is None, server.stderr.read()
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("not ready after 60 s")


def _approximately(value):
    """Numbers to a thousandth: processors differ in the last digits of a model's scores."""
    if isinstance(value, dict):
        return {key: _approximately(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_approximately(inner) for inner in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


def test_the_readme_has_its_examples():
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize(("command", "answer"), EXAMPLES)
def test_an_example_answers_as_the_readme_says(port, command, answer):
    words = shlex.split(command.replace("\\\n", " "))
    url = next(word for word in words if word.startswith("localhost:8000"))
    body = words[words.index("-d") + 1]
    headers = dict([words[words.index("-H") + 1].split(": ")])
    response = httpx.post(f"http://{url.replace(':8000', f':{port}')}", content=body, headers=headers)
    assert response.status_code == 200, response.text
    assert response.json() == _approximately(json.loads(answer))


def test_the_table_of_the_embedded_model_is_what_was_measured():
    figures = json.loads((ROOT / "unprm/mini/weights/figures.json").read_text("utf-8"))
    assert f"| step AUROC | {figures['step_auroc']:.3f} |" in README
    assert f"| first-error F1 | {100 * figures['f1']:.1f} |" in README
    for strategy, share in figures["votes"].items():
        assert re.search(rf"\| {strategy} .*\| {100 * share['mean']:.1f} % ", README)
