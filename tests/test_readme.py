"""The first examples of the documentation, run as they stand there against the server that `make serve` starts."""

import json
import re
import shlex
import subprocess
import sys

import httpx
import pytest

from tests.pages import EXAMPLES, PAGES, approximately, part
from tests.support import PATIENCE, ROOT, free_port, until


@pytest.fixture(scope="module")
def port():
    """A server with the embedded model, started as a user would."""
    free = free_port()
    command = [sys.executable, "-m", "unprm", "serve", "--port", str(free)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        try:
            _wait(free, server)
            yield free
        finally:
            server.terminate()
            errors = server.communicate(timeout=PATIENCE)[1]
    assert "demonstration model" in errors
    assert server.returncode == 0


def _wait(free, server):
    def ready():
        assert server.poll() is None, server.stderr.read()
        try:
            return httpx.get(f"http://127.0.0.1:{free}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    until(ready, every=0.1)


def test_the_pages_have_their_examples():
    assert [page for page, *_ in EXAMPLES] == ["docs/requests.md", *PAGES]


def test_the_examples_answer_as_their_pages_say(port):
    """One after another in one test: what a server has cached shows in its answers."""
    for _, command, answer in EXAMPLES:
        _answers(port, command, answer)


def _answers(port, command, answer):
    words = shlex.split(command.replace("\\\n", " "))
    url = next(word for word in words if word.startswith("localhost:8000"))
    body = words[words.index("-d") + 1]
    headers = dict([words[words.index("-H") + 1].split(": ")])
    response = httpx.post(f"http://{url.replace(':8000', f':{port}')}", content=body, headers=headers, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    shown = json.loads(answer)
    assert part(response.json(), shown) == approximately(shown)


def test_the_table_of_the_embedded_model_is_what_was_measured():
    page = (ROOT / "docs/lab/mini.md").read_text("utf-8")
    figures = json.loads((ROOT / "unprm/mini/weights/figures.json").read_text("utf-8"))
    assert f"| step AUROC | {figures['step_auroc']:.3f} |" in page
    assert f"| first-error F1 | {100 * figures['f1']:.1f} |" in page
    for strategy, share in figures["votes"].items():
        assert re.search(rf"\| {strategy} .*\| {100 * share['mean']:.1f} % ", page)
