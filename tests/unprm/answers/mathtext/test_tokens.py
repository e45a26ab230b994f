"""Tokens of LaTeX, and their numbers."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unprm.answers.support import REAL, generated
from unprm.answers.mathtext.grammar import MAX_DIGITS, parse
from unprm.answers.mathtext.tokens import render, tokenise
from unprm.answers.mathtext.tree import Number


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (r"\frac{1}{23}", [r"\frac", "{", "1", "}", "{", "23", "}"]),
        (r"\text{two words}x", [r"\text{two words}", "x"]),
        ("2e-3", ["2", "e", "-", "3"]),
        ("3.5e-07", ["3.5e-07"]),
        (r"0.1\overline{6}", [r"0.1\overline{6}"]),
        ("a  <=\n.5", ["a", " ", "<=", " ", ".5"]),
        (r"\begin{pmatrix}1&2\end{pmatrix}", [r"\begin{pmatrix}", "1", "&", "2", r"\end{pmatrix}"]),
    ],
)
def test_tokenise(text, tokens):
    assert tokenise(text) == tokens


@generated
@given(st.sampled_from(REAL) | st.text(max_size=20))
def test_no_character_is_dropped_and_a_rendered_text_yields_the_same_tokens(text):
    tokens = tokenise(text)
    assert re.sub(r"\s", "", "".join(tokens)) == re.sub(r"\s", "", text)
    solid = [token for token in tokens if token != " "]
    assert render(tokenise(render(solid))) == render(solid)


def test_numbers():
    assert parse("3.50") == Number(Fraction(7, 2), digits=3)
    assert parse(r"0.1\overline{6}") == Number(Fraction(1, 6))
    assert parse("1e3") == Number(Fraction(1000))
    assert parse("9" * MAX_DIGITS) == Number(Fraction(10**MAX_DIGITS - 1))


def test_significant_digits():
    assert [parse(text).digits for text in ("120", "0.0120", "1.5e-10", r"0.\overline{3}")] == [0, 3, 2, 0]
