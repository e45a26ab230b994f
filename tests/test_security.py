"""Each asset in SECURITY.md and each fault in docs/operations.md has tests, which `tests/data/claims.toml` names."""

import ast
import tomllib

import pytest

from tests.support import ROOT, TEST_DATA, tables

CLAIMS = tomllib.loads((TEST_DATA / "claims.toml").read_text("utf-8"))
NAMED = [name.split("::") for kind in CLAIMS.values() for names in kind.values() for name in names]


@pytest.mark.parametrize(
    ("page", "column", "kind"), [("SECURITY.md", "Asset", "attacks"), ("docs/operations.md", "fault", "faults")]
)
def test_every_line_of_a_table_has_tests(page: str, column: str, kind: str) -> None:
    (table,) = [table for table in tables((ROOT / page).read_text("utf-8")) if column in table[0]]
    assert sorted(row[column] for row in table) == sorted(CLAIMS[kind])
    assert all(CLAIMS[kind].values())


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
