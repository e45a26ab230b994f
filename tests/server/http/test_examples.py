"""The examples in the documentation are what the server answers with the embedded model."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import ANY

import pytest

from server.routes import openapi
from tests.server.harness import Running, serving
from tests.support import until


@pytest.fixture(scope="module")
def mini() -> Iterator[Running]:
    from unprm.models.load import load_engine

    with serving(load_engine) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        yield running


def about(value: Any) -> Any:
    """With numbers to a thousandth, because processors differ in the last digits, and times of any length."""
    if isinstance(value, dict):
        return {key: ANY if key.endswith("_ms") else about(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [about(inner) for inner in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


def test_every_example_is_answered_as_documented(mini: Running) -> None:
    checked = 0
    for path, methods in mini.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] == "metrics":
                continue
            expected = operation["responses"]["200"]["content"]["application/json"]["example"]
            request = openapi.REQUESTS.get(operation["operationId"])
            assert mini.http.request(method, path, json=request).json() == about(expected), path
            checked += 1
    assert checked == len(openapi.REQUESTS) + 3
