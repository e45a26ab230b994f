"""A server whose model is `uncertainty`: it scores by the log-probabilities that a solution brings."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from server.models.load import load
from server.settings import Settings
from tests.server.harness import Running, ask, boxed, serving
from tests.support import MODELS, imported, until
from unprm.engines.uncertainty import READOUT, UncertaintyEngine

SURE, UNSURE = [-0.01] * 8, [-4.0] * 8
TEXT = "1 + 2 = 3.\n\nThe answer is \\boxed{3}."
TOKENS = [
    ("1 +", -0.5),
    (" 2 = 3", -0.25),
    (".\n\n", -0.125),
    ("The", -1.0),
    (" answer is \\boxed{3}.", -2.0),
    ("", 0.0),
]
OPENAIS = [
    {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": [{"token": "no", "logprob": -9.0}]}
    for token, logprob in TOKENS
]
BY_STEP = [[-0.5, -0.25, -0.125], [-1.0, -2.0]]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(UncertaintyEngine(64)) as running:
        yield running


def solution(answer: object, *by_step: list[float]) -> dict[str, Any]:
    return {"steps": boxed(answer, *["so"] * (len(by_step) - 1)), "token_logprobs": list(by_step)}


@pytest.mark.parametrize(
    "sent",
    [
        {"text": TEXT, "token_logprobs": OPENAIS},
        {"text": TEXT, "token_logprobs": BY_STEP},
        {"steps": TEXT.split("\n\n"), "token_logprobs": OPENAIS},
        {"steps": TEXT.split("\n\n"), "token_logprobs": BY_STEP},
    ],
)
def test_steps_are_scored_by_their_tokens_in_every_form(server: Running, sent: dict[str, Any]) -> None:
    body = server.post("/score_steps", ask(sent)).json()
    assert body["solutions"][0]["step_scores"] == pytest.approx([READOUT.score(each) for each in BY_STEP])
    assert (body["model"], body["demonstration"]) == ("uncertainty", None)
    assert {name: body["usage"][name] for name in ("tokens", "computed_tokens", "cached_tokens")} == {
        "tokens": 0, "computed_tokens": 0, "cached_tokens": 0
    }  # fmt: skip


def test_they_decide_a_vote(server: Running) -> None:
    solutions = [solution(1, SURE, UNSURE), solution(2, SURE, SURE), solution(1, UNSURE, SURE)]
    vote = server.post("/vote/prm", ask(*solutions)).json()
    assert (vote["answer"], vote["decided_by"]) == ("2", "reward")
    by_confidence = server.post("/vote/cisc", ask({"text": TEXT, "token_logprobs": OPENAIS}, boxed(4))).json()
    (sent, _) = by_confidence["solutions"]
    assert sent["confidence"] == pytest.approx(math.exp(sum(logprob for _, logprob in TOKENS) / len(TOKENS)))


@pytest.mark.parametrize(
    "lacking",
    [
        boxed(1),
        {"steps": boxed(1), "token_logprobs": SURE},
        {"steps": boxed(1), "token_logprobs": OPENAIS},
        {"text": TEXT + "\n\nIndeed.", "token_logprobs": OPENAIS},
    ],
    ids=["none", "of no step", "of another text", "of a part"],
)
def test_a_solution_without_them_is_not_scored_and_the_field_is_named(server: Running, lacking: Any) -> None:
    refused = server.post("/score_steps", ask(lacking))
    assert (refused.status_code, refused.json()["code"]) == (422, "no_logprobs")
    assert "`token_logprobs`" in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/solutions/0"
    vote = server.post("/vote/prm", ask(lacking, solution(1, SURE), solution(2, UNSURE))).json()
    assert [each["unscored"] and each["unscored"]["code"] for each in vote["solutions"]] == ["no_logprobs", None, None]
    strict = ask(solution(1, SURE), lacking, on_invalid="refuse")
    assert server.post("/score_steps", strict).json()["errors"][0]["pointer"] == "/solutions/1"


def test_as_many_lists_as_steps_are_expected(server: Running) -> None:
    refused = server.post("/score_steps", ask({"text": TEXT, "token_logprobs": [SURE]}))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert "1 lists of token_logprobs were sent for 2 steps" in refused.json()["detail"]
    assert refused.json()["errors"][0]["pointer"] == "/solutions/0/token_logprobs"


def test_what_comes_without_log_probabilities_is_refused(server: Running) -> None:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "The answer is 1."}]
    refused = server.post("/score_steps", {"trajectories": [{"messages": messages}]})
    assert (refused.status_code, refused.json()["code"]) == (422, "no_logprobs")
    assert server.post("/classify", {"messages": messages}).json()["code"] == "no_logprobs"
    prompt = server.post("/classify", {"input": "a"})
    assert prompt.status_code == 422
    assert "token_logprobs" in prompt.text
    preview = {"problem": "?", "solution": boxed(1)}
    assert server.post("/preview", preview).json()["code"] == "no_logprobs"


def test_the_preview_shows_the_surprisals(server: Running) -> None:
    shown = server.post("/preview", {"problem": "?", "solution": solution(1, SURE, UNSURE)}).json()
    first, second = shown["text"].splitlines()
    assert "mean 0.0100" in first
    assert "mean 4.0000" in second
    assert shown["positions"] == [0, 1]


def test_a_long_problem_costs_nothing(server: Running) -> None:
    long = {"problem": "x" * 300_000, "solutions": [solution(1, SURE), solution(2, UNSURE)]}
    assert server.post("/score_steps", long).status_code == 200


def test_a_server_is_started_with_it_and_says_what_it_is() -> None:
    settings = Settings(model=["uncertainty"])
    (request,) = settings.models().values()
    with serving(lambda: load(settings, request)) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        about = running.get("/model").json()
    assert (about["name"], about["family"], about["demo"]) == ("uncertainty", "uncertainty", False)
    assert READOUT.fitted
    assert READOUT.fitted in about["input_format"]


def test_it_is_loaded_without_what_models_need() -> None:
    assert not imported("-c", "import server.models.load, unprm.engines.uncertainty") & MODELS
