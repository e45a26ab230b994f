"""SECURITY.md and the table of faults name a test for each line that they claim to hold: they are there."""

import ast
import re

import pytest

from tests.support import ROOT

TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
FAULTS = (ROOT / "docs" / "reliability.md").read_text("utf-8").partition("## Faults")[2].partition("\n## ")[0]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT + FAULTS)
LINES = [line for text in (TEXT, FAULTS) for line in [row for row in text.splitlines() if row.startswith("| ")][1:]]


def test_every_line_of_the_table_names_one() -> None:
    assert len(LINES) > 10
    assert all("::test_" in line for line in LINES)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
