"""Odd bodies on every route: none is a fault of the server's."""

from collections.abc import Iterator

import pytest

from tests.server import fuzz
from tests.server.harness import Running


@pytest.fixture(scope="module")
def target() -> Iterator[Running]:
    with fuzz.target() as server:
        yield server


def test_every_route_with_a_body_has_bodies(target: Running) -> None:
    assert set(fuzz.routes(target)) <= fuzz.BODIES.keys()


@pytest.mark.parametrize("path", fuzz.BODIES)
def test_no_body_is_a_fault_of_the_server(target: Running, path: str) -> None:
    assert fuzz.attack(target, path, 0, 40)
