"""The document that the server gives of itself: complete, right, and kept to under generated requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from server.app import create_app
from server.problem_details import TABLE
from server.routes import openapi
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.server.examples import ELSEWHERE
from tests.server.harness import Running, serving

EXPECTED = 100
"""Generated requests to an operation with a body, at least."""

DOCUMENT = create_app(Settings(), FakeEngine()).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def sent() -> Iterator[list[str]]:
    """The operations that requests were generated for; enough of each, at the end."""
    operations: list[str] = []
    yield operations
    counts = Counter(name for name in operations if name.startswith("POST "))
    assert all(count >= EXPECTED for count in counts.values()), counts


def _generated(operation_id: str) -> Callable[..., None]:
    """A test that sends generated requests to an operation and holds the answers against the document."""

    @schema.include(operation_id=operation_id).parametrize()
    @settings(
        max_examples=60,  # beside those at the limits of every field, several hundred
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def test(case: schemathesis.Case[Any], server: Running, sent: list[str]) -> None:
        if _is_short(case.headers.get("X-Request-Timeout")):
            case.headers["X-Request-Timeout"] = "10"  # less may rightly end in 504
        sent.append(case.operation.label)
        # what the document can't say, that exactly one of text and steps is given, makes some valid data refused
        case.call_and_validate(server.url, excluded_checks=[positive_data_acceptance])

    return test  # type: ignore[no-any-return]


# a name for each, by which the processes that share the tests know it; one for all operations that take the same body,
# as some votes do: test_fuzz.py sends bodies to every one
_by_body = {
    str(operation.get("requestBody", operation["operationId"])): operation["operationId"]
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
}
for _id in _by_body.values():
    globals()[f"test_generated_requests_to_{_id}_get_what_is_documented"] = _generated(_id)


def _is_short(seconds: object) -> bool:
    try:
        return 0 < float(str(seconds)) < 10
    except ValueError:
        return False


@pytest.fixture(scope="module")
def document(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_every_operation_has_an_example_and_problems_as_problem_json(document: dict[str, Any]) -> None:
    names = set()
    for method, _, operation in operations(document):
        names.add(operation["operationId"])
        assert operation["summary"]
        assert operation["description"]
        if method == "post":
            assert "example" in operation["requestBody"]["content"]["application/json"]
        for status, response in operation["responses"].items():
            (media_type,) = response["content"]
            content = response["content"][media_type]
            if status == "200":
                assert "example" in content
                continue
            assert media_type == "application/problem+json"
            assert content["schema"] == {"$ref": "#/components/schemas/ProblemDetails"}
            assert {TABLE[code].status for code in content["examples"]} == {int(status)}
    assert names >= {*openapi.EXAMPLES["requests"], "healthz", "readyz", "model", "metrics"} - ELSEWHERE


def test_every_field_has_a_description_and_none_is_described_twice(document: dict[str, Any]) -> None:
    app = create_app(Settings(upstream_url="http://upstream"), FakeEngine())
    schemas = document["components"]["schemas"] | app.openapi()["components"]["schemas"]
    fields = {(name, field): its for name, each in schemas.items() for field, its in each.get("properties", {}).items()}
    assert [name for name, its in fields.items() if not its["description"]] == []
    names = {field for _, field in fields} | {f"{name}.{field}" for name, field in fields}
    assert openapi.FIELDS.keys() <= names


def test_every_code_that_an_operation_can_answer_is_documented(document: dict[str, Any]) -> None:
    documented = {
        code
        for _, _, operation in operations(document)
        for response in operation["responses"].values()
        for content in response["content"].values()
        for code in content.get("examples", {})
    }
    of_the_gateway = {"upstream_refused", "upstream_failed"}  # which this server has none of
    assert documented == set(TABLE) - {"not_found", "method_not_allowed"} - of_the_gateway


def test_the_document_is_written_once() -> None:
    with serving() as running:
        first = running.get("/openapi.json")
        assert first.json() == DOCUMENT
        running.app.openapi_schema = {}
        assert running.get("/openapi.json").content == first.content
        assert running.http.head("/openapi.json").headers["content-length"] == str(len(first.content))
