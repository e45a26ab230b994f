"""Inputs on which other projects went wrong in public (tests/data/answers): what is extracted, and what is equal."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support import TEST_DATA
from unprm.answers.equivalence import Equivalence
from unprm.answers.extraction import extract

ROWS = [json.loads(row) for row in (TEST_DATA / "answers" / "public_failures.jsonl").read_text("utf-8").splitlines()]
MODE = re.compile(r"\[(choice|last_number)\] ")

KNOWN: dict[str, str] = {
    "[last_number] Thus she has 18 apples left in 2 bags.": "this mode takes the last number, here 2, by definition",
    "Answer: 1.8k": "k after a number is not read as thousand",
}
"""Texts whose answer is not found, and why."""

KNOWN_PAIRS: dict[tuple[str, ...], str] = {
    ("52_8", "52"): "101_2 must not be 101, and nothing tells the two apart",
    ("\\sum_{k=1}^n k", "\\frac{n(n+1)}{2}"): "sums are compared as written",
    ("\\prod_{k=1}^n k", "n!"): "products over an index are compared as written",
    ("n!", "\\Gamma(n+1)"): "the gamma function is not read",
    ("5\\operatorname{cis}(90^\\circ)", "5i"): "cis is not read",
    ("y=Ce^{2x}", "y=Ae^{2x}"): "only an added constant may have any name",
    ("\\frac{\\pi}{4}+k\\pi", "\\frac{\\pi}{4}+n\\pi"): "nothing says that k and n are only counted with",
    ("x\\equiv 3 \\pmod 7", "3"): "a congruence has more solutions than 3",
    ("IR", "I R"): "two capital letters are a name, such as that of a segment",
}
"""Pairs that are judged wrongly, and why."""


def cases(mode: str, known: Mapping[Any, str]) -> Iterator[object]:
    """Rows of a mode. One that `known` lists has to fail; one that a convention explains is skipped."""
    for row in ROWS:
        if row["mode"] == mode:
            key = tuple(row["input"]) if mode == "pair" else row["input"]
            reason = known.get(key)
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            if "note" in row:
                marks = [pytest.mark.skip(reason=row["note"])]
            yield pytest.param(row, marks=marks, id=row["kind"])


@pytest.mark.parametrize("row", list(cases("extract", KNOWN)))
def test_an_answer_is_extracted(row: dict[str, str], answers: Equivalence) -> None:
    named = MODE.match(row["input"])
    text = row["input"].removeprefix(named[0]) if named else row["input"]
    found = extract(text, named[1] if named else "auto")  # type: ignore[arg-type]
    if row["expected"] is None or row["expected"].startswith("none, or"):
        assert found is None
    else:
        assert found is not None
        assert answers.equal(found, row["expected"])


@pytest.mark.parametrize("row", list(cases("pair", KNOWN_PAIRS)))
def test_a_pair_is_equal_or_different(row: dict[str, str], answers: Equivalence) -> None:
    assert answers.equal(*row["input"]) == (row["expected"] == "equal")
