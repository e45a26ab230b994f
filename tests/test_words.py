"""Turns of phrase that readers had to read three times stay out of the documentation."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT

PAGES = sorted([*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")), *ROOT.glob("docs/**/*.md")])
BETTER = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer|better|worse|more|less)": "is not a …",
    r"; there (?:is|are)\b": "; expected one of …",
    r"\ball else\b|\bthose (?:that|with|who|which|left|without|in|on)\b|\b(?:if|as) all are\b": "the noun again",
    r"\bsettings of votes\b": "vote settings",
    r"\b(?:answers|questions|problems|solutions) of (?:GSM8K|MATH|MAWPS|SVAMP|ProcessBench)\b": "… to, … from, … in",
    r"\b(?:say|tell)s? nothing\b|\bknows (?:of|more|less|least|nothing|a little)\b": "measures, shows",
    r"\b(?:take|took|bring)s? no\b|\bbrings\b|\bholds? (?:the|a) (?:wrong|right)\b": "needs, allows, contains",
    r"\breasoners?\b": "generator, or policy",
    r"\bby lot\b": "at random",
    r"\bknown from before\b": "cached",
    r"\ba body's pace\b": "upload rate",
    r"\*allowed\*": "ideal",
}
"""By a pattern, what says the same better."""
_CODE = re.compile(r"^```.*?^```|`[^`]*`|<!--.*?-->|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def found(text: str) -> list[tuple[str, str]]:
    """What a text has of these, outside its code, and what to write in its place."""
    prose = " ".join(_CODE.sub("`", text).split())
    return [
        (hit[0], better) for pattern, better in BETTER.items() for hit in re.finditer(pattern, prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_them(page: Path) -> None:
    assert found(page.read_text("utf-8")) == []


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
    ],
)
def test_an_old_sentence_is_found(old: str) -> None:
    assert found(old)
