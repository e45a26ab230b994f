"""What the gateway says of an election, and what it returns where there is nothing to elect."""

import threading
from typing import Any

import pytest

from tests.fake_engine import FakeEngine
from tests.fakes import upstream
from tests.server.gateway.harness import PROBLEM, ask, boxed, elected, gateway
from tests.server.harness import embedded
from unprm.errors import ModelUnavailable

SILENT = "no candidate states an answer; the first is returned as the upstream wrote it"
HAIKU = [f"{line}:\nan old silent pond." for line in ("A frog", "The frog", "A splash")]


def test_candidates_that_are_cut_are_counted_and_named() -> None:
    texts = ["so 4", boxed(4), boxed(5), boxed(4)]
    with upstream(*texts, cut={0}) as reasoner, gateway(reasoner) as running:
        answer = ask(running, max_tokens=220, extra_body={"unprm": {"strategy": "majority", "budget": 4}})
        other = ask(running, max_completion_tokens=9, extra_body={"unprm": {"budget": 1}})
        unlimited = ask(running, max_tokens=None, extra_body={"unprm": {"budget": 4, "round": 4}})
    report = answer.unprm
    assert (report["cut"], report["without_answer_count"], report["share"]) == (1, 1, pytest.approx(2 / 3))
    assert report["notes"] == [
        "1 of 4 candidates was truncated at max_tokens=220",
        "1 of 4 candidates states no answer",
        "2 of 3 candidates with an answer have the elected one; the next answer has 1",
    ]
    assert other.unprm["notes"] == ["1 of 1 candidates was truncated at max_completion_tokens=9", SILENT]
    assert "1 of 4 candidates was truncated at the gateway's limit of 8192 tokens" in unlimited.unprm["notes"]


@pytest.mark.parametrize("strategy", ["majority", "cisc"])
def test_what_stands_where_a_candidate_is_cut_is_no_answer(strategy: str) -> None:
    texts = ["Some steps:\n\n1. Count the eggs.\n2", "It is 6 * 7.\n\nThe answer is 42.\n\nLet us che"]
    with upstream(*texts, cut={0, 1}) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy=strategy, budget=2, round=1)
    assert (report["answer"], report["without_answer_count"], report["cut"]) == ("42", 1, 2)


def test_without_answers_the_first_is_returned_as_it_is_unless_a_vote_takes_rewards() -> None:
    """And nothing is scored: a model that fails does not matter."""
    message = {"role": "assistant", "content": HAIKU[0], "reasoning_content": "frogs"}
    engine = FakeEngine(failures=dict.fromkeys(range(9), ModelUnavailable("it is gone")))
    with upstream(message, *HAIKU[1:]) as reasoner, gateway(reasoner, engine) as running:
        answer, report = elected(running, budget=3, round=3, strategy="majority")
    assert answer.choices[0].message.model_dump(exclude_none=True) == message
    assert (report["answer"], report["decided_by"], report["reward"], report["share"]) == (None, None, None, None)
    assert (report["solution_index"], report["without_answer_count"], report["usage"]["tokens"]) == (0, 3, 0)
    assert (report["notes"], report["compared_as"], report["stopped"]) == ([SILENT], "none", "budget")


@pytest.mark.parametrize(
    ("terms", "sampled"),
    [
        ({}, 2),
        ({"budget": 4}, 4),
        ({"round": 4}, 8),
        ({"strategy": "cisc"}, 8),
        ({"strategy": "prm"}, 8),
    ],
)
def test_no_more_is_sampled_than_shows_that_nothing_can_be_voted_on(terms: dict[str, Any], sampled: int) -> None:
    budget = {"budget": 8, "stable": 1}
    with upstream(*HAIKU) as reasoner, gateway(reasoner, gateway_strategy="majority") as running:
        _, report = elected(running, **(budget | terms))
    assert (report["sampled"], reasoner.given) == (sampled, sampled)
    stopped = "no_answer" if terms == {} else "budget"
    assert report["stopped"] == stopped
    told = "no more than 2 of 8 candidates were sampled: no reward can elect one"
    assert (told in report["notes"]) == (stopped == "no_answer")


