"""Whether a question lists options."""

import pytest

from unprm.answers.options import lists_options


@pytest.mark.parametrize(
    "question",
    [
        "What is 2 + 2? Answer with the letter.\nA) 3\nB) 4\nC) 5\nD) 6",
        "Which is the capital? (A) Paris (B) Rome (C) Berlin",
        "Which? A) 2, B) 3, C) 4",
        "Which?\nA. Rome\nB. Bern\nC. Oslo\n" + "\n".join(f"{letter}. {letter}ville" for letter in "DEFGHIJKLMNOP"),
        "Is it?\nA. Yes\nB. No",
        r"How many? $\textbf{(A)}\ 5 \qquad\textbf{(B)}\ 6 \qquad\textbf{(C)}\ 7$",
        "Choose:\n- A: x\n- B: y",
        "Choose:\n**A.** one\n**B.** two",
        "哪个？\nA、一\nB、二",
        "Choose:\n(A)\n5\n(B)\n6",
        "x" * 100_000 + "\nA) 3\nB) 4",
    ],
)
def test_a_question_that_lists_options(question: str) -> None:
    assert lists_options(question)


@pytest.mark.parametrize(
    "question",
    [
        "What is 3 + 4?",
        "If f(A) = 3, f(B) = 4 and f(C) = 5, what is f(D)?",
        "Team A: 3, team B: 5, team C: 7. How many in all?",
        "The points are A(1, 2), B(3, 4) and C(5, 6).",
        "I go to town A. Then to town B. Then to town C. How far is it?",
        "Q: 1 + 1?\nA: 2\nQ: 2 + 2?\nA:",
        "The towns (A), (B) and (C) lie on a line.",
        "(a) Find x. (b) Find y. (c) Find z.",
        "P(A) = 0.3, P(B) = 0.2, P(C) = 0.1",
        "There is a vitamin A) and a vitamin B",
    ],
)
def test_a_question_that_lists_none(question: str) -> None:
    assert not lists_options(question)


@pytest.mark.parametrize("unit", ["A", "(A", "(A) ", "\nA) ", "$", r"\(", r"\text{", " ", "\n", "**", "- "])
def test_a_long_question_is_read_at_once(unit: str) -> None:
    """Quadratic work would take hours on it; the time-out of the test run is the bound."""
    lists_options(unit * (1_000_000 // len(unit)))
    lists_options(unit + " " * 1_000_000 + unit)
