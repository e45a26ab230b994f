"""Ends the server that tests of the gateway share."""

from collections.abc import Iterator

import pytest

from tests.server.gateway.harness import SHARED


@pytest.fixture(scope="session", autouse=True)
def _shared() -> Iterator[None]:
    with SHARED:
        yield
