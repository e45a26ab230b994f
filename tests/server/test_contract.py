"""What the server answers when all is well."""

import math
import random
from dataclasses import asdict
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, hashed
from tests.server.harness import PROBLEM, Running, ask, boxed, read
from unprm import wire
from unprm.types import Usage
from unprm.votes.registry import REWARD_STRATEGIES, VOTES

SCORED = {"unscored": None}
NO_USAGE = asdict(Usage())


def given(answer: object, *scores: float, **more: object) -> dict[str, object]:
    """A solution that brings its scores and its answer."""
    return {"steps": ["s"] * len(scores), "answer": answer, "step_scores": list(scores), **more}


def _ballots(count: int) -> list[list[dict[str, object]]]:
    """Small ballots, in which ties, halves and candidates without an answer are common."""
    rng = random.Random(7)
    return [
        [given(rng.choice(["7", "8", "9", " "]), rng.choice([0.2, 0.5, 0.9])) for _ in range(rng.randint(2, 5))]
        + [given("7", 0.5)]
        for _ in range(count)
    ]


given_ballots = pytest.mark.parametrize("solutions", _ballots(12))


def test_scores_every_form_of_a_solution_in_order(server: Running) -> None:
    response = server.post(
        "/score_steps",
        ask(
            "one\n\ntwo \\boxed{1}",
            ["one", "two \\boxed{1}"],
            {"id": "x", "text": "only", "answer": "7"},
            {"steps": ["a", "b"], "step_scores": [0.9, 0.2]},
        ),
    )
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    wire.ScoreResponse.model_validate(body)
    first, second, third, fourth = body["solutions"]
    assert first == second
    assert first["step_scores"] == list(hashed(read("one", "two \\boxed{1}")))
    assert first["reward"] == min(first["step_scores"])
    assert (first["answer"], third["answer"], fourth["answer"]) == ("1", "7", None)
    assert (first["id"], third["id"]) == (None, "x")
    assert (fourth["step_scores"], fourth["reward"], fourth["first_error"]) == ([0.9, 0.2], 0.2, 1)
    # equal solutions run once, the one with scores does not run
    tokens, short = len(read("one", "two \\boxed{1}").ids), len(read("only").ids)
    usage = NO_USAGE | {"tokens": 2 * tokens + short, "computed_tokens": tokens + short, "cached_tokens": tokens}
    assert (body["model"], body["aggregate"], body["usage"]) == ("fake", "min", usage)


@pytest.mark.parametrize(("aggregate", "reward"), [("min", 0.2), ("last", 0.5), ("product", 0.1), ("mean", 1.7 / 3)])
def test_aggregate_makes_the_reward(server: Running, aggregate: str, reward: float) -> None:
    request = ask(given(None, 1.0, 0.2, 0.5), aggregate=aggregate)
    body = server.post("/score_steps", request).json()
    assert body["aggregate"] == aggregate
    assert body["solutions"][0]["reward"] == pytest.approx(reward)
    voted = server.post("/vote/prm", request | {"solutions": [given("1", 1.0, 0.2, 0.5)]}).json()
    assert voted["solutions"][0]["reward"] == pytest.approx(reward)
    assert voted["candidates"][0]["max_reward"] == pytest.approx(reward)


@pytest.mark.parametrize(("threshold", "first"), [(0.5, 1), (0.2, None), (0.21, 1), (1.0, 1), (0.0, None)])
def test_threshold_says_what_an_error_is(server: Running, threshold: float, first: int | None) -> None:
    request = ask(given("1", 1.0, 0.2, 0.5), threshold=threshold)
    for path in ("/score_steps", "/vote/majority"):
        assert server.post(path, request).json()["solutions"][0]["first_error"] == first


def test_problem_is_not_needed_when_every_solution_brings_scores(server: Running) -> None:
    body = server.post("/score_steps", {"solutions": [given(None, 0.5)]}).json()
    assert body["usage"] == NO_USAGE


