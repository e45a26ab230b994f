"""Lays out what Zensical builds the site from: `python -m docs.site.stage DIRECTORY`.

The site has the tree of the repository: README.md and every file that its pages link to, each at its own path. So the
same relative links work on a code host and on the site. The API reference beside them comes from the app.
"""

import json
import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path

from pydantic import SecretStr

from server.app import create_app
from server.settings import Settings
from tests.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"^```.*?^```|`[^`]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")
_API = """\
# API reference

Every operation, with its fields, errors and examples. A running server has the same at `/docs`, with forms to try it.
The document is [openapi.json](api/openapi.json).

<link rel="stylesheet" href="api/swagger-ui.css">
<style>#swagger-ui .scheme-container { display: none }</style>
<div id="swagger-ui"></div>
<script src="api/swagger-ui-bundle.js"></script>
<script src="api/api.js"></script>
"""


def linked() -> set[Path]:
    """README.md and all files that relative links lead to from there; paths are relative to the repository."""
    found: set[Path] = set()
    waiting = {Path("README.md")}
    while waiting:
        page = waiting.pop()
        found.add(page)
        if page.suffix == ".md":
            text = _CODE.sub("", (ROOT / page).read_text("utf-8"))
            targets = {(ROOT / page.parent / link).resolve().relative_to(ROOT) for link in _LINK.findall(text)}
            waiting |= targets - found
    return found


def stage(directory: Path) -> None:
    """Replaces the directory by pages, files and configuration."""
    shutil.rmtree(directory, ignore_errors=True)
    for path in linked():
        (directory / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, directory / "pages" / path)
    docs = directory / "pages" / "docs"
    (docs / "api").mkdir()
    (docs / "api.md").write_text(_API, "utf-8")
    settings = Settings(upstream_url=["http://upstream"], admin_key=SecretStr("key"))  # with all routes
    document = create_app(settings, FakeEngine(), lambda _: FakeEngine()).openapi()
    (docs / "api" / "openapi.json").write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    for name in ("swagger-ui.css", "swagger-ui-bundle.js"):
        (docs / "api" / name).write_bytes((files("fastapi_swagger") / "resources" / name).read_bytes())
    site = Path(__file__).parent
    shutil.copyfile(site / "api.js", docs / "api" / "api.js")
    shutil.copyfile(site / "mkdocs.yml", directory / "mkdocs.yml")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
