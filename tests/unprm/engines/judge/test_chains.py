"""Scores read from written checks, of whole solutions and step after step."""

import re
from itertools import count
from typing import Any

import pytest

from tests.fakes import Refusal
from tests.judge_server import answered, choice, is_self_test, is_sum, judging, token, written
from tests.support import columns
from unprm.engines.judge.methods import chain_scores
from unprm.errors import ModelInvalid
from unprm.openai.client import NEUTRAL

RIGHT, WRONG = r"Fine: \boxed{correct}. ", r"A slip: \boxed{incorrect}. "


def check(*verdicts: str) -> str:
    """A check that names each step, and has these verdicts on them."""
    return "".join(f"Step {number}: {verdict}\n" for number, verdict in enumerate(verdicts, 1))


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (check(RIGHT, RIGHT, RIGHT), [1, 1, 1]),
        (check(RIGHT, WRONG, RIGHT), [1, 0, 1]),
        (check(RIGHT, WRONG), [1, 0, 0]),  # it stops at the first error
        (check(WRONG), [0, 0, 0]),
        (check(RIGHT, RIGHT), None),
        (check(RIGHT, RIGHT, WRONG, WRONG), [1, 1, 0]),  # there is no fourth step
        (check(RIGHT, "", WRONG), None),
        (check(RIGHT + RIGHT, WRONG), [1, 0, 0]),  # by number it would be the third that is wrong
        (check(RIGHT * 2, RIGHT, WRONG), [1, 1, 0]),
        (check(WRONG + "No, wait. " + RIGHT, "Step 1 gave 3.", WRONG).replace("Step 2: S", "Step 2: s"), None),
        (check(WRONG + "No, wait. " + RIGHT, "by step 1, 3. " + RIGHT, WRONG), [1, 1, 0]),
        (f"### **Step 1**\n{RIGHT}\n- step 2 - {RIGHT}\n\n  Step 3. {RIGHT}\nAll: {WRONG}", [1, 1, 0]),
        (RIGHT * 3, None),  # which is on which?
        ("", None),
        ("All of it is correct.", None),
        (f"<think>\n{check(WRONG, WRONG, WRONG)}</think>{check(RIGHT, RIGHT, RIGHT)}", [1, 1, 1]),
        (f"<think>\n{check(RIGHT, RIGHT, RIGHT)}</think>Is the solution correct? Yes", [1, 1, 1]),
        (check(r"\boxed{\text{Correct}}", r"\boxed{ incorrect }", r"\boxed{Correct}"), [1, 0, 1]),
    ],
)
def test_a_chain_has_a_verdict_for_each_step_or_is_dropped(text: str, scores: list[float] | None) -> None:
    assert chain_scores(written(text), 3) == scores


def test_a_verdict_on_the_only_step_needs_no_name() -> None:
    assert chain_scores(written(RIGHT), 1) == [1]
    assert chain_scores(written(f"Step 1: {RIGHT}So: {WRONG}"), 1) == [0]


def test_a_check_of_actions_that_breaks_off_says_nothing_of_the_rest() -> None:
    assert chain_scores(written(check(RIGHT, WRONG)), 3, stops=False) is None
    assert chain_scores(written(check(RIGHT, WRONG, RIGHT)), 3, stops=False) == [1, 0, 1]


def test_the_probability_of_a_verdict_is_read_where_it_is_written() -> None:
    tokens = [
        token("Step 1: so "),
        token("\\boxed{", **{"\\boxed{": 1.0}),
        token("correct", correct=0.6, inc=0.2, other=0.2),
        token("}\nStep 2: \\boxed", x=1.0),
        token("{in", **{"{in": 0.9, "{correct": 0.1, "(correct": 0.5}),
        token("correct}"),
    ]
    found = chain_scores(written("", *tokens), 2)
    assert found == pytest.approx([0.75, 0.1])


def checks(body: Any) -> Any:
    """A chain whose verdicts are sums', one token for each word."""
    content = body["messages"][-1]["content"]
    verdicts = [RIGHT if is_sum(line) else WRONG for line in content.splitlines() if " = " in line and "?" not in line]
    return answered(*[choice(check(*verdicts))] * body.get("n", 1), completion=50)


