"""Classes of answers: the conventions, the laws of an equivalence relation, what hostile answers may cost."""

import errno
import json
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from fractions import Fraction

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import constants

from tests.support import ROOT, TEST_DATA
from unprm.answers.equivalence import Equivalence, EquivalenceStats
from unprm.answers.extraction import extract
from unprm.answers.mathtext.keys import AnswerKey
from unprm.answers.mathtext.units import UNITS
from unprm.answers.worker import keyed, worker_command
from unprm.answers.worker_pool import OutOfTime, WorkerDied, WorkerPool, WorkerProcess
from unprm.errors import ShuttingDown

DATA = TEST_DATA / "equivalence"
HANG_GUARD = 5.0  # seconds over the deadline that a busy machine may take


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


FACTS = rows("facts.jsonl")
REAL = rows("math_answers.jsonl")
NASTY = [row["input"] for row in rows("nasty_inputs.jsonl")]
generated = settings(derandomize=True, deadline=None, max_examples=60)


@pytest.fixture(scope="module")
def answers():
    with Equivalence(deadline=30) as equivalence:
        equivalence.start()
        yield equivalence
        assert equivalence.stats.failures == 0  # what an error settles is settled by chance


# --- what is equal

SAME = [
    # numbers in any spelling
    ["1 1/2", "1.5", r"\frac{3}{2}", r"1\frac12", "3/2", r"\frac{1}{2}+1", "150/100"],
    [r"\$10", "10", "10.0", r"10\text{ dollars}", r"\$10.00", "2*5"],
    ["10 cm^2", "10", "0.001 m^2"],
    [r"10\%", "10", "10 percent"],
    ["3.54e-07", r"3.54 \times 10^{-7}", "0.000000354"],
    ["1,234,567", "1234567", r"1{,}234{,}567", r"1,\!234,\!567"],
    [r"\binom{5}{2}", "10", r"{5 \choose 2}", r"\frac{5!}{2!\,3!}", r"\sum_{k=1}^{4} k", r"\gcd(20,30)"],
    [
        r"\lfloor 3.7 \rfloor", "3", r"|-3|", r"\lceil \frac{5}{2} \rceil", r"\log_2 8", r"\log 1000",
        r"\ln e^3",
    ],
    ["2^{10}", "1024", "2^10", "4^5"],
    ["100!", r"100\cdot 99!"],
    [r"10^{100}", r"10^{50}\cdot 10^{50}"],
    ["0.3333333333", r"\frac13", r"0.\overline{3}"],
    ["9.42477796", r"3\pi", "3π", "9.42477796076938"],
    ["4.123105625617661", r"\sqrt{17}", "√17", r"\sqrt17"],
    [r"\frac{1}{432}", r"2.314814814815 \times 10^{-3}"],
    [r"\frac{\sqrt{3}}{3}", r"\frac{\sqrt{3}}{3} \approx 0.577", r"\frac{1}{\sqrt3}", r"\tan 30^\circ"],
    # roots, pi, complex numbers
    [
        r"2\sqrt{3}", r"\sqrt{12}", r"\frac{6}{\sqrt{3}}", r"4\sin 60^\circ", r"4\sin\frac{\pi}{3}",
        r"2 \cdot 3^{1/2}",
    ],
    [r"1+\sqrt2", r"\sqrt{3+2\sqrt{2}}", r"\frac{1}{\sqrt{2}-1}"],
    [r"\sqrt[3]{-8}", "-2", "(-8)^{1/3}"],
    [r"\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt6}", "0", "e^{i\\pi}+1", r"\sin \pi"],
    ["2i", r"\sqrt{-4}", "(1+i)^2", r"-\frac{2}{i}"],
    ["1+2i", "i(2-i)", "2i+1"],
    [r"\frac{9}{4}\pi", r"\frac94\pi", r"\frac{9\pi}{4}", r"2.25\pi", r"9\pi/4"],
    ["90^\\circ", "90", r"90^{\circ}", "90°", "90 degrees", r"\angle ABC = 90^\circ"],
    # expressions
    ["x(x+1)", "x^2+x", "x*(1+x)", r"\frac{x^3+x^2}{x}"],
    [r"\sin^2 x+\cos^2 x", "1"],
    [r"\tan^2(y)+1", r"\sec^2(y)"],
    [r"\cos(x)", r"\sin(90^{\circ}-x)", r"\sin(\frac{\pi}{2}-x)"],
    [r"\frac{n!}{(n-1)!}", "n"],
    [r"2\ln 2", r"\ln 4"],
    [r"2^{x+1}", r"2\cdot 2^x"],
    [r"4/3-7x/6", r"\frac{8-7x}{6}"],
    [
        r"\frac{v_0 (\frac{r_0}{r + r_0})^{0.5}}{r + r_0}",
        r"\frac{v_{0}}{r_{0}} \frac{1}{\left(1+r / r_{0}\right)^{3 / 2}}",
    ],
    [
        r"-\frac{2(x^2+6)}{9(x^2-2)\sqrt[3]{x^2-2}^2}",
        r"-\frac{8x^2}{9(x^2-2)^{5/3}}+\frac{2}{3(x^2-2)^{2/3}}",
    ],
    [r"\sum_{k=0}^{n-1} F_k F_{n-k-1}", r"\sum_{k=0}^{n-1} F_{n-k-1} F_k"],
    [r"\frac{\pi}{4}+k\pi, k \in \mathbb{Z}", r"\frac{\pi}{4}+k\pi"],
    # names
    ["x = 5", "5", "5 = x", "2x=10", "f(x)=5", "|AB| = 5", r"\text{area} = 5", "y=5"],
    ["y = 2x+1", "2x+1", "2x-y+1=0", "f(x) = 2x+1", "4x-2y=-2"],
    ["x^2/4 + y^2/3 = 1", "x^2/16 + y^2/12 = 1/4"],
    ["(p,q)=(3,2)", "(3,2)", "p=3, q=2"],
    # lists, sets, intervals, inequalities
    [
        "-2, 1", r"\{1,-2\}", "x=1 \\text{ or } x=-2", "1 and -2", r"\boxed{1}\text{ and }\boxed{-2}",
        r"x=1, x=-2",
    ],
    [r"3\pm2\sqrt2", r"3-2\sqrt2, 3+2\sqrt2"],
    ["(1,2),(3,4)", "(3,4), (1,2)", "(1,2),(3,4),(1,2)"],
    ["(0;0),(1;2)", "(0,0),(1,2)"],
    ["x > 2", r"(2,\infty)", "2 < x", "-2x+4 < 0", r"x\in(2,\infty)", r"(2,+\infty)"],
    [r"1 < 2x+1 \leq 5", "(0,2]", "2 >= x > 0", "0<f(x)<=2"],
    [r"x \neq 0", r"(-\infty,0)\cup(0,\infty)", r"\mathbb{R}\setminus\{0\}", "x<0 \\text{ or } x>0"],
    [r"\mathbb{R}", r"(-\infty,\infty)"],
    ["x+y<5", "5>x+y", "-x-y>-5", "2x+2y<10"],
    [r"\{1\}\cup\{2,3\}", r"\{3,2,1\}"],
    # matrices
    [
        r"\begin{pmatrix} 1 & 0.5 \\ 1/3 & 4 \end{pmatrix}",
        r"\begin{bmatrix}1&\frac12\\ \frac13&4\end{bmatrix}",
    ],
    [r"\frac12\begin{pmatrix}2\\4\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"],
    # units
    ["1 hour 30 minutes", "90 minutes", "1.5 hours", "1 hour and 30 minutes", r"1\text{ hour }30\text{ minutes}", "90"],
    ["5 cents", r"\$0.05", "0.05 dollars", "$0.05"],
    ["10 m/s", "10", r"10\text{ m/s}", r"10\mathrm{m/s}", "10 meters per second", "36 km/h"],
    [r"20^\circ C", "20", "20°C", "20 degrees Celsius"],
    ["2 feet 3 inches", "27 inches", "2 feet, 3 inches"],
    ["60 mph", "88 feet per second", "60 miles per hour"],
    [r"\frac{\pi}{2}\text{ radians}", "90°"],
    ["3 million dollars", r"\$3 million", "3000000"],
    ["17.5%", r"17\frac12\%", "17.5"],
    ["$25,000/year", r"\$25{,}000\text{ per year}", "25000"],
    ["3 boys and 5 girls", "5 girls and 3 boys", r"3\text{ boys and }5\text{ girls}"],
    ["5 apples", "5", r"5\text{ oranges}", "five apples", r"\text{five}", "5 in total", "5 apples over the three days"],
    # one thing written in different ways
    ["2x10^3", "2000", r"2\times 10^3"],
    ["twenty-five", "25"],
    ["one hundred and five", "105"],
    ["2+3=5", "5", "5 = 5", "10/2 = 2+3 = 5", "8-3 = 5", "(8)-(3)", "(8-3)"],
    ["3*5 = 15 cm", "15 cm", "15"],
    ["all real numbers", r"\mathbb{R}", r"\text{All real numbers}"],
    ["|x|<1", "(-1,1)"],
    ["|x-3|>2", r"(-\infty,1)\cup(5,\infty)"],
    [r"|2x-1|\le 3", "[-1,2]"],
    ["x^2=4", r"x=\pm2", "-2, 2", "x^2-4=0"],
    ["x^2-5x+6=0", "2,3"],
    ["x^2=2", r"\pm\sqrt2"],
    [r"[1,2]\cup[2,3]", "[1,3]"],
    [r"x<1\text{ or }x<3", "x<3"],
    ["Option A", "A", r"\text{Option A}", "choice (A)"],
    [r"x\not=1", r"x\neq 1", r"x \ne 1"],
    [r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"],
    [r"\begin{vmatrix}a&b\\c&d\end{vmatrix}", "ad-bc"],
    ["0.30000000000000004", "0.3"],
    ["2.9999999999999996", "3"],
    ["42\\", "42"],
    # kinks
    ["|x-40|", "|40-x|", r"\sqrt{(x-40)^2}", r"\max(x-40,40-x)", r"\sqrt{x^2-80x+1600}"],
    ["2|x-5|", "|2x-10|", "|10-2x|"],
    [r"\sqrt{x^2-2xy+y^2}", "|x-y|"],
    [r"\max(a,b)", r"\max(b,a)", r"\frac{a+b+|a-b|}{2}"],
    [r"\sqrt{4x^2+4}", r"2\sqrt{x^2+1}"],
    [r"x\sqrt{x}", "x^{3/2}"],
    ["|x|^2", "x^2", r"\sqrt{x^4}"],
    ["|xy|", "|x||y|"],
    # words
    [r"\text{Monday}", "Monday", "monday", r"\textbf{MONDAY}"],
    [r"\text{(A)}", "A", "(A)", r"\textbf{A}", r"\mathrm{A}"],
    [r"\text{odd}", "odd", "$odd$", "Odd."],
    [r"\text{CBAD}", "CBAD"],
]  # fmt: skip


@pytest.mark.parametrize("spellings", SAME, ids=lambda spellings: spellings[0])
def test_equal(answers, spellings):
    assert answers.classes(spellings) == [0] * len(spellings)


# What computer algebra, or a rounded comparison, calls equal.
TRAPS = [
    ["1/2004!", "1/2006!", "1/2005!", "0"],
    ["2^{-99}", "2^{-98}", "0"],
    ["1-1/e", "1+1/e"],
    ["10cm", "10", "10m", "10 m s"],
    [r"1,2,\ldots,n", r"1,3,5,\ldots,2n-1", "1,2,n", r"1,2,\ldots"],
    ["a+b=c", "x+1=2y+3z", "x^2=4", "a=b^2c"],
    [r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}", r"\frac{1}{3 \cdot 2^{2006}}", r"\frac16"],
    ["19, 46, and 82", "21, 36, and 82"],
    [r"\pm 2021", "2021", "-2021"],
    ["12:00", "1:00", "12", "1"],
    [r"1:2:3:\ldots", r"1:4:9:\ldots"],
    ["9^{9^{9}}", "9^{9^{9}}+1", "9^{9^{8}}"],
    ["e^{1000}", "e^{1000}+1", "1-e^{-1000}", "1", r"\tanh 500", r"2^{\frac{1}{2^{1000}}}"],
    ["1+10^{-100}", "1", r"1+10^{-100}\pi", r"\cos(10^{-60})"],
    ["100000000!", "100000001!"],
    ["10^{1000}", "10^{1000}+1"],
    ["x^{100}+1", "x^{100}", "x^{101}"],
    ["12345678901234567890", "12345678901234567891"],
    ["1.0000000000000001", "1", "1.00000000001", "0.9999999999"],
    ["0.123456789", "0.123456788"],
    ["0.333", r"\frac13", "0.33", "0.3333"],
    ["3.14", r"\pi", "3.1416"],
    ["e^{\\pi\\sqrt{163}}", "262537412640768744"],
]
APART = [
    ["(0,1)", "[0,1]", "(0,1]", "[0,1)", "-[0,1)", r"\{0,1\}", "1"],
    ["(1,2)", "(2,1)", "1,2", r"\{1,2\}"[:-1] + r"\}\cup\{3\}", "12"],
    ["x>2", r"x\ge2", "x<2", "x=2", r"x\ne2"],
    ["x=1,y=2", "x=2,y=1"],
    ["1,1,2", "1,2"],
    ["1,234", "1, 234", "(1,234)"],
    [r"\sqrt{x^2}", "x", "-x"],
    [r"\ln x^2", r"2\ln x", r"\log x", r"\ln x"],
    ["(-1)^n", "1", "-1"],
    ["x+1", "y+1", "x-1", "x"],
    ["1/2x", "1/(2x)", "a/bc", "ac/b"],
    ["7 = 11a+c", "11a+c", "7"],
    ["a+3z = 0", "0", "a^2+b=0"],
    [r"\cos(x)=\frac{42}{59}", r"\sin(x)=\frac{42}{59}"],
    ["5!", "5", "120.5"],
    ["1010_2", "1010", "1010_3", "10"],
    [r"\frac{1}{0}", r"\frac{2}{0}", r"\infty", r"-\infty", r"\frac{0}{0}"],
    [r"5\text{ or more}", "5", r"5\text{ or less}"],
    [r"3\text{ p.m.}", r"3\text{ a.m.}", "3"],
    [r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "(1,2)"],
    [r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"],
    ["A", "B", "a", "AB"],
    ["yes", "no", "maybe"],
    [r"\text{A, then B}", r"\text{B, then A}"],
    ["A,B", "B,A"],
    ["", "0", r"\emptyset"],
    [r"Y \in [0,1]", r"x \in [0,1]"],
    ["2 3", "23", "6"],
    ["(a+5)(b+2)", "(+5)(b+2)"],
    [r"1\sqrt{19}", "1", "19"],
    # units, and words that say more than a unit
    ["3 hours", "3 minutes", "3"],
    ["5 cents", "5 dollars", "5", "5 euros"],
    ["10 cm^2", "10 cm^3", "10", "10 m"],
    ["20°C", "20°F", "20 K", "20"],
    ["10%", "0.1"],
    ["60 pages per minute", "60 pages per hour", "60"],
    ["30 days", "1 month"],
    ["5 years older", "5 years younger", "5"],
    ["5 wins", "5 losses", "5"],
    ["5 pairs", "5"],
    ["3 millionths", "3"],
    ["5 factorial", "5"],
    ["50 basis points", "50"],
    ["5 each", "5 total"],
    ["two thirds", "2", "one third"],
    # several parts
    ["3 boys and 5 girls", "5 boys and 3 girls"],
    ["3 cups of flour and 2 cups of sugar", "2 cups of flour and 3 cups of sugar"],
    ["2 feet, 3 inches", "2 inches, 3 feet"],
    ["10-12", "20-22", "-2"],
    ["10 - 12 cm", "20 - 22 cm"],
    ["2020-03-04", "2020-04-03"],
    ["1/2/2020", "2/4/2020"],
    ["555-1234", "-679"],
    ["10-12, 3", "20-22, 3"],
    ["(555) 123-4567", "(555) 123-4568"],
    # kinks
    ["|x-40|", "40-x"],
    [r"\max(x,100)", "100"],
    [r"\sqrt{(x-50)^2}", "50-x", r"((x-50)^2)^{3/2}"],
    [r"\sqrt{x^2-100x+2500}", "50-x"],
    [r"\sqrt{(x-50)^2(x^2+1)}", r"(50-x)\sqrt{x^2+1}"],
    [r"2\max(x-5000,0)", r"\max(x-5000,0)", "0"],
    ["|x-40|-2|x-40.5|+|x-41|", "2|x-40|-4|x-40.5|+2|x-41|", "0"],
    [r"\lfloor x/100000\rfloor", r"2\lfloor x/100000\rfloor", "0"],
    [r"\ln((x-50)^2)", r"2\ln(50-x)"],
    [r"\max 5", r"\max(5)", r"\sin(1,2)", r"\sin(1,3)"],
    ["x^2=4", "x^2=-4", "2"],
    ["2+3=6", "5", "6"],
    [r"(0,1)\cup(1,2)", "(0,2)"],
    ["two three", "23", "5"],
]


@pytest.mark.parametrize("different", TRAPS + APART, ids=lambda different: different[0])
def test_different(answers, different):
    assert answers.classes(different) == list(range(len(different)))


# How the texts begin of facts that are against our conventions, or need more than reading an answer.
NOT_OURS = (
    "the number is not 10 which is",  # the number that comes last in a sentence
    "so the number is 10 which is",
    "not it's not 10 it's",
    "$(0.6,2.6667]$",  # 2.6667 is not 8/3
    "When multiplying by identity",  # a product of matrices
)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact['gold'][:20]} | {fact['pred'][:20]}")
def test_facts_that_graders_assert(answers, fact):
    pair = [fact["gold"], fact["pred"]]
    if fact["whole_text"]:
        pair = [extract(text) or text for text in pair]
    assert answers.equal(*pair) == (fact["equal"] and not fact["pred"].startswith(NOT_OURS))


# --- the laws

numbers = st.fractions(min_value=-1000, max_value=1000, max_denominator=60)


def latex(value):
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def combined(pair):
    """An expression of two others, with its value."""
    (left, a), (right, b), operator = pair
    return {
        "+": (f"{left}+({right})", a + b),
        "-": (f"\\left({left}\\right)-\\left({right}\\right)", a - b),
        "*": (f"({left})({right})", a * b),
        "/": (f"\\frac{{{left}}}{{{right}+2000}}", a / (b + 2000)) if b > -2000 else (left, a),
        "^": (f"({left})^{{2}}", a * a),
    }[operator]


leaves = numbers.map(lambda value: (latex(value), value))
expressions = st.recursive(
    leaves, lambda inner: st.tuples(inner, inner, st.sampled_from("+-*/^")).map(combined), max_leaves=5
)
mixed = st.lists(
    st.sampled_from(REAL)
    | st.sampled_from([spelling for spellings in SAME for spelling in spellings])
    | st.sampled_from([answer for different in TRAPS for answer in different])
    | st.text(max_size=8),
    max_size=12,
)


@generated
@given(expressions)
def test_an_expression_is_equal_to_its_value_and_to_nothing_near(answers, expression):
    text, value = expression
    near = value + Fraction(1, 10**30)
    assert answers.classes([text, latex(value), f"{near.numerator}/{near.denominator}"]) == [0, 0, 1]


@generated
@given(st.integers(2, 10**6), numbers, st.integers(2, 30))
def test_a_root_has_one_key_exact_or_numeric(answers, radicand, factor, square):
    exact = f"{latex(factor)}\\sqrt{{{radicand}}}"
    same = [
        f"{latex(factor / square)}\\sqrt{{{radicand * square**2}}}",
        f"{latex(factor)}e^{{\\frac12\\ln {radicand}}}",
    ]
    assert answers.classes([exact, *same]) == [0, 0, 0]
    assert not answers.equal(exact, f"{latex(factor)}\\sqrt{{{radicand}}}+10^{{-40}}")


@generated
@given(mixed, st.randoms(use_true_random=False))
def test_the_classes_do_not_depend_on_the_order_or_on_repetition(answers, texts, shuffle):
    classes = answers.classes(texts)
    repeated = answers.classes([*texts, *texts[::-1]])
    assert repeated == classes + classes[::-1]
    order = list(range(len(texts)))
    shuffle.shuffle(order)
    shuffled = answers.classes([texts[i] for i in order])
    position = {index: place for place, index in enumerate(order)}
    for i in range(len(texts)):
        for j in range(i):
            same = classes[i] == classes[j]
            assert same == (shuffled[position[i]] == shuffled[position[j]])
            assert answers.equal(texts[i], texts[j]) == answers.equal(texts[j], texts[i])


def test_a_number_without_a_unit_joins_the_only_class_that_is_written_with_it(answers):
    assert answers.classes(["10 cm", "10", "12 cm"]) == [0, 0, 1]
    assert answers.classes(["10 cm", "10", "10 m"]) == [0, 1, 2]
    assert answers.classes(["10", "100 mm", "10 cm", "100"]) == [0, 0, 0, 0]
    assert answers.classes(["10.0", "20/2 cm", "10 cm", "10"]) == [0, 0, 0, 0]
    assert answers.classes(["x < 5 cm", "x < 5", "(30°, 60°)", "(30, 60)"]) == [0, 0, 1, 1]


WORDS = r"""
    \max \min \gcd \lcm \sin \log \ln \exp \sqrt \frac \binom \sum_{k=1}^{3} \prod \lfloor \rfloor \lceil | ( ) [ ]
    \{ \} { } ^ _ , ; = < \leq \neq \in \cup \cap \setminus \pm \mp + - * / ! % ° : ' \infty \pi e i x y k 0 1 2 5 0.5
    10-12 cm hours each \unit{m} \unit{s-1} \$ \text{apples} \begin{vmatrix} \end{vmatrix} & \\ \mathbb{R} or and \mod
"""
words = st.sampled_from(WORDS.split())


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.lists(st.lists(words, max_size=14).map(" ".join), max_size=3))
def test_no_answer_brings_down_the_comparison_of_others(texts):
    with Equivalence(command=["/nonexistent"]) as equivalence:
        begun = equivalence.begin(["0.5", *texts, "1/2"])
        assert begun.keys["0.5"].key == begun.keys["1/2"].key
        assert equivalence.stats.failures == 0


