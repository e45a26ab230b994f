"""How many calls of a client are in flight at a time: as many as are made."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tests.support import PATIENCE, asynchronous
from unprm_client import AsyncClient, Client, ClientError

CALLS = 120
"""More than the connections that httpx allows by default."""
REFUSAL = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Waiting:
    """A server that answers nobody before all have asked."""

    def __init__(self) -> None:
        self.all_asked = asyncio.Barrier(CALLS)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await self.all_asked.wait()
        writer.write(REFUSAL)
        await writer.drain()
        writer.close()


@asynchronous
async def test_the_asynchronous_client_makes_all_calls_at_a_time() -> None:
    async with await asyncio.start_server(Waiting().answer, "127.0.0.1", 0, backlog=CALLS) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}", timeout=PATIENCE / 2, attempts=1) as client:
            calls = [client.score_steps("What?", ["x"]) for _ in range(CALLS)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all("status 404" in str(outcome) for outcome in outcomes)


@asynchronous
async def test_the_client_makes_as_many_calls_as_its_callers_at_a_time() -> None:
    def call(_: int) -> str:
        try:
            client.score_steps("What?", ["x"])
        except ClientError as error:
            return str(error)
        raise AssertionError("the server refuses")

    async with await asyncio.start_server(Waiting().answer, "127.0.0.1", 0, backlog=CALLS) as server:
        port = server.sockets[0].getsockname()[1]
        with (
            Client(f"http://127.0.0.1:{port}", timeout=PATIENCE / 2, attempts=1) as client,
            ThreadPoolExecutor(CALLS) as pool,
        ):
            loop = asyncio.get_running_loop()
            outcomes = await asyncio.gather(*(loop.run_in_executor(pool, call, number) for number in range(CALLS)))
    assert all("status 404" in outcome for outcome in outcomes)
