"""The tables by which answers are read."""

import pytest

from unprm.answers.tables import pattern, table


@pytest.mark.parametrize("name", table("statements"))
def test_every_expression_compiles_with_those_that_it_names(name):
    assert "{" + name + "}" not in pattern(name).pattern


@pytest.mark.parametrize("row", table("notations")["rewrites"], ids=lambda row: row["of"][:20])
def test_a_rewrite_says_what_it_becomes(row):
    assert {"of", "to"} <= row.keys() <= {"of", "to", "has", "unless"}


def test_a_language_has_only_known_keys():
    known = {"answer", "is", "then", "question", "comma", "joined"}
    assert {key for language in table("languages").values() for key in language} <= known
