"""Comparing answers for many callers at once."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from server import service
from server.slots import Slots
from tests.server.harness import Background, serving, until

DEADLINE = 0.5
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
        server.service._comparers.submit(others.wait)  # what somebody else compares
        vote = Background(lambda: server.post("/vote/majority", honest(5)))
        until(lambda: server.metric("unprm_running_requests") > 0)
        time.sleep(2 * DEADLINE)
        others.set()
        assert vote.result().json()["candidates"][0]["members"] == [0, 1, 2]
        assert server.metric("unprm_equivalence_timeouts_total") == late


def test_slots_go_around_among_callers() -> None:
    """Who has little at work goes first, and who gave up takes no slot."""
    done: list[str] = []
    gate = threading.Event()

    async def run() -> None:
        slots = Slots(executor, 1)
        first = asyncio.create_task(slots.run("flood", gate.wait))
        names = ["flood"] * 4 + ["a", "b", "gone", "a"]
        tasks = [asyncio.create_task(slots.run(name, lambda name=name: done.append(name))) for name in names]
        await asyncio.sleep(0)
        tasks[6].cancel()
        gate.set()
        await asyncio.gather(first, *tasks, return_exceptions=True)
        assert await slots.run("later", lambda: 5) == 5

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(run())
    assert done == ["flood", "a", "b", "flood", "a", "flood", "flood"]


def test_work_that_fails_or_that_nobody_waits_for_frees_its_slot() -> None:
    started, gate = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        gate.wait()

    async def run() -> None:
        slots = Slots(executor, 1)
        left = asyncio.create_task(slots.run("a", block))
        await asyncio.to_thread(started.wait)
        left.cancel()
        next_one = asyncio.create_task(slots.run("b", lambda: 1 / 0))
        await asyncio.sleep(0.05)
        assert not next_one.done()  # the thread is still at work for the first
        gate.set()
        with pytest.raises(ZeroDivisionError):
            await next_one
        assert await slots.run("c", lambda: 7) == 7

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(run())
