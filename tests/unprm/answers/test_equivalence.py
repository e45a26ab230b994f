"""Classes of answers: the laws of an equivalence relation, what errors and hostile answers may cost, the counts."""

import itertools
import random
import sys
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unprm.answers.support import FACTS, NASTY, REAL, SLOW, SPELLINGS, generated, run_python
from unprm.answers.equivalence import Equivalence, EquivalenceStats, Pair
from unprm.answers.extraction import extract
from unprm.answers.mathtext.keys import AnswerKey
from unprm.election.decide import decide

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


mixed = st.lists(st.sampled_from(REAL) | st.sampled_from(SPELLINGS) | st.text(max_size=8), max_size=8)


@generated
@given(mixed, st.randoms(use_true_random=False))
def test_the_classes_do_not_depend_on_the_order_where_no_two_are_equally_frequent(answers, texts, shuffle):
    texts = [text for place, text in enumerate(texts) for _ in range(2**place)]
    classes = answers.classes(texts)
    repeated = answers.classes([*texts, *texts[::-1]])
    assert repeated == classes + classes[::-1]
    order = list(range(len(texts)))
    shuffle.shuffle(order)
    shuffled = answers.classes([texts[i] for i in order])
    pairs = {(classes[i], shuffled[place]) for place, i in enumerate(order)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@generated
@given(st.lists(st.sampled_from(REAL) | st.sampled_from(SPELLINGS) | st.text(max_size=8), min_size=2, max_size=2))
def test_symmetric(answers, pair):
    assert answers.equal(*pair) == answers.equal(*pair[::-1])


def test_a_number_without_a_unit_joins_the_largest_class_that_is_written_with_it(answers):
    assert answers.classes(["10 cm", "10", "12 cm"]) == [0, 0, 1]
    assert answers.classes(["10", "100 mm", "10 cm", "100"]) == [0, 0, 0, 0]
    assert answers.classes(["10.0", "20/2 cm", "10 cm", "10"]) == [0, 0, 0, 0]
    assert answers.classes(["x=5 cm", "5 cm", "5", "x=5"]) == [0, 0, 0, 0]
    assert answers.classes(["x < 5 cm", "x < 5", "(30°, 60°)", "(30, 60)"]) == [0, 0, 1, 1]
    assert answers.classes(["10 m", "10 cm", "10", "100 mm"]) == [0, 1, 1, 1]
    assert answers.classes(["5 m/s", "5", "5 m/s upward", "5 kg", "5 m/s downward", "5 m/s upward"]) == [
        0,
        0,
        0,
        1,
        2,
        0,
    ]
    assert answers.classes(["3,5", "3.5", "5, 3", "3.5 cm", "4"]) == [0, 0, 1, 0, 2]


def test_an_answer_may_have_a_unit_that_others_of_its_value_lack(answers):
    """The first is 1/2, and says more than it would without the degrees."""
    assert answers.classes(["x = x = 1/2 °", "x = 1/2"]) == answers.classes(["x = 1/2", "x = x = 1/2 °"]) == [0, 0]


def test_among_equal_classes_it_joins_the_first(answers):
    assert answers.classes(["10 cm", "10", "10 m"]) == [0, 0, 1]
    assert answers.classes(["10", "10 m", "10 cm"]) == [0, 0, 1]
    assert answers.classes(["x = 150", "150", "150 miles"]) == [0, 0, 1]
    assert answers.classes(["5 cm", "5 kg", "7", "5"]) == [0, 1, 2, 0]


# Bare values, with several units and names, those that may be read in two ways, and others.
BARE = """5|5 cm|50 mm|50|5 kg|50 kg|x=5|y=5|x=5 cm|x=5 kg|5 m/s|5 m/s upward|5 m/s downward
5k|5000|5000 m|5 km|3,5|5, 3|3.5|3.5 cm""".replace("\n", "|")
bare = st.lists(st.sampled_from(BARE.split("|")), min_size=1, max_size=3, unique=True)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(bare.flatmap(lambda few: st.lists(st.sampled_from([*few, "5", "7"]), min_size=2, max_size=14)), st.data())
def test_one_more_candidate_makes_no_class_win_that_it_is_not_in(answers, texts, data):
    place = data.draw(st.integers(0, len(texts) - 1))
    before = [index + (index >= place) for index in _elected(answers, texts[:place] + texts[place + 1 :])]
    after = _elected(answers, texts)
    assert place in after or after == before


# Adding the last one used to elect 7, or would if each bare value joined the class that is largest without it.
@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ("5|5|5 cm|5 cm|7|7|7|5 kg", 4),
        ("5|5 cm|50 mm|50|50|50|5 kg|5 kg|7|7|7|7|7|7|5 kg", 6),
        ("3,5|3,5|3.5|3.5|7|7|7|5, 3", 4),
    ],
)
def test_an_odd_candidate_does_not_overturn_a_majority(answers, texts, count):
    texts = texts.split("|")
    assert _elected(answers, texts[:-1]) == _elected(answers, texts) == list(range(count))


def _elected(answers, texts):
    return list(decide("majority", answers.classes(texts)).candidates[0].members)


