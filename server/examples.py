"""The answers to the examples of the OpenAPI document.

python -m server examples > server/routes/examples.json
"""

import json
import time
from typing import Any

from fastapi.testclient import TestClient

from unprm.models.load import load_engine

from .app import create_app
from .routes.openapi import REQUESTS
from .settings import Settings


def answers() -> str:
    """What a server with the embedded model answers to each example, by operation name, in JSON with a line for each;
    without times, and with numbers to four places, as processors differ in the last digits."""
    answers = {}
    with TestClient(create_app(Settings(), load_engine, clock=lambda: 0.0)) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.1)
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            for method, operation in methods.items():
                if "application/json" in operation["responses"]["200"]["content"]:
                    name = operation["operationId"]
                    answers[name] = _rounded(client.request(method, path, json=REQUESTS.get(name)).json())
    lines = (f" {json.dumps(name)}: {json.dumps(answer, ensure_ascii=False)}" for name, answer in answers.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_rounded, value))
    return round(value, 4) if isinstance(value, float) else value
