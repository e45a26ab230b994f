"""The OpenAPI document of a server with a gateway."""

import json
from pathlib import Path
from typing import Any

from server.app import create_app
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.golden.kept import pretty

LONG = 100
"""Characters of JSON: what has fewer is always written."""


def document(_: Path) -> dict[str, str]:
    """The whole document, but for the package's version. A value like the last one of its name is not written again:
    operations share descriptions and examples of errors."""
    app = create_app(Settings(upstream_url="http://upstream"), FakeEngine())
    found = app.openapi()
    found["info"]["version"] = "0"
    return {"openapi.json": pretty(_once(found, {})) + "\n"}


def _once(value: Any, last: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_once(each, last) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, each in value.items():
        content = json.dumps(each)
        found[name] = "as the last" if len(content) > LONG and last.get(name) == content else _once(each, last)
        last[name] = content
    return found