def test_an_error_while_comparing_means_as_text_and_is_counted(monkeypatch):
    def failing(answer, scalars):
        if "5" in answer:
            raise TypeError
        return AnswerKey(answer)

    monkeypatch.setattr("unprm.answers.equivalence.answer_key", failing)
    with Equivalence(command=FAKE) as equivalence:
        compared = equivalence.finish(equivalence.begin(["x", "5x", "x", "5x", "y"]))
        assert compared == ([0, 1, 0, 1, 2], (1, 3))
        assert equivalence.stats.failures == 1


def test_an_error_in_a_worker_means_as_text():
    class Broken:
        def __getattr__(self, name):
            raise ZeroDivisionError

    assert keyed("x", Broken()) == {"key": "only x", "unitless": "", "as_text": True, "refused": False}


def test_what_no_process_could_compare_is_reported(monkeypatch):
    def without_descriptors(*arguments, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", without_descriptors)
    with Equivalence(deadline=1) as equivalence:
        compared = equivalence.finish(equivalence.begin([r"\sin 1", "5", r"\sin 1", "x"]))
    assert compared == ([0, 1, 0, 2], (0, 2))


def test_conversions_are_those_that_scipy_has():
    def factor(name):
        return float(UNITS[name].factor)

    in_base = {
        "in": constants.inch, "ft": constants.foot, "yd": constants.yard, "mi": constants.mile, "lb": constants.pound,
        "oz": constants.oz, "gal": constants.gallon, "floz": constants.fluid_ounce, "acre": constants.acre,
        "hectare": constants.hectare, "L": constants.liter, "h": constants.hour, "day": constants.day,
        "week": constants.week, "mph": constants.mph, "kmh": constants.kmh,
        "knot": constants.knot, "tonne": constants.metric_ton,
    }  # fmt: skip
    assert {name: factor(name) for name in in_base} == pytest.approx(in_base, rel=1e-12)
    parts = {"qt": 4, "pint": 8, "cup": 16, "floz": 128, "tbsp": 256, "tsp": 768}
    assert {name: UNITS["gal"].factor / UNITS[name].factor for name in parts} == parts


@generated
@given(st.text(max_size=30) | st.sampled_from(REAL + NASTY))
def test_reflexive(answers, text):
    assert answers.equal(text, text)
    assert answers.classes([text, text + " ", text]) == [0, 0, 0]


def test_the_classes_do_not_depend_on_the_past(answers):
    texts = [spelling for spellings in SAME for spelling in spellings] + REAL
    with Equivalence(deadline=60, cache_size=10) as fresh:
        assert fresh.classes(texts) == answers.classes(texts)
        backwards = fresh.classes(texts[::-1])[::-1]
    pairs = {(a, b) for a, b in zip(answers.classes(texts), backwards, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_numbered_by_first_appearance(answers):
    assert answers.classes(["7", "1/2", "7.0", "x", "0.5", r"\frac{14}{2}"]) == [0, 1, 0, 2, 1, 0]
    assert answers.classes([]) == []


# --- what it costs

HOSTILE = [
    *NASTY,
    "9^{9^{9^{9}}}",
    "100000000!",
    "{" * 10_000 + "5" + "}" * 10_000,
    "(" * 900 + "5" + ")" * 900,
    r"\int_0^1 " * 200 + "x",
    "9" * 10**6,
    "0." + "3" * 10**6,
    "9" * 1900,
    r"\frac{1}{" * 150 + "2" + "}" * 150,
    "(1+\\sqrt{2}+\\sqrt{3}+\\sqrt{5})^{100000}",
    "(" + ")(".join(f"1+\\sqrt{{{n}}}" for n in range(2, 150)) + ")",
    "2^{" * 30 + "2" + "}" * 30,
    "1" + "+1" * 900,
    "x" + "-x" * 900,
    "1," * 900 + "1",
    "\\" * 1999,
    r"\boxed{" * 250,
    r"\sin " * 400 + "x",
    "x^{x^{x^{x}}}",
    "x^2" * 600,
    "½" * 1900,
    r"\binom{99999999}{44444444}",
    "e^{e^{e^{e^{e}}}}",
    r"(10^{10}+\frac12)!",
    "\x00" * 1000,
    "\ud800" * 1000,
]


def test_hostile_answers_cost_no_more_than_the_deadline():
    with Equivalence(deadline=2) as equivalence:
        equivalence.start()
        for hostile in HOSTILE:
            start = time.monotonic()
            assert equivalence.classes([hostile, "1/2", "0.5"]) == [0, 1, 1]
            assert time.monotonic() - start < 2 + HANG_GUARD
        assert equivalence.classes([r"\sin^2 x", r"1-\cos^2 x"]) == [0, 0]


SLOW = r"\sum_{a=1}^{1999} \sum_{b=1}^{1999} \sin(ab)"  # within every bound, but far too much work


def test_an_answer_beyond_its_share_of_the_time_is_refused_for_good():
    with Equivalence(deadline=4) as equivalence:
        equivalence.start()
        assert equivalence.classes([SLOW, r"\ln 4", r"2\ln 2"]) == [0, 1, 1]
        assert (equivalence.stats.timeouts, equivalence.stats.crashes) == (1, 0)
        start = time.monotonic()
        assert equivalence.equal(SLOW, SLOW)
        assert equivalence.stats.timeouts == 1
        assert time.monotonic() - start < 1


def test_plain_numbers_take_no_worker():
    spellings = [
        "1/2", "0.5", r"\frac12", r"2\sqrt{3}", r"\sqrt{12}", r"\frac{6}{\sqrt3}", r"\frac{\pi}{2}",
        r"0.5\pi", "50\\%", r"\$1,234.50", "1 1/2", "2^{10}", "(1,2)", r"[0,\infty)", r"\{1,2\}", "x=5",
        "x>2", "3+4i", "Monday", "10!", r"\begin{pmatrix}1\\2\end{pmatrix}", r"3\pm\sqrt2",
        "0.333333333333", r"\frac{1}{2+\sqrt3}", "x=1,y=2",
    ]  # fmt: skip
    equivalence = Equivalence(command=["/nonexistent"])
    equivalence.classes(spellings)
    stats = equivalence.stats
    assert stats.in_process == stats.compared == len(spellings)


def test_counts(answers):
    with Equivalence(deadline=30) as equivalence:
        assert equivalence.stats == EquivalenceStats()
        equivalence.classes(["5", "5", r"\sin 1", "9^{9^{9}}"])
        equivalence.classes(["5", r"\sin 1"])
        assert equivalence.stats == EquivalenceStats(compared=5, cached=2, in_process=1, in_worker=2, refused=1)


def test_many_threads_at_once(answers):
    texts = [spelling for spellings in SAME[20:40] for spelling in spellings]
    expected = answers.classes(texts)
    with Equivalence(deadline=60, workers=2, cache_size=5) as equivalence:
        found = []

        def ask(seed):
            order = random.Random(seed).sample(range(len(texts)), len(texts))
            classes = equivalence.classes([texts[i] for i in order])
            of = dict(zip(order, classes, strict=True))
            found.append([of[i] for i in range(len(texts))])

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(found) == 6
    for classes in found:
        assert len(set(zip(classes, expected, strict=True))) == len(set(expected)) == len(set(classes))


# --- the worker processes

PROGRAM = """
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    answer = question["answer"]
    if "die" in answer or "sin" in answer: sys.exit(3)
    if "hang" in answer or "cos" in answer: time.sleep(1000)
    if "babble" in answer: print("{" * 10**6, flush=True)
    if "list" in answer: print("[1]", flush=True)
    for times in range(2 if "stutter" in answer else 1):
        key = {"key": "key of " + answer, "unitless": "", "as_text": False, "refused": False}
        print(json.dumps({"id": question["id"], **key}), flush=True)
"""
FAKE = [sys.executable, "-I", "-S", "-c", PROGRAM]


def soon(seconds=30.0):
    return time.monotonic() + seconds


@pytest.fixture
def pool():
    pool = WorkerPool(FAKE, 1)
    yield pool
    pool.close()


def test_a_pool_outlives_its_workers(pool):
    assert pool.ask("a", soon()) == AnswerKey("key of a")
    for trouble in ("die", "babble", "list"):
        with pytest.raises(WorkerDied):
            pool.ask(trouble, soon())
        assert pool.ask("b", soon()) == AnswerKey("key of b")
    assert pool.ask("stutter", soon()) == AnswerKey("key of stutter")
    with pytest.raises(WorkerDied):  # and not the reply that is left over
        pool.ask("b", soon())
    with pytest.raises(OutOfTime):
        pool.ask("hang", soon(1))
    assert pool.ask("c", soon()) == AnswerKey("key of c")


def test_a_slow_start_outlasts_short_requests():
    """A worker is not given up while it sets itself up, or on a busy machine none would ever be ready."""
    pool = WorkerPool([*FAKE[:-1], "import time; time.sleep(1)\n" + PROGRAM], 1)
    replies = []
    while not replies:
        with suppress(OutOfTime):
            replies.append(pool.ask("a", soon(0.2)))
    pool.close()
    assert replies == [AnswerKey("key of a")]


def test_a_worker_that_is_killed_names_its_killer():
    worker = WorkerProcess(FAKE)
    worker.wait_ready(soon())
    worker.kill()
    with pytest.raises(WorkerDied) as death:
        worker.ask("a", soon())
    assert death.value.signal == 9
    worker.dispose()
    worker.dispose()


@pytest.mark.parametrize("command", [["/nonexistent"], [sys.executable, "-c", "print(5)"], [sys.executable, "-c", ""]])
def test_a_program_that_does_not_start_is_an_error_at_start_and_no_hang_later(command):
    with Equivalence(command=command, deadline=1) as equivalence:
        with pytest.raises(WorkerDied):
            equivalence.start()
        assert equivalence.classes([r"\sin 1", r"\sin 2", "5"]) == [0, 1, 2]
        assert 2 <= equivalence.stats.crashes + equivalence.stats.timeouts <= 4


def test_a_crash_or_a_missed_deadline_is_counted_and_not_remembered():
    with Equivalence(command=FAKE, deadline=2) as equivalence:
        for times in (1, 2):
            assert equivalence.classes([r"\sin 1", r"\tan 1", r"\tan 1 + 0", r"\sin 1 "]) == [0, 1, 2, 0]
            assert equivalence.stats.crashes == 2 * times
        assert equivalence.stats.cached == 2
        assert equivalence.classes([r"\cos 1", r"\cos  1", r"\cot 1"]) == [0, 0, 1]
        assert equivalence.stats.timeouts >= 1
        assert equivalence.equal(r"\cot 1", r"\cot  1")


def test_a_worker_that_somebody_kills_changes_no_class(tmp_path):
    met = tmp_path / "met"
    once = PROGRAM.replace("question = ", f"open({str(met)!r}, 'a').write('x'); question = ").replace(
        '"sin" in answer', f"len(open({str(met)!r}).read()) == 1"
    )
    with Equivalence(command=[*FAKE[:-1], once], deadline=20) as equivalence:
        assert equivalence.classes([r"\tan 1", r"\tan  1", r"\cot 1"]) == [0, 0, 1]
        assert (equivalence.stats.crashes, equivalence.stats.in_worker) == (1, 2)


def test_computing_an_answer_that_takes_long_steps_back():
    others = set(psutil.Process().children())
    with Equivalence(deadline=1) as equivalence:
        equivalence.start()
        slow = threading.Thread(target=equivalence.classes, args=([SLOW],))
        slow.start()
        (worker,) = set(psutil.Process().children()) - others
        seen = set()
        while slow.is_alive():
            with suppress(psutil.NoSuchProcess):
                seen |= {child.nice() for child in worker.children()}
            time.sleep(0.005)
        slow.join()
        assert 19 in seen
        assert equivalence.stats.timeouts == 1  # its share of the time is over
        assert worker.is_running()
        assert worker.children() == []
        assert equivalence.classes([r"\sin x", r"\sin  x", "x"]) == [0, 0, 1]


def test_time_that_runs_out_costs_no_worker():
    others = set(psutil.Process().children())
    with Equivalence(deadline=0.3) as equivalence:
        equivalence.start()
        (worker,) = set(psutil.Process().children()) - others
        with pytest.raises(OutOfTime):
            equivalence._pool.ask(SLOW, time.monotonic())
        assert worker.is_running()


def test_one_request_that_hangs_does_not_change_another():
    results = {}
    with Equivalence(command=FAKE, deadline=3, workers=2) as equivalence:

        def ask(name, texts):
            results[name] = equivalence.classes(texts)

        hanging = threading.Thread(target=ask, args=("hanging", [r"\cos 1", r"\tan 1"]))
        hanging.start()
        ask("other", [r"\tan 1", r"\tan 1", r"\cot 1"])
        hanging.join(3 + HANG_GUARD)
    assert results == {"hanging": [0, 1], "other": [0, 0, 1]}


def test_closing():
    equivalence = Equivalence(command=FAKE)
    equivalence.start()
    equivalence.close()
    equivalence.close()
    assert equivalence.classes(["0.5", "1/2"]) == [0, 0]
    with pytest.raises(ShuttingDown):
        equivalence.classes([r"\sin 1"])


def test_closing_while_a_request_waits():
    equivalence = Equivalence(command=FAKE, deadline=60)
    equivalence.start()
    results = []
    waiting = threading.Thread(target=lambda: results.append(equivalence.classes([r"\cos 1", "5"])))
    waiting.start()
    time.sleep(0.3)
    equivalence.close()
    waiting.join(HANG_GUARD)
    assert results == [[0, 1]]


def test_nonsense_settings_are_refused():
    for settings_ in ({"deadline": 0}, {"workers": 0}, {"memory_mb": 10}, {"cache_size": -1}):
        with pytest.raises(ValueError, match=next(iter(settings_))):
            Equivalence(**settings_)


def python(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_importing_does_nothing():
    done = python(
        "import sys, threading, unprm.answers.equivalence\n"
        "assert threading.active_count() == 1\n"
        "print(sorted({'sympy', 'math_verify', 'mpmath', 'torch', 'numpy'} & sys.modules.keys()))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_an_interpreter_that_forgets_to_close_ends_all_the_same():
    done = python(
        "from unprm.answers.equivalence import Equivalence\n"
        "equivalence = Equivalence()\n"
        r"print(equivalence.equal('\\sin 1', '\\sin 1 '), equivalence.equal('\\sin x', '\\cos x'))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True False\n", "", 0)


CONFINED = """
import socket
from unprm.answers.worker import confine
confine(512)
def refused(action):
    try:
        action()
    except (OSError, MemoryError):
        return True
print(refused(lambda: open("/etc/hostname")), refused(lambda: open("/tmp/new", "w")), refused(socket.socket),
      refused(lambda: bytearray(2**30)))
"""


def test_a_worker_opens_nothing_and_its_memory_is_bounded():
    done = python(CONFINED)
    assert (done.stdout, done.stderr, done.returncode) == ("True True True True\n", "", 0)


def test_a_worker_is_started_in_isolation():
    command = worker_command(0.5, 512)
    assert command[1:4] == ["-I", "-S", "-B"]
    assert json.loads(command[-1])["path"][0] == str(ROOT)
