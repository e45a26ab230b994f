"""The examples of the OpenAPI document are what the server answers with the embedded model."""

from server.routes.openapi import EXAMPLES
from tests.server.examples import FILE, examples


def test_the_examples_are_what_the_server_answers() -> None:
    assert examples() == FILE.read_text("utf-8")
    requested = EXAMPLES["requests"].keys() - {"feedback"}  # which only a server with a journal has
    assert EXAMPLES["responses"].keys() >= requested
