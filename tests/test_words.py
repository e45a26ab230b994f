"""Turns of phrase that readers had to read three times stay out of the documentation, the help, the API's descriptions,
the messages and the page."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")), *ROOT.glob("docs/**/*.md")])
COINED = {
    r"\breasoners?\b": "generator, or policy",
    r"\bby lot\b": "at random",
    r"\bknown from before\b": "cached",
    r"\ba body's pace\b": "upload rate",
    r"\*allowed\*": "ideal",
    r"\b(?:is|are|was|were) cut\b(?! off| into)": "truncated",
    r"\baddress of (?:a|the) (?:vLLM )?server\b|\b(?:its|their) own address(?:es)?\b": "URL, endpoint",
}
"""By a pattern, the field's term for what it names."""
BETTER = COINED | {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer|better|worse|more|less)": "is not a …",
    r"; there (?:is|are)\b": "; expected one of …",
    r"\ball else\b|\bthose (?:that|with|who|which|left|without|in|on)\b|\b(?:if|as) all are\b": "the noun again",
    r"\bsettings of votes\b": "vote settings",
    r"\b(?:answers|questions|problems|solutions) of (?:GSM8K|MATH|MAWPS|SVAMP|ProcessBench)\b": "… to, … from, … in",
    r"\b(?:say|tell)s? nothing\b|\bknows (?:of|more|less|least|nothing|a little)\b": "measures, shows",
    r"\b(?:take|took|bring)s? no\b|\bbrings\b|\bholds? (?:the|a) (?:wrong|right)\b": "needs, allows, contains",
}
"""By a pattern, what says the same better."""
KEPT = ROOT / "tests/golden/kept"
_CODE = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def found(text: str, better: dict[str, str] = BETTER) -> list[tuple[str, str]]:
    """What a text has of these, outside its code, and what to write in its place."""
    prose = " ".join(_CODE.sub("`", text).split())
    return [(hit[0], instead) for pattern, instead in better.items() for hit in re.finditer(pattern, prose, re.I)]


def strings(value: Any) -> Iterator[str]:
    """All texts within a JSON value."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(each)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_them(page: Path) -> None:
    assert found(page.read_text("utf-8")) == []


def test_the_help_has_none_of_them() -> None:
    for file in sorted(KEPT.glob("usage/*.txt")):
        assert found(file.read_text("utf-8")) == [], file.name


def test_the_api_s_descriptions_have_none_of_them() -> None:
    texts = list(strings(json.loads((KEPT / "document/openapi.json").read_text("utf-8"))))
    assert len(texts) > 1000
    assert [hit for text in texts for hit in found(text)] == []


@pytest.mark.parametrize("package", ["unprm", "server", "training", "clients", "research", "benchmarks"])
def test_messages_and_docstrings_name_things_as_the_field_does(package: str) -> None:
    hits = {
        f"{file.relative_to(ROOT)}:{node.lineno}": coined
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if (coined := found(node.value, COINED))
    }
    assert hits == {}


def test_the_page_names_things_as_the_field_does() -> None:
    for file in [*ROOT.glob("server/page/files/*.js"), *ROOT.glob("server/page/files/*.html")]:
        assert found(file.read_text("utf-8"), COINED) == [], file.name


@pytest.mark.parametrize(
    "old",
    [
        "Mean surprisal, which is no length, rises most at the first error.",
        "A text written without tools is a solution, all else a trajectory.",
        "The second row is about the answers of those that accept any.",
        "A calibration is for its PRM, its aggregate and its settings of votes.",
        "the wrong of 661 problems of GSM8K",
        "On GSM8K the PRM knows a little that length and place don't.",
        "Requests that may call tools\ntake no `risk`.",
        "the reasoner has 23 GB",
        "questions drawn by lot",
        "213 tokens run, 337 known from before",
        "the messages that were cut, by index",
        "each with the same result as at its own address",
        "Address of the vLLM server",
    ],
)
def test_an_old_sentence_is_found(old: str) -> None:
    assert found(old)