def test_a_first_candidate_with_an_answer_has_the_others_sampled() -> None:
    """In rounds that end with as many as ever: after four, and eight."""
    with upstream(HAIKU[0], boxed(1), boxed(1)) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="majority", budget=9, stable=1)
    assert (report["answer"], report["sampled"], report["rounds"]) == ("1", 8, 3)
    assert [body.get("n", 1) for body in reasoner.bodies] == [2, 2, 4]


def test_a_first_candidate_that_only_ends_with_a_result_has_the_others_sampled() -> None:
    """Alone it has no witness."""
    with upstream(HAIKU[0], *["So it is 7."] * 7) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="majority", budget=8)
    assert (report["answer"], report["read_from"], report["stopped"]) == ("7", "weak", "stable")


def test_a_candidate_that_is_cut_is_not_returned_if_another_is_whole() -> None:
    for texts, cut, index in ((HAIKU, {0}, 1), (["", *HAIKU[1:]], {1}, 2), (HAIKU, {0, 1, 2}, 0), (["", " "], (), 0)):
        with upstream(*texts, cut=cut) as reasoner, gateway(reasoner) as running:
            answer, report = elected(running, strategy="majority", budget=len(texts))
        assert (answer.choices[0].message.content, report["solution_index"]) == (texts[index], index)
        assert report["notes"][-1] == (SILENT if index == 0 else SILENT.replace("the first", f"candidate {index}"))
        assert report["cut"] == len(cut)


def test_a_candidate_with_a_false_equation_is_not_returned_if_another_has_none() -> None:
    texts = ["0.2 * 150 = 300", "0.2 * 150 = 30"]
    with upstream(*texts) as reasoner, gateway(reasoner, embedded()) as running:
        answer, report = elected(running, "What is 20% of 150?", budget=2)
    assert (answer.choices[0].message.content, report["solution_index"], report["answer"]) == (texts[1], 1, None)


def test_a_vote_by_rewards_or_confidence_elects_also_without_answers() -> None:
    with upstream(*HAIKU) as reasoner, gateway(reasoner) as running:
        for strategy, signal in (("prm", "reward"), (None, "reward"), ("cisc", "confidence")):
            _, report = elected(running, budget=3, **({} if strategy is None else {"strategy": strategy}))
            assert (report["decided_by"], report["compared_as"]) == (signal, "none")
            said = f"no candidate states an answer; the one with the highest {signal} is returned"
            assert report["notes"][0].startswith(said)


def test_what_no_reward_can_read_is_answered_all_the_same_unless_a_vote_by_it_is_named() -> None:
    with upstream(*HAIKU) as reasoner, gateway(reasoner, FakeEngine(max_tokens=20)) as running:
        answer, report = elected(running, budget=3)
    assert answer.choices[0].message.content == HAIKU[0]
    assert (report["decided_by"], report["notes"]) == (None, [SILENT])


@pytest.mark.parametrize(
    ("strategy", "texts", "share", "note"),
    [
        (
            "majority",
            [boxed(44), boxed(45)],
            0.5,
            "1 of 2 candidates has the elected answer; the next answer has 1, a tie",
        ),
        ("majority", [boxed(1)] * 3, 1.0, "3 of 3 candidates have the elected answer"),
        (
            "majority",
            [boxed(1), boxed(1), boxed(2)],
            2 / 3,
            "2 of 3 candidates have the elected answer; the next answer has 1",
        ),
        (
            "wrf",
            [boxed(1), boxed(1), boxed(2)],
            2 / 3,
            "2 of 3 candidates have the elected answer; the next answer has 1, but an equal score",
        ),
        (
            "cisc",
            [boxed(1), boxed(2), boxed(2)],
            1 / 3,
            "1 of 3 candidates has the elected answer; the next answer has 2, but a lower score",
        ),
    ],
)
def test_the_share_and_the_margin_of_the_elected_answer_are_told(
    strategy: str, texts: list[str], share: float, note: str
) -> None:
    """`stable` is 1 once all are sampled, however close the vote was."""
    # log-probabilities come one candidate per request: in a round of several in any order
    rounds: dict[str, Any] = {"round": 1, "temperature": 0.01} if strategy == "cisc" else {"round": len(texts)}
    terms = {"strategy": strategy, "budget": len(texts), "stable": 1} | rounds
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, **terms)
    assert (report["share"], report["notes"][0]) == (pytest.approx(share), note)
    assert report.get("supported") is (False if strategy == "wrf" else None)
    assert (report["stable"], report["stopped"]) == (1.0, "budget")


