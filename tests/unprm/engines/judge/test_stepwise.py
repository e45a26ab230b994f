"""Scores read from the answer to each step: what is sent, and what is made of the answers."""

import math
from typing import Any

import pytest

from tests.judge_server import MODEL, answered, checks_sums, choice, is_self_test, is_sum, judging, last_step, token
from tests.support import columns
from unprm.engines.judge.answers import expected, stated
from unprm.errors import ModelInvalid
from unprm.openai.client import NEUTRAL
from unprm.openai.models import Alternative
from unprm.types import Engine

YES_NO = {"yes": 1.0, "no": 0.0}
WORDS = {"correct": 1.0, "incorrect": 0.0}
STEPS = ["1 + 2 = 3", "3 + 3 = 7", "7 + 1 = 8"]


def likely(**probabilities: float) -> list[Alternative]:
    return [Alternative(token=text, logprob=math.log(value)) for text, value in probabilities.items()]


@pytest.mark.parametrize(
    ("tokens", "answers", "score"),
    [
        ({"Yes": 0.6, " yes": 0.1, "YES": 0.05, "No": 0.2, "▁No": 0.05}, YES_NO, 0.75),
        ({"Yes": 0.4, "Maybe": 0.5}, YES_NO, 1.0),
        ({"Yes": 0.05, "No": 0.05, "Maybe": 0.9}, YES_NO, 0.5),
        ({"Yes": 0.01, "No": 0.08, "Maybe": 0.9}, YES_NO, None),
        ({"Yes": 1e-5, "No": 9e-5}, YES_NO, None),
        ({"Maybe": 0.9, "The": 0.1, "": 0.1, "Y": 0.1, "n": 0.1, "Yesterday": 0.1}, YES_NO, None),
        ({"correct": 0.3, "in": 0.6, "c": 0.1}, WORDS, 1 / 3),
        ({"inc": 0.5, "cor": 0.5}, WORDS, 0.5),
        ({"Y": 0.25, "N": 0.75}, {"y": 1.0, "n": 0.0}, 0.25),
        ({"9": 0.5, "0": 0.25, "10": 0.25}, {str(n): n / 9 for n in range(10)}, 2 / 3),
    ],
)
def test_an_answer_is_found_among_the_likeliest_tokens(tokens: Any, answers: Any, score: float | None) -> None:
    found = expected(likely(**tokens), answers)
    assert found == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("text", "score"), [("Yes", 1), (" **No**, since", 0), ("\nyes.", 1), ("Not so", None), ("…", None), ("", None)]
)
def test_a_sampled_answer_is_its_first_word(text: str, score: float | None) -> None:
    assert stated(text, YES_NO) == score


