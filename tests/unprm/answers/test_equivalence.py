"""Classes of answers: the laws of an equivalence relation, what errors and hostile answers may cost, the counts."""

import errno
import random
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unprm.answers.fake_worker import FAKE, PROGRAM
from tests.unprm.answers.support import FACTS, HANG_GUARD, NASTY, REAL, SLOW, SPELLINGS, generated, run_python
from unprm.answers.equivalence import Equivalence, EquivalenceStats
from unprm.answers.extraction import extract
from unprm.answers.mathtext.keys import AnswerKey
from unprm.answers.worker_pool import WorkerDied
from unprm.errors import ShuttingDown

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


mixed = st.lists(st.sampled_from(REAL) | st.sampled_from(SPELLINGS) | st.text(max_size=8), max_size=12)


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


def test_what_no_process_could_compare_is_reported(monkeypatch):
    def without_descriptors(*arguments, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", without_descriptors)
    with Equivalence(deadline=1) as equivalence:
        compared = equivalence.finish(equivalence.begin([r"\sin 1", "5", r"\sin 1", "x"]))
    assert compared == ([0, 1, 0, 2], (0, 2))


@generated
@given(st.text(max_size=30) | st.sampled_from(REAL + NASTY))
def test_reflexive(answers, text):
    assert answers.equal(text, text)
    assert answers.classes([text, text + " ", text]) == [0, 0, 0]


def test_the_classes_do_not_depend_on_the_past(answers):
    texts = SPELLINGS + REAL
    with Equivalence(deadline=60, cache_size=10) as fresh:
        assert fresh.classes(texts) == answers.classes(texts)
        backwards = fresh.classes(texts[::-1])[::-1]
    pairs = {(a, b) for a, b in zip(answers.classes(texts), backwards, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_numbered_by_first_appearance(answers):
    assert answers.classes(["7", "1/2", "7.0", "x", "0.5", r"\frac{14}{2}"]) == [0, 1, 0, 2, 1, 0]
    assert answers.classes([]) == []


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


def test_an_answer_beyond_its_share_of_the_time_is_refused_for_good():
    with Equivalence(deadline=12) as equivalence:
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


def test_scopes_share_no_keys():
    with Equivalence(deadline=30) as equivalence:
        for scope, cached, in_worker in (("a", 0, 1), ("b", 0, 2), ("a", 2, 2)):
            assert equivalence.finish(equivalence.begin(["5", r"\sin 1"], scope)).classes == [0, 1]
            assert (equivalence.stats.cached, equivalence.stats.in_worker) == (cached, in_worker)


def test_many_threads_at_once(answers):
    texts = REAL[:60]
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


def test_importing_does_nothing():
    done = run_python(
        "import sys, threading, unprm.answers.equivalence\n"
        "assert threading.active_count() == 1\n"
        "print(sorted({'sympy', 'math_verify', 'mpmath', 'torch', 'numpy'} & sys.modules.keys()))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_an_interpreter_that_forgets_to_close_ends_all_the_same():
    done = run_python(
        "from unprm.answers.equivalence import Equivalence\n"
        "equivalence = Equivalence()\n"
        r"print(equivalence.equal('\\sin 1', '\\sin 1 '), equivalence.equal('\\sin x', '\\cos x'))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True False\n", "", 0)
