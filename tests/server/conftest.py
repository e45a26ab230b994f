"""Servers for the tests of the HTTP edge."""

from collections.abc import Iterator

import pytest

from tests.fake_engine import FakeEngine
from tests.server.harness import Running, serving


@pytest.fixture(scope="session")
def engine() -> FakeEngine:
    """The engine of `server`."""
    return FakeEngine(max_tokens=2048)


@pytest.fixture(scope="session")
def server(engine: FakeEngine) -> Iterator[Running]:
    """A server that tests share and leave as it was. Its clock stands still: equal requests have equal responses."""
    with serving(engine, clock=lambda: 0.0) as running:
        yield running
