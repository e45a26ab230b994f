"""The thread for blocking calls."""

import asyncio
import threading

import pytest

from tests.support import asynchronous, until
from unprm.engines.model_queue import Worker


@asynchronous
async def test_runs_calls_in_order_in_one_thread_of_its_own() -> None:
    worker = Worker("own")
    names = await asyncio.gather(*(worker.call(lambda: threading.current_thread().name) for _ in range(3)))
    assert names == ["own"] * 3
    worker.close()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ValueError, ValueError), (StopIteration, RuntimeError), (SystemExit, SystemExit)],
)
@asynchronous
async def test_what_a_call_raises_reaches_the_caller_and_the_thread_goes_on(
    raised: type[BaseException], expected: type[BaseException]
) -> None:
    async def caught(worker: Worker) -> type[BaseException] | None:
        def fail() -> None:
            raise raised

        try:
            await worker.call(fail)
        except BaseException as error:
            return type(error)
        return None

    worker = Worker("own")
    assert await caught(worker) is expected
    assert await worker.call(lambda: 7) == 7
    worker.close()


@asynchronous
async def test_a_caller_who_leaves_is_not_missed() -> None:
    worker, gate = Worker("own"), threading.Event()
    leaving = asyncio.create_task(worker.call(gate.wait))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert worker.busy
    gate.set()
    assert await worker.call(lambda: 7) == 7
    while worker.busy:
        await asyncio.sleep(0.001)
    worker.close()


def test_a_call_may_outlive_its_loop() -> None:
    gate = threading.Event()

    async def test() -> None:
        worker = Worker("outliving")
        leaving = asyncio.create_task(worker.call(gate.wait))
        await asyncio.sleep(0)
        worker.close()
        leaving.cancel()

    asyncio.run(test())
    gate.set()
    until(lambda: all(thread.name != "outliving" for thread in threading.enumerate()))
