"""LaTeX commands with their arguments."""

from tests.unprm.answers.support import apart, same


@same(
    [
        r"\begin{pmatrix} 1 & 0.5 \\ 1/3 & 4 \end{pmatrix}",
        r"\begin{bmatrix}1&\frac12\\ \frac13&4\end{bmatrix}",
    ],
    [r"\frac12\begin{pmatrix}2\\4\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "(1,2)"],
    [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"],
    ["", "0", r"\emptyset"],
    [r"\max 5", r"\max(5)", r"\sin(1,2)", r"\sin(1,3)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
