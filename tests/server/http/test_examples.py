"""The examples of the OpenAPI document are what the server answers with the embedded model."""

import json

from server.examples import answers
from server.routes import openapi
from tests.support import ROOT


def test_the_examples_are_what_the_server_answers() -> None:
    made = answers()
    assert made == (ROOT / "server" / "routes" / "examples.json").read_text("utf-8")
    assert json.loads(made).keys() >= openapi.REQUESTS.keys() - {"feedback"}, "which only a server with a journal has"