def test_wrf_explains_itself(server: Running) -> None:
    solutions = [given("42", 0.9, id="a"), given("\\frac{84}{2}", 0.7), given("7", 0.95), given(" ", 0.1)]
    body = server.post("/vote/wrf", ask(*solutions, alpha=0.25)).json()
    wire.VoteResponse.model_validate(body)
    assert body == {
        "strategy": "wrf",
        "answer": "42",
        "solution_index": 0,
        "decided_by": "combined",
        "tie": False,
        "tied_answers": [],
        "margin": pytest.approx(0.5),
        "supported": True,
        "candidates": [
            {
                "answer": "42",
                "count": 2,
                "members": [0, 1],
                "mean_reward": pytest.approx(0.8),
                "max_reward": 0.9,
                "normalized_reward": 0.0,
                "normalized_frequency": 1.0,
                "score": pytest.approx(0.75),
            },
            {
                "answer": "7",
                "count": 1,
                "members": [2],
                "mean_reward": 0.95,
                "max_reward": 0.95,
                "normalized_reward": 1.0,
                "normalized_frequency": 0.0,
                "score": pytest.approx(0.25),
            },
        ],
        "solutions": [
            {
                "id": "a",
                "answer": "42",
                "read": "stated",
                "reward": 0.9,
                "step_scores": [0.9],
                "first_error": None,
                **SCORED,
            },
            {
                "id": None,
                "answer": "\\frac{84}{2}",
                "read": "stated",
                "reward": 0.7,
                "step_scores": [0.7],
                "first_error": None,
                **SCORED,
            },
            {
                "id": None,
                "answer": "7",
                "read": "stated",
                "reward": 0.95,
                "step_scores": [0.95],
                "first_error": None,
                **SCORED,
            },
            {"id": None, "answer": None, "read": None, "reward": 0.1, "step_scores": [0.1], "first_error": 0, **SCORED},
        ],
        "unscored_count": 0,
        "without_answer_count": 1,
        "compared_as_text": [],
        "model": "fake",
        "demonstration": None,
        "usage": NO_USAGE,
    }


def test_alpha_is_a_half_unless_said(server: Running) -> None:
    solutions = [given("1", 0.2), given("1", 0.2), given("2", 0.9)]
    body = server.post("/vote/wrf", ask(*solutions)).json()
    assert [candidate["score"] for candidate in body["candidates"]] == [0.5, 0.5]
    assert (body["tie"], body["tied_answers"], body["answer"], body["margin"]) == (True, ["1", "2"], "1", 0.0)


@pytest.mark.parametrize(
    ("strategy", "answer", "index", "decided_by"),
    [("majority", "1", 0, "majority"), ("prm", "2", 3, "reward"), ("weighted", "2", 3, "combined")],
)
def test_the_other_votes(server: Running, strategy: str, answer: str, index: int, decided_by: str) -> None:
    solutions = [given("1", 0.1), given("1", 0.2), given("1", 0.1), given("2", 0.9), given("2", 0.5)]
    body = server.post(f"/vote/{strategy}", ask(*solutions)).json()
    assert (body["strategy"], body["answer"], body["solution_index"]) == (strategy, answer, index)
    assert (body["decided_by"], body["tie"], body["tied_answers"]) == (decided_by, False, [])


def test_majority_looks_at_no_reward_that_was_given(server: Running) -> None:
    body = server.post("/vote/majority", ask(given("1", 0.1), given("2", 0.9))).json()
    assert (body["answer"], body["tie"], body["tied_answers"]) == ("1", True, ["1", "2"])


def test_majority_needs_no_problem(server: Running) -> None:
    body = server.post("/vote/majority", {"solutions": [boxed(1), boxed(2), boxed(2)]}).json()
    assert body["answer"] == "2"


