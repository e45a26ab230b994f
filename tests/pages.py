"""What the documentation shows: its requests and programs, and how answers are held against those shown."""

import re

import pytest

from tests.support import ROOT

PAGES = "docs/requests.md", "README.md", "docs/quickstart.md"
"""In this order: the first shows how many tokens were cached."""
_EXAMPLE = re.compile(r"```sh\n(curl [^`]*?)```\n[^`]*```json\n([^`]*?)```")
EXAMPLES = [(page, *found) for page in PAGES for found in _EXAMPLE.findall((ROOT / page).read_text("utf-8"))]
"""Page, command and answer."""
AGENT_PAGES = "docs/gateway.md", "docs/client.md", "docs/trajectories.md"
AGENTS = "".join((ROOT / page).read_text("utf-8") for page in AGENT_PAGES)
AGENTS_BLOCKS = re.findall(r"```(\w+)\n(.*?)```", AGENTS, re.DOTALL)
AGENTS_PROGRAMS = [block for language, block in AGENTS_BLOCKS if language == "python"]
PLUGS_PROGRAMS = {
    section.partition("\n")[0]: text
    for section in (ROOT / "docs/plugs.md").read_text("utf-8").split("\n## ")
    for text in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
}
"""The programs of docs/plugs.md by their sections."""


def approximately(value):
    """Numbers to a thousandth: processors differ in the last digits of a model's scores."""
    if isinstance(value, dict):
        return {key: approximately(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [approximately(inner) for inner in value]
    return pytest.approx(value, abs=1e-3) if isinstance(value, float) else value


def part(whole, like):
    """Of an answer, the fields that another has."""
    if isinstance(like, dict):
        return {key: part(whole[key], inner) for key, inner in like.items()}
    if isinstance(like, list):
        return [part(value, inner) for value, inner in zip(whole, like, strict=True)]
    return whole
