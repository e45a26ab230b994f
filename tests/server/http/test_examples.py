"""The examples of the OpenAPI document are what the server answers with the embedded model."""

from server.routes.openapi import EXAMPLES
from tests.server.examples import ELSEWHERE, FILE, examples


def test_the_examples_are_what_the_server_answers() -> None:
    assert examples() == FILE.read_text("utf-8")
    assert EXAMPLES["responses"].keys() >= EXAMPLES["requests"].keys() - ELSEWHERE