def test_wrf_by_share(server: Running) -> None:
    solutions = [given("1", 0.9)] * 9 + [given("2", 0.91)]
    request = ask(*solutions, alpha=0.6)
    assert server.post("/vote/wrf", request).json()["answer"] == "2"
    for path in ("/vote/wrf", "/vote/compare"):
        body = server.post(path, request | {"normalization": "share"}).json()
        vote = body if path == "/vote/wrf" else body["strategies"]["wrf"]
        assert vote["answer"] == "1"
        assert vote["candidates"][0]["score"] == pytest.approx(0.6 * 0.9 + 0.4 * 0.9)


@given_ballots
def test_every_vote_elects_the_same_at_its_address_and_in_compare(server: Running, solutions: list[Any]) -> None:
    compared = server.post("/vote/compare", ask(*solutions)).json()
    assert list(compared["strategies"]) == list(REWARD_STRATEGIES)
    for strategy in REWARD_STRATEGIES:
        alone = server.post(f"/vote/{strategy}", ask(*solutions)).json()
        together = compared["strategies"][strategy]
        chosen = ("answer", "solution_index", "decided_by", "tie", "tied_answers")
        assert [alone[name] for name in chosen] == [together[name] for name in chosen], strategy


def test_a_candidate_that_cannot_be_scored_costs_itself_alone(server: Running) -> None:
    long, blank = {"text": "x" * 2100, "answer": "1"}, " \n"
    many = ["s"] * 1030 + ["The answer is \\boxed{2}."]
    solutions = [boxed(1), long, boxed(2), blank, many, boxed(3)]
    scored = server.post("/score_steps", ask(*solutions)).json()["solutions"]
    codes = [item["unscored"] and item["unscored"]["code"] for item in scored]
    assert codes == [None, "solution_too_long", None, "blank", "too_many_steps", None]
    assert [item["reward"] is None for item in scored] == [code is not None for code in codes]
    assert [item["step_scores"] is None for item in scored] == [code is not None for code in codes]
    assert [item["answer"] for item in scored] == ["1", "1", "2", None, "2", "3"]
    body = server.post("/vote/wrf", ask(*solutions)).json()
    assert (body["unscored_count"], body["without_answer_count"]) == (3, 1)
    assert sorted(candidate["members"] for candidate in body["candidates"]) == [[0, 1], [2, 4], [5]]
    # the mean is that of the members that were scored
    assert {c["answer"]: c["mean_reward"] for c in body["candidates"]}["1"] == pytest.approx(scored[0]["reward"])
    majority = server.post("/vote/majority", ask(*solutions)).json()
    assert [candidate["count"] for candidate in majority["candidates"]] == [2, 2, 1]


def test_a_vote_elects_the_same_whether_or_not_it_had_to_score(server: Running) -> None:
    """Of seven candidates four are alike, two of which are too long for the model."""
    solutions = [boxed(1), *[{"text": "x" * 2100, "answer": "1"}] * 2, boxed("1.0"), boxed(2), boxed(2), boxed(3)]
    alone = server.post("/vote/hmr", ask(*solutions)).json()
    compared = server.post("/vote/compare", ask(*solutions)).json()
    assert (alone["answer"], alone["decided_by"], alone["unscored_count"]) == ("1", "majority", 0)
    assert compared["strategies"]["hmr"]["answer"] == "1"
    assert (compared["unscored_count"], alone["usage"]) == (2, NO_USAGE)


@pytest.mark.parametrize("strategy", [*REWARD_STRATEGIES, "compare"])
@pytest.mark.parametrize("without_answer", ["nothing", given(" ", 0.9)])
def test_a_candidate_without_an_answer_scores_for_no_other(
    server: Running, strategy: str, without_answer: object
) -> None:
    """The only one that has a reward can't be elected: the vote is refused, for the first of those that could be."""
    solutions = [without_answer, *({"text": "x" * 2100, "answer": str(number)} for number in range(3))]
    response = server.post(f"/vote/{strategy}", ask(*solutions))
    if strategy == "majority":
        assert response.json()["answer"] == "0"
        return
    refused = response.json()
    assert (response.status_code, refused["code"]) == (422, "solution_too_long")
    assert [error["pointer"] for error in refused["errors"]] == ["/solutions/1"]
    scored = server.post("/score_steps", ask(*solutions)).json()["solutions"]
    assert [item["reward"] is None for item in scored] == [False, True, True, True]