def test_a_vote_that_falls_back_on_frequency_says_so() -> None:
    texts = [boxed(number, "x" * 500) for number in (1, 2, 2)]
    with upstream(*texts) as reasoner, gateway(reasoner, FakeEngine(max_tokens=200)) as running:
        _, report = elected(running, strategy="wrf", budget=3, round=3)
    assert report["notes"][-1] == "no candidate with an answer has the reward that wrf needs: frequency decided"


def test_all_candidates_are_in_the_report_if_the_request_wants_them() -> None:
    texts = [boxed(1), boxed(2)]
    with upstream(*texts, cut={1}) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, budget=2, show_samples=True)
        _, by_old_name = elected(running, budget=2, candidates=True)
        _, without = elected(running, budget=2)
    assert (
        report["solutions"]
        == by_old_name["solutions"]
        == [
            {"index": 0, "text": texts[0], "finish_reason": "stop"},
            {"index": 1, "text": texts[1], "finish_reason": "length"},
        ]
    )
    assert "solutions" not in without


def test_of_a_single_candidate_there_is_nothing_to_say() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, budget=1)
    assert (report["answer"], report["notes"]) == ("1", [])


def test_candidates_that_came_before_the_deadline_vote() -> None:
    """Also those of a round that is not over."""
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"budget": 4, "round": 4}}
    texts = [boxed(1), boxed(2)]
    with upstream(*texts, takes_n=False, held={2: threading.Event()}) as reasoner, gateway(reasoner) as running:
        report = running.post("/v1/chat/completions", body, headers={"X-Request-Timeout": "2"}).json()["unprm"]
    assert (report["sampled"], report["stopped"], report["share"]) == (3, "failures", pytest.approx(2 / 3))
    assert report["failures"] == [{"candidates": 1, "detail": "they were not waited for: time ran out"}]


CHOICE = "Which is a prime? Answer with the letter.\nA) 4\nB) 7\nC) 9\nD) 12"


@pytest.mark.parametrize("path", ["chat", "stream", "responses"])
def test_answers_to_a_question_with_options_are_their_letters(path: str) -> None:
    texts = [
        "B",
        "The answer is **B) 7**.",
        "Only 7 is a prime.\n\nThe answer is \\boxed{B}.",
        "C",
        "The answer is (C) 9",
    ]
    terms = {"strategy": "majority", "budget": 5, "round": 5}
    chat = {"model": "m", "messages": [{"role": "user", "content": CHOICE}], "unprm": terms}
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("chat/completions", chat),
        "stream": ("chat/completions", chat | {"stream": True}),
        "responses": ("responses", {"model": "m", "input": CHOICE, "unprm": terms}),
    }
    address, body = requests[path]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        answer = running.post(f"/v1/{address}", body).text
    assert '"answer":"B","count":3,"members":[0,1,2]' in answer.replace(" ", "").replace("\n", "")
    assert "the question lists options, so answers are read as option letters" in answer


def test_the_request_says_how_answers_are_read_whatever_the_question_lists() -> None:
    with upstream("The answer is (B) 7.", "The answer is 7.") as reasoner, gateway(reasoner) as running:
        terms = {"strategy": "majority", "budget": 2, "round": 2}
        _, read = elected(running, CHOICE, **terms, extraction="auto")
        _, letters = elected(running, CHOICE, **terms)
    assert (read["answer"], read["candidates"][0]["count"], len(read["notes"])) == ("7", 2, 1)
    assert (letters["answer"], letters["without_answer_count"]) == ("B", 1)
