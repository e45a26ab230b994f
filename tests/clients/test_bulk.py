"""Many calls: in order, a few at a time, and one that fails keeps no other from its answer."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.harness import PROBLEM, Running, boxed
from tests.support import PATIENCE, until
from unprm_client import AsyncClient, Client, errors


def many(count: int) -> list[dict[str, Any]]:
    return [{"problem": PROBLEM, "solutions": [boxed(number)]} for number in range(count)]


def test_votes_come_in_order(server: Running) -> None:
    with Client(server.url) as client:
        answers = [vote.answer for vote in client.vote_all(many(50), "majority") if not isinstance(vote, Exception)]
    assert answers == [str(number) for number in range(50)]


def test_asynchronous_votes_come_in_order(server: Running) -> None:
    async def run() -> list[Any]:
        async with AsyncClient(server.url) as client:
            return [outcome async for outcome in client.vote_all(many(50), "majority")]

    assert [vote.answer for vote in asyncio.run(run())] == [str(number) for number in range(50)]


def test_an_error_takes_its_place(server: Running) -> None:
    requests = [
        *many(1),
        {"problem": PROBLEM, "solutions": []},
        {"solutions": ["I can't tell."]},
        {"solution": []},
        *many(1),
    ]

    async def run() -> list[Any]:
        async with AsyncClient(server.url) as client:
            return [outcome async for outcome in client.vote_all(requests, "hmr")]

    with Client(server.url) as client:
        for outcomes in (list(client.vote_all(requests, "hmr")), asyncio.run(run())):
            kinds = [type(outcome).__name__ for outcome in outcomes]
            assert kinds == ["VoteResponse", "InvalidRequest", "NoAnswer", "InvalidRequest", "VoteResponse"]
            assert "/solution: is not a field here; expected one of " in str(outcomes[3])


def test_scores_and_comparisons_of_many(server: Running) -> None:
    with Client(server.url) as client:
        (scored,) = client.score_all(many(1))
        (compared,) = client.compare_all(many(1))
    assert not isinstance(scored, Exception)
    assert not isinstance(compared, Exception)
    assert scored.solutions[0].answer == compared.solutions[0].answer == "0"


class Busy:
    """A server that answers none alone; `calls`: how many it got; `most`: how many at the same time at most."""

    def __init__(self) -> None:
        self.running = self.most = self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
        until(lambda: self.most > 1)
        with self._lock:
            self.running -= 1
        return httpx.Response(422, json={})


def endless() -> Iterator[dict[str, Any]]:
    yield from itertools.cycle(many(1))


def test_asks_a_few_at_a_time_and_no_more_than_is_read() -> None:
    busy = Busy()
    with Client(transport=httpx.MockTransport(busy)) as client:
        outcomes = client.vote_all(endless(), "prm", concurrency=3)
        assert all(isinstance(next(outcomes), errors.UnexpectedResponse) for _ in range(20))
        outcomes.close()  # type: ignore[attr-defined]
    assert 1 < busy.most <= 3
    assert busy.calls <= 20 + 4 * 3


def test_asynchronously_as_well() -> None:
    running = most = calls = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal running, most, calls
        calls, running = calls + 1, running + 1
        most = max(most, running)
        while most < 2:
            await asyncio.sleep(0.001)
        running -= 1
        return httpx.Response(422, json={})

    async def run() -> None:
        async with AsyncClient(transport=httpx.MockTransport(answer)) as client:
            outcomes = client.vote_all(endless(), "prm", concurrency=3)
            for _ in range(20):
                assert isinstance(await anext(outcomes), errors.UnexpectedResponse)
            await outcomes.aclose()  # type: ignore[attr-defined]

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert 1 < most <= 3
    assert calls <= 20 + 4 * 3


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_concurrency_of_none_is_refused(wrong: int) -> None:
    with Client() as client, pytest.raises(ValueError, match="must be greater than 0"):
        list(client.vote_all(many(1), "prm", concurrency=wrong))