def test_a_candidate_without_an_answer_is_confident_for_no_other(server: Running) -> None:
    solutions = [boxed(1), boxed(2), {"text": "nothing", "confidence": 0.9}]
    refused = server.post("/vote/cisc", ask(*solutions))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "no solution with an answer has one" in refused.json()["detail"]
    compared = server.post("/vote/compare", ask(*solutions))
    assert list(compared.json()["strategies"]) == list(REWARD_STRATEGIES)
    alone = server.post("/vote/cisc", ask(boxed(1), solutions[2])).json()
    assert alone["decided_by"] == "only_answer"


@pytest.mark.parametrize(
    ("split", "steps"),
    [("auto", 2), ("paragraph", 2), ("line", 3), ("step", 1)],
)
def test_texts_are_split_as_the_request_says(server: Running, split: str, steps: int) -> None:
    request = ask("one\ntwo\n\nthree", split=split)
    assert len(server.post("/score_steps", request).json()["solutions"][0]["steps"]) == steps
    preview = {"problem": "p", "solution": "one\ntwo\n\nthree", "split": split}
    assert len(server.post("/preview", preview).json()["steps"]) == steps


@pytest.mark.parametrize("path", ["/score_steps", "/vote/majority", "/vote/wrf", "/vote/compare"])
@pytest.mark.parametrize(
    ("extraction", "answer"), [("auto", "7"), ("boxed", None), ("last_number", "7"), ("choice", "B")]
)
def test_answers_are_found_as_the_request_says(server: Running, path: str, extraction: str, answer: str | None) -> None:
    request = ask("I choose (B).\n\nThe answer is 7.", {"steps": ["s"], "answer": "0"}, extraction=extraction)
    assert server.post(path, request).json()["solutions"][0]["answer"] == answer


@pytest.mark.parametrize("strategy", ["majority", "hmr"])
def test_a_majority_runs_no_model(server: Running, engine: FakeEngine, strategy: str) -> None:
    before = len(engine.batches)
    request = ask(boxed(1), boxed("1.0"), boxed(2), ["nothing"])
    body = server.post(f"/vote/{strategy}", request).json()
    assert len(engine.batches) == before
    assert (body["answer"], body["decided_by"], body["usage"]) == ("1", "majority", NO_USAGE)
    assert all(solution["reward"] is None for solution in body["solutions"])
    assert all(solution["step_scores"] is None for solution in body["solutions"])
    assert all(candidate["mean_reward"] is None for candidate in body["candidates"])
    assert body["solutions"][3]["answer"] is None
    assert [candidate["members"] for candidate in body["candidates"]] == [[0, 1], [2]]


@pytest.mark.parametrize("strategy", VOTES)
def test_unanimity_runs_no_model(server: Running, engine: FakeEngine, strategy: str) -> None:
    before = len(engine.batches)
    for others, decided_by in (([], "unanimous"), ([["nothing"]], "only_answer")):
        body = server.post(f"/vote/{strategy}", ask(boxed("0.5"), boxed("\\frac12"), *others)).json()
        assert len(engine.batches) == before
        assert (body["answer"], body["decided_by"], body["margin"]) == ("0.5", decided_by, None)
        assert (body["solution_index"], body["usage"]) == (0, NO_USAGE)


def test_hmr_asks_the_model_where_there_is_no_majority(server: Running) -> None:
    solutions = [boxed(1), boxed(2), boxed(3), ["nothing"], boxed(1), ["nothing"]]
    body = server.post("/vote/hmr", ask(*solutions)).json()
    rewards = [min(hashed(read(*steps))) for steps in solutions]
    best = max((0, 1, 2, 4), key=lambda index: rewards[index])
    assert (body["decided_by"], body["solution_index"]) == ("reward", best)
    assert [solution["reward"] for solution in body["solutions"]] == rewards
    assert body["usage"]["computed_tokens"] > 0


