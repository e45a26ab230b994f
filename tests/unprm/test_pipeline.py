"""The way from candidates to a response, with a scorer that works at once."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

import unprm
from server.routes.gateway.reading import ActionSolution
from tests.fake_engine import FakeEngine
from tests.server.harness import PROBLEM, ask, boxed, serving
from unprm import pipeline
from unprm.calibration import Calibration, sigmoid
from unprm.election.acceptance import ElectionRecord, OnElection
from unprm.errors import UnprmError
from unprm.library import LocalScorer
from unprm.types import StepScores
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import Candidates, VoteRequest

SMALL = 200
"""Tokens of a window."""
LONG = "é" * 110
"""Too long for it only when it is encoded."""


def test_what_is_compared_as_text_is_equal_to_the_same_text_alone() -> None:
    said = [boxed("1/2"), "nothing", boxed("0.5")]
    called = [ActionSolution(steps=["a call"], answer=answer) for answer in ("0.5", "1/2", "0.5")]
    request = VoteRequest(solutions=[*said, *called])
    local = LocalScorer()
    found = local.finish(pipeline.prepare_ballot(request, ["majority"], local))
    assert found.classes == [0, None, 0, 9, 10, 9]


@pytest.mark.parametrize(
    ("strategy", "solutions", "settings"),
    [
        ("prm", [boxed(1), boxed(2), " "], {"on_invalid": "refuse"}),
        ("prm", [boxed(1), boxed(2, LONG)], {"on_invalid": "refuse"}),
        ("prm", [boxed(1, LONG), boxed(2, LONG), "A short text without an answer."], {}),
        ("cisc", [boxed(1), boxed(2)], {}),
        ("cisc", [boxed(1), boxed(2), {"text": "I can't tell.", "confidence": 0.9}], {}),
        ("hmr", [boxed(1), boxed(2)], {"problem": None}),
        ("hmr", ["I see nothing.", "Nor here."], {"problem": None}),
        ("cisc", ["I see nothing.", "Nor here."], {}),
        ("prm", [boxed(1), {"text": "a", "step_scores": [0.5, 0.5]}], {}),
        ("majority", [boxed(1)], {"risk": 0.1}),
    ],
)
def test_a_program_is_refused_what_the_server_refuses(
    strategy: str, solutions: list[Any], settings: dict[str, Any]
) -> None:
    problem = settings.pop("problem", PROBLEM)
    with serving(FakeEngine(max_tokens=SMALL)) as running:
        refused = running.post(f"/vote/{strategy}", ask(*solutions, problem=problem, **settings)).json()
    with pytest.raises(UnprmError) as raised:
        unprm.vote(problem, solutions, strategy, prm=FakeEngine(max_tokens=SMALL), **settings)
    assert (raised.value.code, str(raised.value)) == (refused["code"], refused["detail"])


def test_an_election_is_followed_by_a_hook_whose_fields_are_in_its_outcome() -> None:
    held: list[ElectionRecord] = []

    class Following(LocalScorer):
        def on_election(self, request: Candidates, strategies: Sequence[Strategy]) -> OnElection:
            assert (request.count, list(strategies)) == (3, ["majority"])
            return lambda record: held.append(record) or {"accept": True}

    following = Following()
    request = VoteRequest(solutions=[boxed(1), boxed(2), boxed(2)])
    response = following.finish(pipeline.vote(request, "majority", following))
    (record,) = held
    assert (record.strategy, record.answer, record.certainty) == ("majority", "2", 2 / 3)
    assert (record.compared_as, record.statistics.candidates) == ("stated", 3)
    assert response.accept is True


def test_a_program_s_scores_are_the_server_s() -> None:
    solutions = ["a\n\nb", {"steps": ["c", "d"], "step_scores": [0.25, 0.5]}, ["e"], " ", LONG]
    with serving(FakeEngine(max_tokens=SMALL)) as running:
        expected = running.post("/score_steps", ask(*solutions)).json()["solutions"]
    found = unprm.score(FakeEngine(max_tokens=SMALL), PROBLEM, solutions)
    assert [scores and list(scores) for scores in found] == [each["step_scores"] for each in expected]
    assert found[1] == (0.25, 0.5)
    assert unprm.score(FakeEngine(), PROBLEM, [" "]) == [None]


def test_what_no_judge_judged_has_no_scores() -> None:
    class Silent(FakeEngine):
        def score(self, batch: Any) -> list[StepScores]:
            first, *others = super().score(batch)
            return [first._replace(missing=1), *others]

    voted = unprm.vote(PROBLEM, [boxed(1), boxed(2)], "prm", prm=Silent())
    assert [each.unscored and each.unscored.code for each in voted.solutions] == ["no_verdict", None]
    assert (voted.answer, voted.solutions[0].reward) == ("2", None)
    assert voted.usage.computed_tokens == voted.usage.tokens > 0  # what was run in vain, too


def test_the_mean_of_models_is_of_calibrated_scores() -> None:
    models = [FakeEngine(calibration=Calibration(shift=shift)).description for shift in (0.0, 1.0)]
    first = [StepScores((0.5, 0.5)), StepScores((0.5,))]
    second = [StepScores((0.5, 0.25)), StepScores((0.0,), missing=1)]
    mean, unread = pipeline.averaged([first, second], models)
    assert mean.values == pytest.approx([(0.5 + sigmoid(1.0)) / 2, (0.5 + sigmoid(1 - math.log(3))) / 2])
    assert (mean.missing, unread.missing) == (0, 1)


CODE = ["def add(a, b):\n    return a", "def add(a, b):\n    return a + b", "Let me think:\n\nI'd add them."]


@pytest.mark.parametrize("strategy", [name for name, vote in VOTES.items() if vote.signal == "reward"])
def test_the_highest_reward_elects_where_nobody_has_an_answer(strategy: str) -> None:
    found = unprm.vote(None, [[text] for text in CODE], strategy, step_scores=[[0.2], [0.9], [0.4]])
    assert (found.solution_index, found.answer, found.decided_by) == (1, "solution 1", "reward")
    assert (found.strategy, found.compared_as, found.margin) == (strategy, "none", 0.5)
    with serving(FakeEngine()) as running:
        over = running.post(f"/vote/{strategy}", ask(*CODE)).json()
        rewards = [each["reward"] for each in over["solutions"]]
    assert (over["solution_index"], over["decided_by"]) == (rewards.index(max(rewards)), "reward")


def test_the_highest_confidence_elects_where_nobody_has_an_answer() -> None:
    solutions = [{"text": text, "confidence": sure} for text, sure in zip(CODE, (0.1, 0.2, 0.9), strict=True)]
    found = unprm.vote(None, solutions, "cisc")
    assert (found.solution_index, found.decided_by, found.compared_as) == (2, "confidence", "none")
