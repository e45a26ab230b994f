"""A server whose model is `agreement`, or that is asked for it: steps are scored by the other candidates."""

from collections.abc import Iterator
from typing import Any

import pytest

from server.models.load import load
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.server.harness import Running, ask, boxed, serving
from tests.support import until
from unprm.engines.agreement import AgreementEngine
from unprm.votes.registry import VOTES
from unprm_client import Client
from unprm_client.rewards import per_token, process_advantages

PROBLEM = "Two crates hold 3 apples each, and half of them are sold. How many are left?"
SOLUTIONS: list[Any] = [
    ["2 * 3 = 6.", "6 / 2 = 3 + 0.5 = 3.5.", "The answer is 3.5."],
    "It is 6, then 7/2.\n\nThe answer is 7/2.",
    ["2 * 3 = 8.", "8 - 3 = 5.", "The answer is 5."],
    {"id": "d", "steps": ["So 6 - 2 = 4.", "The answer is 4."]},
]
SCORES = [[2 / 3, 1 / 3, None], [None, None], [0.0, 0.0, None], [0.0, None]]
REWARDS = [name for name, vote in VOTES.items() if vote.signal == "reward"]
MESSAGES = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "a"}]
BODY = {"problem": PROBLEM, "solutions": SOLUTIONS}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(AgreementEngine(64)) as running:
        yield running


@pytest.fixture(scope="module", params=["served", "asked for"])
def client(request: pytest.FixtureRequest, server: Running) -> Iterator[tuple[Client, dict[str, Any]]]:
    """A client, and what it has to say."""
    if request.param == "served":
        with Client(server.url) as client:
            yield client, {}
    else:
        with serving(FakeEngine()) as running, Client(running.url) as client:
            yield client, {"model": ["agreement"]}


def test_steps_are_scored_by_the_other_candidates(client: tuple[Client, dict[str, Any]]) -> None:
    caller, options = client
    response = caller.score_steps(PROBLEM, SOLUTIONS, **options)
    assert [each.step_scores for each in response.solutions] == [pytest.approx(each) for each in SCORES]
    assert [each.first_error for each in response.solutions] == [1, None, 0, 0]
    assert [each.reward for each in response.solutions] == [pytest.approx(1 / 3), None, 0.0, 0.0]
    assert (response.model, response.demonstration, response.usage.tokens) == ("agreement", None, 0)
    mean = caller.score_steps(PROBLEM, SOLUTIONS, aggregate="mean", log_odds=True, **options).solutions
    assert [each.reward for each in mean] == [0.5, None, 0.0, 0.0]
    assert mean[0].step_log_odds == [pytest.approx(0.6931, abs=1e-4), pytest.approx(-0.6931, abs=1e-4), None]


def test_each_problem_has_its_own_candidates(client: tuple[Client, dict[str, Any]]) -> None:
    caller, options = client
    once = [each.step_scores for each in caller.score_steps(PROBLEM, SOLUTIONS, **options).solutions]
    other = ["1 + 1 = 2."] * 4
    both = caller.score_steps(problems=[PROBLEM, "?"] * 4, solutions=_alternating(SOLUTIONS, other), **options)
    assert [each.step_scores for each in both.solutions[::2]] == once
    assert [each.step_scores for each in both.solutions[1::2]] == [[1.0]] * 4


def _alternating(one: list[Any], other: list[Any]) -> list[Any]:
    return [each for pair in zip(one, other, strict=True) for each in pair]


def test_what_came_with_scores_keeps_them_and_counts_as_a_candidate(server: Running) -> None:
    sent = [{"steps": SOLUTIONS[0], "step_scores": [0.9, 0.8, 0.7]}, *SOLUTIONS[1:]]
    found = server.post("/score_steps", {"problem": PROBLEM, "solutions": sent}).json()["solutions"]
    assert [each["step_scores"] for each in found] == [[0.9, 0.8, 0.7], *SCORES[1:]]
    both = {"problems": [PROBLEM] * 4 + ["?"], "solutions": [*SOLUTIONS, sent[0]]}
    found = server.post("/score_steps", both).json()["solutions"]
    assert [each["step_scores"] for each in found] == [*SCORES, [0.9, 0.8, 0.7]]


