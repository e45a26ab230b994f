"""Votes on which other projects went wrong in public (tests/data/answers)."""

import json
from typing import Any

import pytest

from tests.server.harness import Running
from tests.support import TEST_DATA
from unprm.answers.equivalence import Equivalence

ROWS = [json.loads(row) for row in (TEST_DATA / "answers" / "public_failures.jsonl").read_text("utf-8").splitlines()]
VOTES = [row for row in ROWS if row["mode"] == "vote"]

KNOWN: dict[str, str] = {
    "tuple given in the other order": "(y,x)=(1,2) has two votes too, and comes first",
}
"""Kinds of votes that elect another answer, and why."""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            marks=[pytest.mark.xfail(strict=True, reason=KNOWN[row["kind"]])] if row["kind"] in KNOWN else [],
            id=row["kind"],
        )
        for row in VOTES
    ],
)
def test_the_answer_meant_is_elected(row: dict[str, Any], server: Running) -> None:
    path, extraction, texts = row["input"]
    solutions = [
        {"steps": [text], "step_scores": [0.9 - 0.1 * place], "confidence": 0.9} for place, text in enumerate(texts)
    ]
    answered = server.post(path, {"problem": "p", "extraction": extraction, "solutions": solutions})
    assert answered.status_code == 200, answered.text
    equivalence = Equivalence(deadline=30)
    assert equivalence.equal(answered.json()["answer"], row["expected"])
