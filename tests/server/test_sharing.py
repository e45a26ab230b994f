"""What callers share: threads, by turns."""

import asyncio
import threading
from functools import partial

import pytest

from server.lease import Admission, FairThreads, Lease
from tests.support import PATIENCE


def request(share: str) -> Lease:
    return Lease(Admission(max_body_bytes=1), share=share)


def test_the_next_turn_is_of_the_caller_and_the_request_that_had_least() -> None:
    ran: list[str] = []

    async def test() -> None:
        pool, gate = FairThreads(1), threading.Event()
        blocking = asyncio.create_task(pool.run(request("much"), 100, gate.wait))
        long, short, other = request("much"), request("much"), request("one")
        calls = [blocking]
        costs = (("long", long, 50), ("longer", long, 50), ("short", short, 1), ("other", other, 60))
        for name, lease, cost in costs:
            calls.append(asyncio.create_task(pool.run(lease, cost, partial(ran.append, name))))
        gone = asyncio.create_task(pool.run(other, 1, partial(ran.append, "gone")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*calls)
        pool.close()

    asyncio.run(test())
    assert ran == ["other", "long", "short", "longer"]


def test_a_call_raises_where_it_is_waited_for_and_its_thread_goes_on() -> None:
    async def test() -> None:
        pool = FairThreads(1)
        with pytest.raises(ZeroDivisionError):
            await pool.run(request(""), 1, lambda: 1 // 0)
        assert await pool.run(request(""), 1, lambda: 7) == 7
        pool.close()

    asyncio.run(test())


def test_a_call_that_is_cancelled_at_any_moment_leaves_its_thread_to_others() -> None:
    async def test() -> None:
        pool = FairThreads(1)
        for number in range(500):
            calls = [asyncio.create_task(pool.run(request(""), 1, int)) for _ in range(3)]
            for _ in range(number % 25):
                await asyncio.sleep(0)
            calls[1].cancel()
            await asyncio.wait(calls)
        async with asyncio.timeout(PATIENCE):
            assert await pool.run(request(""), 1, lambda: 7) == 7
        pool.close()

    asyncio.run(test())
