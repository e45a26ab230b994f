"""LaTeX commands with their arguments."""

from tests.unprm.answers.support import apart, same


@same(
    [
        r"\begin{pmatrix} 1 & 0.5 \\ 1/3 & 4 \end{pmatrix}",
        r"\begin{bmatrix}1&\frac12\\ \frac13&4\end{bmatrix}",
    ],
    [r"\frac12\begin{pmatrix}2\\4\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"],
    [r"\langle 1,2\rangle", "<1,2>", "(1,2)"],
    [r"2\hat i-3\hat j", r"2\mathbf{i}-3\mathbf{j}", r"2\vec{i}-3\vec{j}", r"-3\hat{\jmath}+2\hat{\imath}", "(2,-3)"],
    ["[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"],
)  # fmt: skip
def test_equal(answers, spellings):
    assert set(answers.classes(spellings)) == {0}


@apart(
    [r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "(2,1)"],
    [r"2\hat i+3\hat j", r"3\hat i+2\hat j", r"2\hat i+3\hat k", r"2\hat i"],
    [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"],
    ["", "0", r"\emptyset"],
    [r"\max 5", r"\max(5)", r"\sin(1,2)", r"\sin(1,3)"],
)  # fmt: skip
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))