@pytest.mark.parametrize("layout", ["plain", "thinkprm"])
def test_a_solution_is_checked_by_several_chains(layout: str) -> None:
    with judging(checks) as judge:
        engine = judge.load(judge_readout="chain", judge_layout=layout, judge_repeats=3, judge_tokens=99)
        done = len(judge.bodies)
        steps = ["1 + 2 = 3", "3 + 3 = 7", "7 + 1 = 8"]
        scores, computed, *_ = columns(engine.score([engine.format.encode("How many?", steps)]))
        assert (scores, computed) == ([(1, 0, 1)], [60])
        (body,) = judge.bodies[done:]
        assert (body["n"], body["max_tokens"], body["temperature"], body["top_p"]) == (3, 99, 0.6, 0.95)
        assert body.items() >= NEUTRAL.items()
        engine.close()
        *_, user = body["messages"]
        assert len(body["messages"]) == {"plain": 2, "thinkprm": 1}[layout]
        if layout == "thinkprm":
            assert "\n\n[Solution]\n\nStep 1: 1 + 2 = 3\nStep 2: 3 + 3 = 7\nStep 3: 7 + 1 = 8\n\n" in user["content"]


def test_chains_without_all_verdicts_are_left_out_and_without_any_no_step_is_read() -> None:
    chains = iter([[check(RIGHT, RIGHT), check(RIGHT), check(WRONG)], [check(RIGHT), "", RIGHT * 5]])

    def answer(body: Any) -> Any:
        if is_self_test(body):
            return checks(body)
        return answered(*map(choice, next(chains)))

    with judging(answer) as judge:
        engine = judge.load(judge_readout="chain", judge_repeats=3)
        item = engine.format.encode("How many?", ["a", "b"])
        read, unread = columns(engine.score([item])), columns(engine.score([item]))
        assert (read.values, read.missing) == ([pytest.approx((0.5, 0.5))], [0])
        assert unread.missing == [2]
        engine.close()


def test_checks_are_asked_for_one_by_one_where_the_server_has_one_slot() -> None:
    def answer(body: Any) -> Any:
        if body.get("n", 1) > 1:
            return Refusal(400, {"error": {"message": "Field 'n': Value must be between 1 <= value <= 1, but got 3"}})
        return checks(body)

    with judging(answer) as judge:
        engine = judge.load(judge_readout="chain", judge_repeats=3)
        done = len(judge.bodies)
        scored = columns(engine.score([engine.format.encode("How many?", ["1 + 2 = 3"])]))
        assert scored.values == [(1.0,)]
        assert [body.get("n") for body in judge.bodies[done:]] == [None] * 3
        assert scored.tokens == [3 * 60]
        engine.close()


def judgement(analysis: str, yes: float | None) -> Any:
    """GenPRM's check of a step, which ends with this P(Yes) against P(No), or without a verdict."""
    if yes is None:
        return choice(analysis, token(analysis))
    text = f"<analyze>\n{analysis} The step quotes \\boxed{{No}}.\n</analyze>\n"
    likely = {"Yes": yes / 2, " no": (1 - yes) / 2, "Maybe": 0.5}
    head, tail = "<output>\n**Judgement**: $\\boxed{", "}$\n</output>\n"
    return choice(f"{text}{head}Yes{tail}", token(text), token(head), token("Yes", **likely), token(tail))


def judges_sums(body: Any) -> Any:
    """GenPRM's check, without log-probabilities."""
    verdict = "Yes" if is_sum(body["messages"][-1]["content"]) else "No"
    return answered(choice(f"<output>\n**Judgement**: $\\boxed{{{verdict}}}$\n</output>\n"))


