"""Comparing answers for many callers at once."""

import threading
import time

import pytest

from server import service
from tests.server.harness import Background, serving
from tests.support import until

DEADLINE = 4.0
SPELLINGS = [r"\sin({0}x)", r"2\sin(\frac{{{0}x}}{{2}})\cos(\frac{{{0}x}}{{2}})", r"\cos(\frac{{\pi}}{{2}}-{0}x)"]


def ballot(*answers: str) -> dict[str, object]:
    return {"solutions": [{"steps": ["a"], "step_scores": [0.5], "answer": answer} for answer in answers]}


def honest(number: int) -> dict[str, object]:
    """Three spellings of one answer against two votes for another: only mathematics elects the first."""
    return ballot(*(spelling.format(number) for spelling in SPELLINGS), "7", "7")


def test_waiting_for_a_comparer_takes_none_of_the_time_for_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_COMPARERS", 1)
    with serving(equivalence_deadline=DEADLINE) as server:
        until(lambda: server.post("/vote/majority", honest(3)).json()["answer"] != "7")  # the process is there
        late = server.metric("unprm_equivalence_timeouts_total")
        others = threading.Event()
        server.service._comparers._threads.submit(others.wait)  # what somebody else compares
        vote = Background(lambda: server.post("/vote/majority", honest(5)))
        until(lambda: server.metric("unprm_running_requests") > 0)
        time.sleep(DEADLINE + 1)
        others.set()
        assert vote.result().json()["candidates"][0]["members"] == [0, 1, 2]
        assert server.metric("unprm_equivalence_timeouts_total") == late
