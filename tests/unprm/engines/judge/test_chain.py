"""Scores read from sampled checks of whole solutions."""

from typing import Any

import pytest

from tests.judge_server import answered, choice, is_sum, judging, token
from unprm.engines.judge.chain import chain_scores
from unprm.engines.judge.chat import Sample, Token
from unprm.errors import ModelInvalid

RIGHT, WRONG = r"Fine: \boxed{correct}. ", r"A slip: \boxed{incorrect}. "


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (RIGHT * 3, [1, 1, 1]),
        (RIGHT + WRONG + RIGHT, [1, 0, 1]),
        (RIGHT + WRONG, [1, 0, 0]),  # it stops at the first error
        (WRONG, [0, 0, 0]),
        (RIGHT * 2, None),
        (RIGHT * 4, None),
        ("", None),
        ("All of it is correct.", None),
        (f"<think>{WRONG * 5}</think>{RIGHT * 3}", [1, 1, 1]),
        (f"<think>{RIGHT * 3}</think>Is the solution correct? Yes", [1, 1, 1]),
        (r"\boxed{\text{Correct}} \boxed{ incorrect } \boxed{Correct}", [1, 0, 1]),
    ],
)
def test_a_chain_has_a_verdict_for_each_step_or_is_dropped(text: str, scores: list[float] | None) -> None:
    assert chain_scores(Sample(text, ()), 3) == scores


def test_the_probability_of_a_verdict_is_read_where_it_is_written() -> None:
    tokens = [
        token("So "),
        token("\\boxed{", **{"\\boxed{": 1.0}),
        token("correct", correct=0.6, inc=0.2, other=0.2),
        token("} \\boxed", x=1.0),
        token("{in", **{"{in": 0.9, "{correct": 0.1, "(correct": 0.5}),
        token("correct}"),
    ]
    found = chain_scores(Sample("", [Token.model_validate(each) for each in tokens]), 2)
    assert found == pytest.approx([0.75, 0.1])


def checks(body: Any) -> Any:
    """A chain whose verdicts are sums', one token for each word."""
    content = body["messages"][-1]["content"]
    verdicts = [RIGHT if is_sum(line) else WRONG for line in content.splitlines() if " = " in line and "?" not in line]
    return answered(*[choice("".join(verdicts))] * body.get("n", 1), completion=50)


@pytest.mark.parametrize("layout", ["plain", "thinkprm"])
def test_a_solution_is_checked_by_several_chains(layout: str) -> None:
    with judging(checks) as judge:
        engine = judge.load(judge_readout="chain", judge_layout=layout, judge_repeats=3, judge_tokens=99)
        done = len(judge.bodies)
        steps = ["1 + 2 = 3", "3 + 3 = 7", "7 + 1 = 8"]
        scores, computed, *_ = engine.score([engine.format.encode("How many?", steps)])
        assert (scores, computed) == ([(1, 0, 1)], [60])
        (body,) = judge.bodies[done:]
        assert (body["n"], body["max_tokens"], body["temperature"]) == (3, 99, 0.6)
        engine.close()
        *_, user = body["messages"]
        assert len(body["messages"]) == {"plain": 2, "thinkprm": 1}[layout]
        if layout == "thinkprm":
            assert "\n\n[Solution]\n\nStep 1: 1 + 2 = 3\nStep 2: 3 + 3 = 7\nStep 3: 7 + 1 = 8\n\n" in user["content"]


def test_chains_without_all_verdicts_are_left_out_and_without_any_a_step_scores_a_half() -> None:
    chains = iter([[RIGHT * 2, RIGHT, WRONG], [RIGHT, "", RIGHT * 5]])

    def answer(body: Any) -> Any:
        if "1 + 1" in body["messages"][-1]["content"]:
            return checks(body)
        return answered(*map(choice, next(chains)))

    with judging(answer) as judge:
        engine = judge.load(judge_readout="chain", judge_repeats=3)
        item = engine.format.encode("How many?", ["a", "b"])
        read, unread = engine.score([item]), engine.score([item])
        assert (read.scores, read.unread) == ([pytest.approx((0.5, 0.5))], 0)
        assert (unread.scores, unread.unread) == ([(0.5, 0.5)], 2)
        engine.close()


def test_a_judge_that_writes_no_verdict_is_refused_at_the_start() -> None:
    with (
        judging(lambda body: answered(choice("I would rather not."))) as judge,
        pytest.raises(ModelInvalid, match="gives no verdict that can be read"),
    ):
        judge.load(judge_readout="chain")