def test_genprm_checks_step_after_step_and_each_check_follows_what_it_wrote_itself() -> None:
    numbers = count()
    chances = [(0.9, 0.2), (0.5, 0.6), (0.1, None)]

    def answer(body: Any) -> Any:
        messages = body["messages"]
        if is_self_test(body):
            return judges_sums(body) if body["max_tokens"] > 1 else answered(judgement("", 0.5))
        replies = [message["content"] for message in messages if message["role"] == "assistant"]
        number = int(re.findall(r"Check (\d)", replies[0])[0]) if replies else next(numbers)
        check = judgement(f"Check {number}.", chances[number][len(replies)])
        return answered(check, prompt=100, cached=60, completion=20)

    with judging(answer) as judge:
        engine = judge.load(judge_readout="chain", judge_layout="genprm", judge_repeats=3, judge_tokens=99)
        done = len(judge.bodies)
        item = engine.format.encode("How many?", ["1 + 2 = 3", "3 + 3 = 7"])
        scores, computed, tokens, *_ = columns(engine.score([item]))
        engine.close()
    assert scores == [pytest.approx(((0.9 + 0.5 + 0.1) / 3, (0.2 + 0.6) / 2))]
    assert (computed, tokens) == ([6 * 60], [6 * 120])
    assert engine.description.input_format == (
        r"chain, layout genprm: P(yes) against P(no) at the verdicts \boxed{yes} or \boxed{no} of 3 sampled checks"
    )
    bodies = judge.bodies[done:]
    settings = {(each["max_tokens"], each["temperature"], each["top_logprobs"], each.get("n", 1)) for each in bodies}
    assert settings == {(99, 0.6, 5, 1)}
    system = {
        "role": "system",
        "content": "You are a math teacher. "
        "Your task is to review and critique the paragraphs in solution step by step.",
    }
    first = [system, {"role": "user", "content": "Question: How many?\n\n1 + 2 = 3"}]
    assert [each["messages"] for each in bodies if len(each["messages"]) == 2] == [first] * 3
    later = [each["messages"] for each in bodies if len(each["messages"]) == 4]
    assert sorted(messages[2]["content"] for messages in later) == [
        judgement(f"Check {number}.", yes)["message"]["content"] for number, (yes, _) in enumerate(chances)
    ]
    last = {"role": "user", "content": "3 + 3 = 7"}
    assert all(messages[:2] == first and messages[3] == last for messages in later)
    assert engine.format.text(item) == (
        f"<|system|>\n{system['content']}\n\n<|user|>\nQuestion: How many?\n\n1 + 2 = 3\n\n"
        "<|assistant|>\n(the judge's check of this step)\n\n<|user|>\n3 + 3 = 7"
    )


def test_a_step_scores_by_the_checks_that_judge_it_and_is_unread_without_any() -> None:
    texts = {"a": iter([r"\boxed{Yes}", "", r"\boxed{no}", r"\boxed{\text{Yes}}"]), "b": iter(["", "so: Yes", "?", ""])}

    def answer(body: Any) -> Any:
        step = body["messages"][-1]["content"][-1]
        return answered(choice(next(texts[step]))) if step in texts else judges_sums(body)

    with judging(answer) as judge:
        engine = judge.load(judge_readout="chain", judge_layout="genprm")
        item = engine.format.encode("How many?", ["a", "b"])
        found = columns(engine.score([item]))
        assert (found.values[0][0], found.missing) == (pytest.approx(2 / 3), [1])
        engine.close()


def test_a_check_ends_where_the_server_refuses_the_conversation() -> None:
    with judging(judges_sums) as judge:
        engine = judge.load(judge_readout="chain", judge_layout="genprm", judge_repeats=1)
        port = int(judge.url.rpartition(":")[2])
    with judging(judges_sums, port=port, statuses=[200, 400]) as judge:
        scores, computed, _, unread = columns(engine.score([engine.format.encode("How many?", ["1 + 2 = 3"] * 3)]))
        assert (scores[0][0], computed, unread) == (1, [11], [2])
        assert len(judge.bodies) == 2
        engine.close()


@pytest.mark.parametrize("layout", ["plain", "genprm"])
def test_a_judge_that_writes_no_verdict_is_refused_at_the_start(layout: str) -> None:
    with (
        judging(lambda body: answered(choice("I would rather not."))) as judge,
        pytest.raises(ModelInvalid, match="gives no verdict that can be read"),
    ):
        judge.load(judge_readout="chain", judge_layout=layout)