WORDS = r"""
    \max \min \gcd \lcm \sin \log \ln \exp \sqrt \frac \binom \sum_{k=1}^{3} \prod \lfloor \rfloor \lceil | ( ) [ ]
    \{ \} { } ^ _ , ; = < \leq \neq \in \cup \cap \setminus \pm \mp + - * / ! % ° : ' \infty \pi e i x y k 0 1 2 5 0.5
    10-12 cm hours each \unit{m} \unit{s-1} \$ \text{apples} \begin{vmatrix} \end{vmatrix} & \\ \mathbb{R} or and \mod
"""
words = st.sampled_from(WORDS.split())


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.lists(st.lists(words, max_size=14).map(" ".join), max_size=3))
@example(["0..0"])
def test_no_answer_brings_down_the_comparison_of_others(texts):
    equivalence = Equivalence(deadline=60)
    first, *_, last = equivalence.classes(["0.5", *texts, "1/2"])
    assert first == last
    assert equivalence.stats.failures == 0


def test_an_error_while_comparing_means_as_text_and_is_counted(monkeypatch):
    def failing(answer):
        if "5" in answer:
            raise TypeError
        return AnswerKey(answer)

    monkeypatch.setattr("unprm.answers.equivalence.answer_key", failing)
    equivalence = Equivalence()
    assert equivalence.compare(["x", "5x", "x", "5x", "y"]) == ([0, 1, 0, 1, 2], (1, 3))
    assert equivalence.stats.failures == 1


@generated
@given(st.text(max_size=30) | st.sampled_from(REAL + NASTY))
def test_reflexive(answers, text):
    assert answers.equal(text, text)
    assert answers.classes([text, text + " ", text]) == [0, 0, 0]


def test_the_classes_do_not_depend_on_the_past(answers):
    texts = SPELLINGS + REAL
    fresh = Equivalence(deadline=60, cache_size=10)
    assert fresh.classes(texts) == answers.classes(texts)
    assert fresh.classes(texts[::-1]) == answers.classes(texts[::-1])


def test_numbered_by_first_appearance(answers):
    assert answers.classes(["7", "1/2", "7.0", "x", "0.5", r"\frac{14}{2}"]) == [0, 1, 0, 2, 1, 0]
    assert answers.classes([]) == []


HOSTILE = [
    *NASTY,
    SLOW,
    "9^{9^{9^{9}}}",
    "100000000!",
    "{" * 10_000 + "5" + "}" * 10_000,
    "(" * 900 + "5" + ")" * 900,
    r"\int_0^1 " * 200 + "x",
    "9" * 10**6,
    "0." + "3" * 10**6,
    "9" * 1900,
    r"\frac{1}{" * 150 + "2" + "}" * 150,
    "[" * 38 + "1,2" + "]" * 38,
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


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: repr(text[:30]))
def test_a_hostile_answer_costs_a_bounded_number_of_steps(hostile):
    """Steps of the interpreter, which are the same on every machine; each is a short call of C."""
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        steps += 1

    equivalence = Equivalence(deadline=60)
    sys.setprofile(count)
    try:
        classes = equivalence.classes([hostile, "1/2", "0.5"])
    finally:
        sys.setprofile(None)
    assert classes == [0, 1, 1]
    assert steps < 2_000_000


def test_an_answer_whose_turn_comes_after_the_deadline_is_compared_as_text_in_that_call():
    equivalence = Equivalence(deadline=2, clock=iter([0.0, 3.0, 0.0, 1.0]).__next__)
    assert equivalence.compare(["x+x", "2x"]) == ([0, 1], (0,))
    assert equivalence.stats.late == 1
    assert equivalence.compare(["x+x", "2x"]) == ([0, 0], ())


def test_pairs_are_matched_each_by_itself_and_as_text_after_the_deadline():
    pairs = [Pair("5", ["5 cm"]), Pair("5", ["6", "5 kg"]), Pair("5 cm", ["5 kg"]), Pair("2x", ["x+x"])]
    matches = [(True, False), (True, False), (False, False), (True, False)]
    assert Equivalence(deadline=30).match(pairs) == matches
    late = Equivalence(deadline=2, clock=iter([0.0, 3.0]).__next__).match(pairs)
    assert late == [(False, True)] * 4


def test_a_comparison_in_slices_gives_the_classes_of_one_at_once():
    equivalence = Equivalence(deadline=100, clock=itertools.count().__next__)
    begun = equivalence.begin(["x+x", "2x", "x", "4x/2"])
    for left in (2, 0):
        equivalence.advance(begun, 2)
        assert len(begun.wanted) == left
    assert equivalence.finish(begun).classes == [0, 0, 1, 0]


def test_counts(answers):
    equivalence = Equivalence(deadline=30)
    assert equivalence.stats == EquivalenceStats()
    equivalence.classes(["5", "5", r"\sin 1", "9^{9^{9}}"])
    equivalence.classes(["5", r"\sin 1"])
    assert equivalence.stats == EquivalenceStats(compared=5, cached=2)


def test_scopes_share_no_keys():
    equivalence = Equivalence(deadline=30)
    for scope, cached in (("a", 0), ("b", 0), ("a", 2)):
        begun = equivalence.begin(["5", r"\sin 1"], scope)
        equivalence.advance(begun, 30)
        assert equivalence.finish(begun).classes == [0, 1]
        assert equivalence.stats.cached == cached


def test_many_threads_at_once(answers):
    texts = REAL[:60]
    expected = answers.classes(texts)
    equivalence = Equivalence(deadline=60, cache_size=5)
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


def test_nonsense_settings_are_refused():
    for settings_ in ({"deadline": 0}, {"cache_size": -1}):
        with pytest.raises(ValueError, match=next(iter(settings_))):
            Equivalence(**settings_)


def test_importing_does_nothing():
    done = run_python(
        "import sys, threading, unprm.answers.equivalence\n"
        "assert threading.active_count() == 1\n"
        "print(sorted({'sympy', 'math_verify', 'mpmath', 'torch', 'numpy'} & sys.modules.keys()))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