def test_only_solutions_without_scores_are_run(server: Running, engine: FakeEngine) -> None:
    body = server.post("/vote/prm", ask(given("1", 0.5), boxed(2, "mixed"), given("3", 0.4))).json()
    assert engine.batches[-1] == (read(*boxed(2, "mixed")),)
    reward = min(hashed(read(*boxed(2, "mixed"))))
    assert [solution["reward"] for solution in body["solutions"]] == [0.5, reward, 0.4]
    assert body["usage"]["tokens"] == len(read(*boxed(2, "mixed")).ids)


def test_an_undecided_mix_is_not_completed_for_a_majority(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    body = server.post("/vote/hmr", ask(given("1", 0.5), boxed(1), boxed(2))).json()
    assert len(engine.batches) == before
    assert [solution["reward"] for solution in body["solutions"]] == [None, None, None]


def test_compare_takes_every_vote_over_one_pass(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    request = ask(boxed(1, "compared"), boxed(2), boxed(3), boxed(1), boxed(2), boxed(2, "other"))
    body = server.post("/vote/compare", request | {"alpha": 0.7}).json()
    wire.CompareResponse.model_validate(body)
    assert len(engine.batches) == before + 1
    assert list(body["strategies"]) == list(REWARD_STRATEGIES)
    for strategy, outcome in body["strategies"].items():
        if strategy != "hmr":  # which needs no scores here, so alone it reports none
            more = {"alpha": 0.7} if strategy == "wrf" else {}
            alone = server.post(f"/vote/{strategy}", request | more).json()
            if strategy != "majority":
                assert outcome == {key: alone[key] for key in outcome}
            assert outcome["answer"] == alone["answer"]
    winners = {outcome["answer"] for outcome in body["strategies"].values()}
    assert body["agree"] == (len(winners) == 1)


def test_votes_by_confidence_need_no_problem_and_no_model(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    solutions = [
        {"steps": boxed(1), "confidence": 0.9},
        {"steps": boxed(2), "token_logprobs": [-0.5, -0.7]},
        {"steps": boxed(2), "confidence": 0.2},
        {"steps": boxed(3)},
    ]
    body = server.post("/vote/cisc", {"solutions": solutions}).json()
    assert (body["strategy"], body["decided_by"]) == ("cisc", "confidence")
    assert [item["reward"] for item in body["solutions"]] == [None] * 4
    geometric_mean = pytest.approx(math.exp(-0.6))
    assert [item.get("confidence") for item in body["solutions"]] == [0.9, geometric_mean, 0.2, None]
    assert len(engine.batches) == before
    compared = server.post("/vote/compare", ask(*solutions)).json()
    assert list(compared["strategies"]) == [name for name in VOTES if name != "select"]
    assert all("confidence" not in item for item in compared["solutions"])


def test_settings_of_a_vote_reach_it(server: Running) -> None:
    solutions = [given("2" if score < 0.9 else "1", score, confidence=score) for score in (0.9, 0.6, 0.5, 0.1)]
    winners = {
        ("best_of_majority", "min_share", 0.0): "1",
        ("best_of_majority", "min_share", 0.5): "2",
        ("wrf", "alpha", 1.0): "1",
        ("wrf", "alpha", 0.0): "2",
        ("cisc", "temperature", 0.05): "1",
        ("cisc", "temperature", 5.0): "2",
    }
    for (strategy, name, value), winner in winners.items():
        alone = server.post(f"/vote/{strategy}", ask(*solutions, **{name: value})).json()
        compared = server.post("/vote/compare", ask(*solutions, **{name: value})).json()
        assert alone["answer"] == compared["strategies"][strategy]["answer"] == winner, (strategy, name, value)


def test_a_vote_by_confidence_says_what_it_needs(server: Running) -> None:
    refused = server.post("/vote/cisc", ask(boxed(1), boxed(2)))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "token_logprobs" in refused.json()["detail"]
    assert server.post("/vote/cisc", ask(boxed(1), boxed(1))).json()["decided_by"] == "unanimous"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", -0.1),
        ("confidence", "high"),
        ("token_logprobs", []),
        ("token_logprobs", [0.1]),
        ("token_logprobs", [[-0.1], []]),
        ("token_logprobs", [[-0.1], -0.1]),
        ("token_logprobs", [{"token": "a"}]),
        ("token_logprobs", [{"token": "a", "logprob": -0.1}, [-0.1]]),
        ("token_logprobs", {"content": []}),
    ],
)
def test_log_probabilities_that_are_none_are_refused_by_name(server: Running, field: str, value: object) -> None:
    refused = server.post("/vote/cisc", {"solutions": [{"steps": boxed(1), field: value}]})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith(f"/solutions/0/{field}")


@pytest.mark.parametrize(
    ("strategy", "more", "field", "pointer"),
    [
        ("cisc", {}, {"confidence": 1e308}, "/solutions/0/confidence"),
        ("compare", {}, {"confidence": 1e308}, "/solutions/0/confidence"),
        ("cisc", {}, {"token_logprobs": [-1e308, -1e308]}, "/solutions/0/token_logprobs/0"),
        ("cisc", {"temperature": 1e7}, {"confidence": 1.0}, "/temperature"),
        ("compare", {"temperature": 1e7}, {"confidence": 1.0}, "/temperature"),
    ],
)
def test_numbers_whose_sums_are_none_are_refused(
    server: Running, strategy: str, more: dict[str, float], field: dict[str, Any], pointer: str
) -> None:
    solutions = [{"steps": boxed(number % 2), **field} for number in range(2)]
    refused = server.post(f"/vote/{strategy}", ask(*solutions, **more))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize("strategy", [name for name in VOTES if name != "select"])  # which needs a judge
@pytest.mark.parametrize("low", [False, True])
def test_the_largest_numbers_that_are_taken_leave_every_vote_a_result(
    server: Running, strategy: str, low: bool
) -> None:
    """As many candidates as there may be, and every setting at the end of its range."""
    least, most = math.ulp(0.0), 1e6
    extreme = {
        "wrf": {"alpha": 0.0 if low else 1.0},
        "best_of_majority": {"min_share": 0.0 if low else 1.0},
        "cisc": {"temperature": least if low else most},
    }
    solutions = [given(str(number % 5), number % 2, confidence=[1e100, 0.0][number % 2]) for number in range(256)]
    for field in ({}, {"confidence": None, "token_logprobs": [-1e5] * 9}):
        request = ask(*(solution | field for solution in solutions), **extreme.get(strategy, {}))
        voted = server.post(f"/vote/{strategy}", request)
        assert voted.status_code == 200, voted.text
        assert all(math.isfinite(candidate["score"] or 0.0) for candidate in voted.json()["candidates"])


def test_compare_needs_no_model_for_one_answer(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    body = server.post("/vote/compare", ask(boxed(1), boxed("1.0"))).json()
    assert len(engine.batches) == before
    assert (body["agree"], body["usage"]) == (True, NO_USAGE)


def test_answer_overrides_what_the_text_says(server: Running) -> None:
    request = ask({"text": "\\boxed{1}", "answer": "5"}, {"text": "\\boxed{1}", "answer": "  "}, "\\boxed{1}")
    body = server.post("/score_steps", request).json()
    assert [solution["answer"] for solution in body["solutions"]] == ["5", None, "1"]


def test_preview_shows_what_would_be_read(server: Running, engine: FakeEngine) -> None:
    before = len(engine.batches)
    body = server.post("/preview", {"problem": PROBLEM, "solution": "a\n\nb"}).json()
    wire.PreviewResponse.model_validate(body)
    encoded = read("a", "b")
    assert len(engine.batches) == before
    assert (body["token_ids"], body["positions"]) == (list(encoded.ids), list(encoded.positions))
    assert (body["text"], body["steps"]) == (f"{PROBLEM}\naşbş", ["a", "b"])
    assert len(body["tokens"]) == len(body["token_ids"])


def test_probes_and_model(server: Running) -> None:
    assert server.get("/healthz").json() == server.get("/readyz").json() == {"status": "ok"}
    body = server.get("/model").json()
    wire.ModelResponse.model_validate(body)
    assert (body["name"], body["demo"]) == ("fake", False)
    assert body["limits"] == {
        "max_solutions": 256,
        "max_steps_per_solution": 1024,
        "max_tokens_per_solution": 2048,
        "max_body_bytes": 8388608,
        "max_queued_tokens": 1048576,
        "max_request_seconds": 60.0,
        "max_candidates": None,
    }


def test_metrics_count(server: Running) -> None:
    wrf = 'unprm_requests_total{route="/vote/wrf",status="200"}'
    names = (wrf, 'unprm_votes_total{strategy="wrf"}', 'unprm_ties_total{strategy="wrf"}')
    before = [server.metric(name) for name in names]
    tokens = server.metric("unprm_tokens_total"), server.metric("unprm_computed_tokens_total")
    usage = server.post("/vote/wrf", ask(boxed(1), boxed(2, "x"), alpha=1.0)).json()["usage"]
    server.post("/vote/wrf", ask(given("1", 0.2), given("1", 0.2), given("2", 0.9)))
    assert [server.metric(name) for name in names] == [before[0] + 2, before[1] + 2, before[2] + 1]
    assert server.metric("unprm_tokens_total") == tokens[0] + usage["tokens"]
    assert server.metric("unprm_computed_tokens_total") == tokens[1] + usage["computed_tokens"]
    assert server.metric("unprm_queued_tokens") == server.metric("unprm_queued_requests") == 0
    text = server.get("/metrics").text
    for name in ("equivalence_timeouts_total", "equivalence_answers_total", "request_seconds_bucket"):
        assert f"unprm_{name}" in text
    assert server.metric("unprm_equivalence_answers_total") > 0
    assert server.get("/metrics").headers["content-type"].startswith("text/plain")


def test_documentation_is_there(server: Running) -> None:
    assert "swagger" in server.get("/docs").text.lower()


def test_request_id_is_the_callers_if_it_is_sane(server: Running) -> None:
    for path in ("/healthz", "/nowhere", "/score_steps"):
        assert server.get(path, headers={"X-Request-ID": "abc.1_2-3"}).headers["x-request-id"] == "abc.1_2-3"
        for odd in ("", "a b", "x" * 129, "ä".encode("latin-1"), '"><script>'):
            sent = server.get(path, headers={"X-Request-ID": odd}).headers["x-request-id"]
            assert len(sent) == 32
            assert sent.isalnum()


def test_a_comparison_repeats_no_long_answer(server: Running) -> None:
    answers = [letter * 50_000 for letter in "abcdefgh"]
    body = {"solutions": [{"steps": ["x"], "step_scores": [0.5], "answer": answer} for answer in answers]}
    response = server.post("/vote/compare", body)
    assert len(response.content) < 1.5 * len(response.request.content)
    compared = response.json()
    assert [solution["answer"] for solution in compared["solutions"]] == answers
    assert compared["agree"]
    for vote in compared["strategies"].values():
        assert vote["answer"] == "a" * 1000 + "…"
        assert {len(candidate["answer"]) for candidate in vote["candidates"]} == {1001}
    short = {"solutions": [{"steps": ["x"], "step_scores": [0.5], "answer": "a" * 1000}]}
    assert server.post("/vote/compare", short).json()["strategies"]["prm"]["answer"] == "a" * 1000
