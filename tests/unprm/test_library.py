"""The library's face: what `import unprm` offers, with an engine and without."""

import math
from typing import Any

import pytest

import unprm
from tests.fake_engine import FakeEngine, FakeFormat, hashed
from tests.server.harness import PROBLEM, ask, boxed, serving
from unprm.errors import InvalidRequest, NoAnswer, SolutionTooLong
from unprm.wire import MAX_PAIRS, PairIn, SolutionIn

SOLUTIONS = ["a\n\nb \\boxed{1}", boxed("1.0"), boxed(2, "c"), {"text": "no answer"}, boxed(2), boxed(3)]


def test_every_step_is_scored() -> None:
    found = unprm.score(FakeEngine(max_tokens=200), PROBLEM, ["a\n\nb", ["c"], " ", ["x" * 2100]])
    encode = FakeFormat().encode
    assert found == [hashed(encode(PROBLEM, ["a", "b"])), hashed(encode(PROBLEM, ["c"])), None, None]


def test_answers_are_graded_any_number_of_them() -> None:
    pairs = [{"answer": f"{k % 9}.0", "gold": [str(k % 9), "none"]} for k in range(MAX_PAIRS)]
    found = unprm.grade([*pairs, PairIn(text="It is (B).", gold="C")], extraction="choice")
    assert [each.correct for each in found] == [True] * MAX_PAIRS + [False]
    assert found[-1].answer == "B"


@pytest.mark.parametrize("pairs", ["1", {"answer": "1", "gold": "1"}, [{"answer": "1"}], [3]])
def test_what_is_no_list_of_pairs_is_refused(pairs: Any) -> None:
    with pytest.raises(ValueError, match=r"^/?pairs[^\n]+$"):
        unprm.grade(pairs)


def test_what_is_no_solution_is_refused() -> None:
    for solutions in ([], [3], [{"text": "a", "steps": ["a"]}]):
        with pytest.raises(ValueError, match="solutions"):
            unprm.score(FakeEngine(), PROBLEM, solutions)


@pytest.mark.parametrize(
    ("solutions", "kind"),
    [
        ("7", "str"),
        (b"7", "bytes"),
        ({"text": "7"}, "dict"),
        (SolutionIn(text="7"), "SolutionIn"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_list_of_solutions_is_refused(solutions: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"solutions: expected a list, got {kind}"):
        unprm.score(FakeEngine(), PROBLEM, solutions)
    with pytest.raises(ValueError, match=f"solutions: expected a list, got {kind}"):
        unprm.vote(PROBLEM, solutions, "majority")


@pytest.mark.parametrize(
    "scores", ["0.9", 0.9, {"0": 0.9}, [0.9, 0.8], ["0.9", "0.8"], [{"0": 0.9}, [0.8]], [[[0.9]], [0.8]]]
)
def test_step_scores_of_another_shape_are_refused(scores: Any) -> None:
    with pytest.raises(ValueError, match="step_scores"):
        unprm.vote(PROBLEM, [boxed(1), boxed(2)], step_scores=scores)


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("majority", {}),
        ("prm", {"aggregate": "mean"}),
        ("hmr", {}),
        ("wrf", {"alpha": 0.9, "normalization": "share"}),
        ("best_of_majority", {"min_share": 0.0}),
    ],
)
def test_a_vote_is_the_server_s(strategy: str, settings: dict[str, object]) -> None:
    with serving(FakeEngine(), clock=lambda: 0.0) as running:
        expected = running.post(f"/vote/{strategy}", ask(*SOLUTIONS, **settings)).json()
    found = unprm.vote(PROBLEM, SOLUTIONS, strategy, prm=FakeEngine(), **settings)
    assert found.model_dump(mode="json") == expected


def test_the_default_vote_is_wrf_and_a_demonstration_says_so() -> None:
    voted = unprm.vote(PROBLEM, SOLUTIONS, prm=FakeEngine(demo=True))
    assert voted.strategy == "majority"
    assert voted.demonstration is not None
    assert not voted.demonstration.in_domain


def test_step_scores_need_no_model() -> None:
    solutions = ["a\n\n\\boxed{1}", ["\\boxed{2}"], {"text": "\\boxed{2}"}, "\\boxed{3}"]
    voted = unprm.vote(None, solutions[:3], "prm", step_scores=[(0.9, 0.8), [0.2], [0.3]])
    assert (voted.answer, voted.margin, voted.model) == ("1", pytest.approx(0.5), "")
    scores = [(0.9, 0.8), [0.2], None, None]
    some = unprm.vote(PROBLEM, solutions, "prm", step_scores=scores)
    assert (some.answer, [each.reward for each in some.solutions]) == ("1", [0.8, 0.2, None, None])
    majority = unprm.vote(PROBLEM, solutions, "hmr", step_scores=scores)
    assert (majority.answer, [each.reward for each in majority.solutions]) == ("2", [None] * 4)


def test_confidences_need_no_model() -> None:
    solutions = [{"text": "\\boxed{1}", "token_logprobs": [-0.1]}, {"text": "\\boxed{2}", "confidence": 0.2}]
    voted = unprm.vote(None, solutions, "cisc", temperature=0.1)
    assert (voted.answer, voted.solutions[0].confidence) == ("1", pytest.approx(math.exp(-0.1)))


def test_what_a_vote_lacks_is_said() -> None:
    two = ["\\boxed{1}", "\\boxed{2}"]
    with pytest.raises(ValueError, match="'best' is not a vote; expected one of majority, prm"):
        unprm.vote(PROBLEM, two, "best")
    with pytest.raises(
        ValueError, match='hmr needs rewards to decide: give prm=, or step_scores=, or take strategy="majority"'
    ):
        unprm.vote(PROBLEM, two, "hmr")
    with pytest.raises(InvalidRequest, match="rewards decide: send the problem"):
        unprm.vote(None, two, "hmr", prm=FakeEngine())
    with pytest.raises(ValueError, match="step_scores: expected a list for each of 2 solutions, got 1"):
        unprm.vote(PROBLEM, two, step_scores=[[0.5]])
    with pytest.raises(InvalidRequest, match="1 step has 2 step_scores"):
        unprm.vote(PROBLEM, two, step_scores=[[0.5, 0.5], [0.5]])
    with pytest.raises(NoAnswer):
        unprm.vote(PROBLEM, ["I see nothing."], "majority")
    with pytest.raises(SolutionTooLong):
        unprm.vote(PROBLEM, [boxed(1, "x" * 2100), boxed(2, "x" * 2100)], prm=FakeEngine(max_tokens=200))
    with pytest.raises(ValueError, match=r"^/alpha: is not a field here; expected one of .*solutions, [^()]*$"):
        unprm.vote(PROBLEM, two, "prm", prm=FakeEngine(), alpha=0.5)
    with pytest.raises(ValueError, match=r"^/alpah: is not a field here; expected .* \(did you mean alpha\?\)$"):
        unprm.vote(PROBLEM, two, prm=FakeEngine(), alpah=0.5)
