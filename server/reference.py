"""The API reference as a Markdown page, from the OpenAPI document, and the answers to its examples.

python -m server reference > docs/api.md
python -m server examples > server/routes/examples.json
"""

import json
import time
from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient

from unprm.engines.fake import FakeEngine
from unprm.models.load import load_engine
from unprm.votes.registry import VOTES

from .app import create_app
from .http.errors import TABLE
from .routes.examples import REQUESTS
from .settings import Settings

Json = dict[str, Any]

_HEAD = """\
# API reference

Made from the OpenAPI document by `unprm reference`; a running server shows it at `/docs`, with forms to try.
Bodies are JSON, unknown fields are refused. Every response carries `X-Request-ID`. Operations under `/v1` are there
with `--upstream-url` alone.
"""


def page() -> str:
    """All operations, then votes, schemas and errors, in Markdown."""
    settings = Settings(upstream_url="http://upstream")
    document = create_app(settings, FakeEngine()).openapi()
    votes, schemas = ("## Votes\n", *_votes(), ""), ("## Schemas\n", *_schemas(document))
    parts = [_HEAD, *_operations(document), *votes, *schemas, "## Errors\n", *_errors()]
    return "\n".join(parts).rstrip() + "\n"


def answers() -> str:
    """What a server with the embedded model answers to each example, by operation name, in JSON with a line for each;
    without times, and numbers in four digits."""
    found = {}
    with TestClient(create_app(Settings(), load_engine, clock=lambda: 0.0)) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.1)
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            for method, operation in methods.items():
                if "application/json" in operation["responses"]["200"]["content"]:
                    name = operation["operationId"]
                    found[name] = _rounded(client.request(method, path, json=REQUESTS.get(name)).json())
    lines = (f" {json.dumps(name)}: {json.dumps(answer, ensure_ascii=False)}" for name, answer in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_rounded, value))
    return round(value, 4) if isinstance(value, float) and value >= 1e-3 else value


def _operations(document: Json) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation.get('summary', '')}. {operation.get('description', '')}\n"
            if body := operation.get("requestBody"):
                content = body["content"]["application/json"]
                yield f"Request: {_type(content['schema'])}\n"
                yield from _example(content)
            answer = operation["responses"]["200"].get("content", {})
            for media, content in answer.items():
                yield f"Response: `{media}` {_type(content.get('schema', {}))}\n"
            codes = sorted(status for status in operation["responses"] if status != "200")
            yield f"Errors: {', '.join(codes)}\n"


def _example(content: Json) -> Iterator[str]:
    if example := content.get("example"):
        yield "```json\n" + json.dumps(example, indent=1, ensure_ascii=False) + "\n```\n"


def _votes() -> Iterator[str]:
    yield "| vote | elects | runs the PRM | take it when | settings |\n|---|---|---|---|---|"
    for vote in VOTES.values():
        settings = ", ".join(f"`{name}`" for name in vote.terms.model_fields)
        yield f"| `{vote.name}` | {vote.summary} | {vote.runs_prm} | {vote.take_when} | {settings} |"


def _schemas(document: Json) -> Iterator[str]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        yield f"{' '.join(schema.get('description', '').split())}\n"
        if properties := schema.get("properties"):
            required = set(schema.get("required", ()))
            yield "| field | type | |\n|---|---|---|"
            for field, member in properties.items():
                about = [member.get("description", ""), _default(member, field in required), *_bounds(member)]
                yield f"| `{field}` | {_type(member)} | {'; '.join(filter(None, about))} |"
            yield ""


def _default(schema: Json, required: bool) -> str:
    return "required" if required else f"default `{json.dumps(schema['default'])}`" if "default" in schema else ""


def _bounds(schema: Json) -> Iterator[str]:
    for name, sign in (("minimum", "≥"), ("maximum", "≤"), ("exclusiveMinimum", ">")):
        if name in schema:
            yield f"{sign} {schema[name]}"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, options)))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _errors() -> Iterator[str]:
    yield "| code | status | |\n|---|--:|---|"
    for code, row in TABLE.items():
        yield f"| `{code}` | {row.status} | {row.title} |"
