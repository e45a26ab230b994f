"""The API reference as a Markdown page, from the OpenAPI document, and the answers to its examples.

python -m server reference > docs/api.md
python -m server examples > server/routes/examples.json
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient

from unprm.engines.fake import FakeEngine
from unprm.models.load import load_engine

from .app import create_app
from .errors import TABLE
from .routes.openapi import REQUESTS
from .settings import Settings

Json = dict[str, Any]

_LIMITS = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">"}

_HEAD = """\
# API reference

Made from the OpenAPI document by `unprm reference`; `/docs` on a running server has the same, with forms to try. Bodies
are JSON; unknown fields are refused. Responses carry `X-Request-ID`. Operations under `/v1` need `--upstream-url`.
[agents.md](agents.md#addresses-of-other-servers) has the addresses of other servers, such as vLLM's."""


def page() -> str:
    """All operations, then schemas and errors, in Markdown."""
    document = create_app(Settings(upstream_url="http://upstream"), FakeEngine()).openapi()
    sections = {"Operations": _operations, "Schemas": _schemas, "Errors": _errors}
    blocks = (block for title, made in sections.items() for block in (f"## {title}", *made(document)))
    return "\n\n".join((_HEAD, *blocks)) + "\n"


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
    yield "\n".join(
        f"- `{method.upper()} {path}`{_bodies(operation)}: {_about(operation)}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )


def _bodies(operation: Json) -> str:
    bodies = operation.get("requestBody", {}), operation["responses"]["200"]
    schemas = [media["schema"] for body in bodies for media in body.get("content", {}).values()]
    named = [_type(schema) for schema in schemas if "$ref" in schema]
    return f" ({' → '.join(named)})" if named else ""


def _about(operation: Json) -> str:
    summary = "" if operation["summary"].istitle() else f"{operation['summary']}. "  # a title is only the name
    return " ".join(f"{summary}{operation.get('description', '')}".split())


def _schemas(document: Json) -> Iterator[str]:
    """In the order of their use; fields that are the same in an earlier one are only named."""
    yield "`*` marks required fields; leave out others for their default."
    earlier: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(re.findall(r'/schemas/(\w+)"', json.dumps(document))):
        schema = document["components"]["schemas"][name]
        fields = {field: _field(field, schema) for field in schema["properties"]}
        same = {other: dict(fields.items() & theirs.items()) for other, theirs in earlier.items()}
        base = max(same, key=lambda other: (same[other] == earlier[other], len(same[other])), default="")
        shared = same[base] if base and len(same[base]) > 1 else {}
        yield f"### {name}\n\n{' '.join(schema['description'].split())}"
        if shared:
            names = ", ".join(f"`{field}`" for field in fields if field in shared)
            yield f"{'All fields' if shared == earlier[base] else names} of [{base}](#{base.lower()})."
        unshared = [line for field, line in fields.items() if field not in shared]
        bare, described = ([line for line in unshared if (": " in line) == about] for about in (False, True))
        yield from filter(None, [", ".join(bare), "\n".join(f"- {line}" for line in described)])
        earlier[name] = fields


def _field(field: str, schema: Json) -> str:
    member, required = schema["properties"][field], field in schema.get("required", ())
    kind = _type(member) if required else _type(member).removesuffix(" or null")
    about = f": {member['description']}" if "description" in member else ""
    default = f", default `{json.dumps(member['default'])}`" if member.get("default") and "$ref" not in member else ""
    limits = (f", {sign} {member[name]:,.12g}" for name, sign in _LIMITS.items() if name in member)
    return f"`{field}`{'*' * required} ({kind}{default}{''.join(limits)}){about}"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, options)))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        items = _type(schema.get("items", {}))
        return f"list of ({items})" if " or " in items else f"list of {items}"
    return str(schema.get("type", "any"))


def _errors(_: Json) -> Iterator[str]:
    yield "\n".join(f"- {row.status} `{code}`: {row.title}" for code, row in TABLE.items())