def test_each_step_is_scored_after_the_steps_before_it() -> None:
    with judging() as judge:
        engine: Engine = judge.load()
        done = len(judge.bodies)
        scores, computed, tokens, *_ = columns(engine.score([engine.format.encode("How many?", STEPS)]))
        assert scores == [pytest.approx((0.9, 0.2, 0.9))]
        assert (computed, tokens) == ([3 * 41], [3 * 101])
        first, *others = judge.bodies[done:]
        engine.close()
    assert [last_step(first), *sorted(map(last_step, others))] == [
        STEPS[2],
        *STEPS[:2],
    ]  # the longest conversation first
    assert [message["role"] for message in first["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    for body in others:
        assert first["messages"][: len(body["messages"])] == body["messages"]
    options = {name: value for name, value in first.items() if name != "messages"}
    sampling = {"max_tokens": 1, "temperature": 0.0, "top_p": 1.0, **NEUTRAL}
    assert options == {"model": MODEL, "logprobs": True, "top_logprobs": 20, **sampling}


def test_candidates_of_a_problem_begin_alike_and_the_preview_shows_what_is_sent() -> None:
    with judging() as judge:
        engine = judge.load()
        done = len(judge.bodies)
        items = [engine.format.encode("How many?", [step]) for step in STEPS]
        engine.score(items)
        contents = [[message["content"] for message in body["messages"]] for body in judge.bodies[done:]]
        assert len({content[0] for content in contents}) == 1
        assert len({content[1].partition("<step")[0] for content in contents}) == 1
        shown = engine.format.text(items[0])
        (sent,) = [content for content in contents if STEPS[0] in content[1]]
        assert shown == f"<|system|>\n{sent[0]}\n\n<|user|>\n{sent[1]}"
        engine.close()


def test_without_log_probabilities_the_score_is_a_frequency() -> None:
    answers = iter(["Yes", "Yes.", "no", "Who knows?"] * 100)

    def answer(body: Any) -> Any:
        assert "logprobs" not in body or body["max_tokens"] == 1
        if is_self_test(body):
            return answered(*[choice("Yes" if is_sum(last_step(body)) else "No")] * body.get("n", 1))
        return answered(choice(next(answers)))  # one, whatever `n` is

    with judging(answer) as judge:
        engine = judge.load(judge_repeats=4)
        done = len(judge.bodies)
        scores, computed, tokens, *_ = columns(engine.score([engine.format.encode("How many?", STEPS[:1])]))
        assert scores == [pytest.approx((2 / 3,))]
        assert tokens == computed == [4 * 11]
        assert [body.get("n") for body in judge.bodies[done:]] == [4, None, None, None]
        assert {body["temperature"] for body in judge.bodies[done:]} == {1.0}
        assert "mean score of 4 sampled answers" in engine.description.input_format
        assert engine.description.self_test is not None
        assert engine.description.self_test.tolerance == 1.0
        engine.close()


def test_fewer_tokens_are_asked_for_where_twenty_are_refused() -> None:
    with judging(statuses=[400]) as judge:
        engine = judge.load()
        assert [body["top_logprobs"] for body in judge.bodies[:3]] == [20, 5, 5]
        assert "over the 5 likeliest tokens" in engine.description.input_format
        engine.close()
    with judging(
        lambda body: answered(*[choice("Yes" if is_sum(last_step(body)) else "No")] * body.get("n", 1)),
        statuses=[422, 422],
    ) as judge:
        engine = judge.load()
        assert "logprobs" not in judge.bodies[-1]
        assert columns(engine.score([engine.format.encode("How many?", STEPS)])).values == [(1, 0, 1)]
        engine.close()


def test_an_answer_may_begin_with_white_space() -> None:
    def answer(body: Any) -> Any:
        (verdict,) = checks_sums(body)["choices"]
        blank = token("\n", **{"\n": 0.9, "Yes": 0.1})
        tokens = [blank, *verdict["logprobs"]["content"]]
        return answered(choice("\nYes", *tokens[: body["max_tokens"]]))

    with judging(answer) as judge:
        engine = judge.load()
        assert columns(engine.score([engine.format.encode("How many?", STEPS)])).values == [
            pytest.approx((0.9, 0.2, 0.9))
        ]
        assert [body["max_tokens"] for body in judge.bodies[:3]] == [1, 4, 4]
        engine.close()


def test_a_step_without_a_verdict_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def answer(body: Any) -> Any:
        if "CANARY" in last_step(body):
            return answered(choice("Well", token("Well", Well=0.9, Hm=0.1)))
        return checks_sums(body)

    with judging(answer) as judge:
        engine = judge.load()
        found = columns(
            engine.score([engine.format.encode("How many?", steps) for steps in (["CANARY", STEPS[1]], STEPS[:1])])
        )
        assert (found.values[0][1], found.missing) == (pytest.approx(0.2), [1, 0])
        engine.close()
    assert "no verdict on 1 of 3 steps" in caplog.text
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge_layout": "thinkprm"}, "--judge-readout verdict has the layouts plain, not thinkprm"),
        ({"judge_layout": "genprm"}, "--judge-readout verdict has the layouts plain, not genprm"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: Any, message: str) -> None:
    with judging() as judge, pytest.raises(ModelInvalid, match=message):
        judge.load(**options)
