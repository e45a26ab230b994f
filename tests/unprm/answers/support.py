"""What the tests of answers share."""

import json
import subprocess
import sys

import pytest
from hypothesis import settings

from tests.support import PATIENCE, ROOT, TEST_DATA


def rows(name):
    return [json.loads(line) for line in (TEST_DATA / "equivalence" / name).read_text("utf-8").splitlines()]


FACTS = rows("facts.jsonl")
REAL = rows("math_answers.jsonl")
NASTY = [row["input"] for row in rows("nasty_inputs.jsonl")]
SPELLINGS = [text for fact in FACTS for text in (fact["gold"], fact["pred"])]
SLOW = r"\sum_{a=1}^{1999} \sum_{b=1}^{1999} \sin(ab)"  # short, but far too much work
generated = settings(derandomize=True, deadline=None, max_examples=60)


def same(*groups):
    """A test of each group of equal spellings."""
    return pytest.mark.parametrize("spellings", groups, ids=lambda spellings: spellings[0])


def apart(*groups):
    """A test of each group of answers, no two of which are equal."""
    return pytest.mark.parametrize("different", groups, ids=lambda different: different[0])


def run_python(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
