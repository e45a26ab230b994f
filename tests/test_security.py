"""SECURITY.md names a test for each line that it claims to hold: they are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)
LINES = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]


def test_every_line_of_the_table_names_one() -> None:
    assert len(LINES) > 10
    assert all("::test_" in line for line in LINES)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
