"""`unprm bench http`: a load test of one's own server."""

import re
from itertools import count
from typing import Any

from typer.testing import CliRunner

from tests.fake_engine import FakeEngine, hashed
from tests.server.harness import serving
from unprm.engines.byte_format import texts
from unprm.types import Encoded
from unprm_client.__main__ import app
from unprm_client.bench import SOLUTIONS


def run(url: str, clients: int) -> Any:
    words = ["bench", "http", url, "--clients", str(clients), "--seconds", "0.01"]
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, words)


def rows(output: str) -> list[list[str]]:
    """The cells of each row of the table; its head is the first."""
    lines = [re.split(r"[┃│]", line)[1:-1] for line in output.splitlines() if "┃" in line or "│" in line]
    return [[cell.strip() for cell in line] for line in lines]


def test_each_number_of_clients_has_a_row() -> None:
    engine = FakeEngine()
    with serving(engine) as running:
        done = run(running.url, 3)
    head, *levels = rows(done.output)
    assert (done.exit_code, head) == (0, ["clients", "requests/s", "p50 ms", "p95 ms", "errors"])
    assert [level[0] for level in levels] == ["1", "2", "3"]
    for _, rate, half, most, errors in levels:
        assert float(rate) > 0
        assert 0 < float(half) <= float(most)
        assert errors == "0"
    assert re.search(r"saturated by (1 client|[23] clients)\n$", done.output)
    asked = [texts(item) for batch in engine.batches for item in batch]
    asked = [(problem, *steps) for problem, steps in asked if problem.startswith("Ana")]
    assert len({problem for problem, *_ in asked}) * SOLUTIONS == len(asked) == len(set(asked))


def test_an_error_is_counted_by_its_status() -> None:
    scored = count()

    def scores(item: Encoded) -> tuple[float, ...]:
        if next(scored) == SOLUTIONS:  # the first of the second request
            raise RuntimeError("broken")
        return hashed(item)

    with serving(FakeEngine(scores=scores)) as running:
        done = run(running.url, 2)
    assert done.exit_code == 0
    assert re.fullmatch("0 [12] × 503", " ".join(sorted(row[-1] for row in rows(done.output)[1:])))


def test_it_ends_where_the_first_client_gets_no_answer() -> None:
    with serving(api_key="key") as running:
        refused = run(running.url, 2)
    away = run("http://127.0.0.1:1", 2)
    for ended, reason in ((refused, "unauthorized: "), (away, "the server at http://127.0.0.1:1 ")):
        assert (ended.exit_code, rows(ended.output)) == (1, [])
        assert reason in str(ended.exception)
