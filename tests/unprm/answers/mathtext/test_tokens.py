"""Tokens of LaTeX, and their numbers."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unprm.answers.support import REAL, generated
from unprm.answers.mathtext.tokens import MAX_DIGITS, number, render, significant_digits, tokenise


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
    assert number("3.50") == Fraction(7, 2)
    assert number(r"0.1\overline{6}") == Fraction(1, 6)
    assert number("1e3") == 1000
    assert number("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    assert number("9" * (MAX_DIGITS + 1)) is None
    assert number("٣") is None


def test_significant_digits():
    assert [significant_digits(text) for text in ("120", "0.0120", "1.5e10", r"0.\overline{3}")] == [0, 3, 2, 0]
