"""Unicode and typographic spellings."""

import pytest

from unprm.answers.mathtext.notations import plain_characters


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("x² + 10⁻³", "x^{2} + 10^{-3}"),
        ("a₁₂", "a_{12}"),
        ("½ − √２", r"\frac{1}{2} - \sqrt 2"),
        ("2π ≤ ∞", r"2\pi \leq \infty"),
        ("1 ... 2. . .", r"1 \ldots 2\ldots"),
        ('"5\u200b"\n', "5"),
        ("5 € ", r"5 \unit{euro}"),
    ],
)
def test_plain_characters(text, plain):
    assert plain_characters(text) == plain