def test_a_blank_candidate_is_one_that_supports_nothing(server: Running) -> None:
    found = server.post("/score_steps", BODY | {"solutions": [*SOLUTIONS[:3], " "]}).json()["solutions"]
    assert [each["step_scores"] for each in found] == [pytest.approx([1 / 3, 1 / 3, None]), *SCORES[1:3], None]
    assert found[-1]["unscored"]["code"] == "blank"


def test_a_right_answer_goes_with_the_steps_that_have_a_score(server: Running) -> None:
    for combination, first in (("outcome_mean", pytest.approx(1.25)), ("outcome_min", pytest.approx(1 / 3))):
        terms = {"gold": "3.5", "combination": combination}
        found = server.post("/score_steps", BODY | terms).json()["solutions"]
        assert [each.get("combined_reward") for each in found] == [first, 1.0, 0.0, 0.0]


def test_tokens_of_a_step_without_a_score_earn_nothing(server: Running) -> None:
    offsets = [[0, 7], [7, 14], [14, 17]]
    texts = [{"text": f"a = 6\n\nb = {b}\n\nend", "offsets": offsets} for b in (7, 7, 7, 8)]
    with Client(server.url) as client:
        group = client.score_steps(PROBLEM, texts).solutions
    assert [per_token(each, 3) for each in group] == [[1.0, pytest.approx(2 / 3), 0.0]] * 3 + [[1.0, 0.0, 0.0]]
    assert per_token(group[0], 3, differences=True) == [1.0, pytest.approx(-1 / 3), 0.0]
    *_, (first, second, third) = process_advantages(group, 3)
    assert first > second
    assert second < 0.0 == third


@pytest.mark.parametrize("strategy", REWARDS)
def test_votes_by_rewards_are_refused_by_name(server: Running, strategy: str) -> None:
    refused = server.post(f"/vote/{strategy}", BODY)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert f"{strategy} takes rewards, and agreement gives none" in refused.json()["detail"]


def test_a_vote_is_by_majority_unless_all_scores_are_sent(server: Running) -> None:
    for path in ("/vote", "/vote/majority"):
        vote = server.post(path, BODY).json()
        assert (vote["strategy"], vote["answer"]) == ("majority", "3.5")
    assert server.post("/vote", BODY).json()["why_majority"] == "agreement gives no rewards"
    assert list(server.post("/vote/compare", BODY).json()["strategies"]) == ["majority"]
    scored = ask({"steps": boxed(1), "step_scores": [0.1]}, {"steps": boxed(2), "step_scores": [0.9]})
    assert server.post("/vote/prm", scored).json()["answer"] == "2"
    assert set(REWARDS) < set(server.post("/vote/compare", scored).json()["strategies"])
    assert server.post("/vote", scored).json()["strategy"] == "wrf"


@pytest.mark.parametrize(
    ("path", "sent", "reason"),
    [
        ("/score_steps", BODY | {"solutions": SOLUTIONS[:3]}, "/solutions: agreement compares the candidates of a"),
        ("/score_steps", {"problems": [*"aaaabbb"], "solutions": ["1 = 1"] * 7}, "/problems/4: agreement compares"),
        ("/score_steps", {"trajectories": [{"messages": MESSAGES}]}, "not trajectories"),
        ("/preview", {"problem": "?", "solution": "a"}, "reads no single text"),
        ("/classify", {"input": "a"}, "reads no single text"),
        ("/classify", {"messages": MESSAGES}, "reads no single text"),
        ("/rerank", {"query": "?", "documents": ["1 = 1"] * 4}, "gives no rewards"),
        ("/tokenize", {"prompt": "a"}, "reads no single text"),
    ],
)
def test_what_it_can_not_compare_is_refused_in_words(server: Running, path: str, sent: Any, reason: str) -> None:
    refused = server.post(path, sent)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert reason in refused.json()["detail"]


def test_there_is_no_mean_with_a_model() -> None:
    with serving({"a": AgreementEngine(64), "b": FakeEngine()}) as running:
        assert running.post("/score_steps", BODY).json()["model"] == "a"
        refused = running.post("/score_steps", BODY | {"model": ["a", "b"]})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/model")


def test_a_server_is_started_with_it_and_says_what_it_is() -> None:
    settings = Settings(model=["agreement"])
    (request,) = settings.models().values()
    with serving(lambda: load(settings, request)) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        about = running.get("/model").json()
    assert (about["name"], about["family"], about["default_strategy"]) == ("agreement", "agreement", "majority")
    assert "For arithmetic alone" in about["input_format"]
