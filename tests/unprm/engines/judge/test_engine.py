"""The judge as an engine: its start, its self-test, its limits, and a server that stops and comes back."""

import asyncio
import math
import threading
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.fakes import at_once
from tests.judge_server import answered, checks_sums, choice, is_self_test, is_sum, judging, last_step, token
from tests.support import PATIENCE, columns, free_port, until
from unprm.engines.judge.chat import JudgeChat
from unprm.engines.judge.engine import JudgeEngine
from unprm.engines.judge.methods import CALL
from unprm.engines.judge.self_test import QUESTIONS
from unprm.engines.model_queue import ModelQueue
from unprm.errors import ModelBusy, ModelInvalid, ModelUnavailable, ModelUnreachable
from unprm.models.judge import load_judge, pick_methods
from unprm.models.options import EngineOptions, JudgeOptions
from unprm.types import PromptLimits, Usage

STEPS = ["1 + 2 = 3", "3 + 3 = 7"]
READOUTS = pick_methods(JudgeOptions())


def test_the_description_says_how_it_is_read_and_what_the_self_test_found() -> None:
    with judging() as judge:
        engine = judge.load()
        about = engine.description
        assert (about.name, about.family, about.engine, about.device) == ("some/llm", "judge", "judge", judge.url)
        assert (
            about.input_format
            == "verdict, layout plain: expected score of the answer (yes or no) over the 20 likeliest tokens"
        )
        assert about.self_test is not None
        assert (about.self_test.difference, about.self_test.cached) == (0, True)
        engine.close()


def test_its_calls_are_made_in_the_context_of_each_batch() -> None:
    caller = ContextVar[str]("caller")

    async def whose() -> str:
        return caller.get("nobody")

    with judging() as judge:
        engine = judge.load()
        caller.set("one")
        assert engine.call(whose()) == "one"
        engine.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda body: answered(choice("?", token("?", **{"?": 1.0}))), "gives no verdict that can be read"),
        (
            lambda body: answered(
                choice("Yes", token("Yes", **({"No": 0.9, "Yes": 0.1} if is_sum(last_step(body)) else {"Yes": 1.0})))
            ),
            r"right steps score 0\.10, 0\.10, 0\.10, 0\.10 and wrong ones 1\.00.* must lie .* it is not a judge",
        ),
        (
            lambda body: answered(choice("Yes", token("Yes", Yes=0.9, No=0.1))),
            r"right steps score 0\.90.* wrong ones 0\.90",
        ),
        (
            lambda body: answered(choice("Yes", token("Yes", Yes=0.9 if is_sum(last_step(body)) else 0.8, No=0.2))),
            r"right steps score 0\.82.* wrong ones 0\.80",
        ),
        (lambda body: answered(choice("…", token("…", **{"…": 0.9, "Yes": 1e-5, "No": 9e-5}))), "gives no verdict"),
        (
            lambda body: checks_sums(body) if is_sum(last_step(body)) else answered(choice("?", token("?", Hm=1.0))),
            "gives no verdict that can be read",
        ),
        (lambda body: {"nonsense": 1}, "did not answer with a chat completion"),
        (lambda body: b"nonsense", "did not answer with a chat completion"),
        (
            lambda body: answered(choice("Yes", {"token": "Yes", "logprob": math.nan, "top_logprobs": []})),
            "did not answer with a chat completion",
        ),
    ],
)
def test_a_judge_that_cannot_judge_a_sum_is_refused(answer: Any, message: str) -> None:
    with judging(answer) as judge, pytest.raises(ModelInvalid, match=message):
        judge.load()


def test_a_judge_that_answers_the_same_question_differently_is_refused() -> None:
    asked: list[str] = []

    def answer(body: Any) -> Any:
        asked.append(str(body["messages"]))
        again = asked.count(asked[-1]) > 1 and last_step(body) == QUESTIONS[1].right
        return answered(choice("Yes", token("Yes", Yes=0.1, No=0.9))) if again else checks_sums(body)

    with judging(answer) as judge, pytest.raises(ModelInvalid, match=r"scores of the same step differ by 0\.80"):
        judge.load()


@pytest.mark.parametrize(
    ("status", "message"), [(401, "answered 401"), (404, "answered 404"), (400, "refuses the conv")]
)
def test_a_server_that_refuses_is_no_judge(status: int, message: str) -> None:
    with judging(statuses=[status] * 9) as judge, pytest.raises(ModelInvalid, match=message) as caught:
        judge.load()
    assert "How many?" not in str(caught.value)


def test_a_judge_that_is_not_there_is_refused() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    options = JudgeOptions(judge_url=url, judge_model="m")
    with pytest.raises(ModelInvalid, match=r"does not answer \(ConnectError\)"):
        load_judge(options, EngineOptions(), PATIENCE)
    with pytest.raises(ModelInvalid, match="needs --judge-url and --judge-model"):
        load_judge(JudgeOptions(judge_url=url), EngineOptions(), PATIENCE)


def test_a_refused_request_costs_its_step_a_verdict_and_others_nothing() -> None:
    with judging() as judge:
        engine = judge.load()
        port = int(judge.url.rpartition(":")[2])
    with judging(statuses=[400], port=port):
        first = columns(engine.score([engine.format.encode("How many?", STEPS)]))
        assert first.values[0][0] == pytest.approx(0.9)  # the last step is asked first
        assert first.tokens == [101]
        assert first.missing == [1]
        engine.close()


async def out_of_time() -> None:
    raise TimeoutError


def checks_after(gate: threading.Event, body: Any) -> Any:
    """What the judge answers: at once in the self-test, and else once the gate is open."""
    if not is_self_test(body):
        gate.wait(PATIENCE)
    return checks_sums(body)


def test_a_batch_does_not_take_longer_than_its_caller_waits() -> None:
    gate = threading.Event()
    with judging(partial(checks_after, gate)) as judge:
        patient = judge.load()
        hasty = JudgeEngine(
            JudgeChat(judge.url, None, "m", 4, PATIENCE),
            READOUTS,
            patient.description,
            0.05,
        )
        item = hasty.format.encode("How many?", STEPS)
        with pytest.raises(ModelUnreachable, match=r"did not answer a batch within 0\.05 s"):
            hasty.score([item])  # which gets an answer when the gate opens
        hasty.call(at_once(0))  # it goes on
        gate.set()
        assert columns(patient.score([item])).values == [pytest.approx((0.9, 0.2))]
        hasty.close()
        patient.close()


def test_the_time_of_a_batch_is_a_share_of_its_callers_patience() -> None:
    with judging() as judge:
        engine = judge.load(patience=100.0)
        with pytest.raises(ModelUnreachable, match="did not answer a batch within 90 s"):
            engine.call(out_of_time())
        engine.close()


def test_a_call_that_takes_too_long_names_the_option() -> None:
    gate = threading.Event()
    with judging(partial(checks_after, gate)) as judge:
        engine = judge.load()
        engine.close()
        engine = JudgeEngine(JudgeChat(judge.url, None, "m", 4, 0.05), READOUTS, engine.description, PATIENCE)
        with pytest.raises(ModelUnreachable, match=r"does not answer a call within 0\.05 s: --judge-seconds"):
            engine.score([engine.format.encode("How many?", STEPS[:1])])
        gate.set()
        engine.close()


def test_a_server_that_tells_its_slots_is_sent_no_more_than_it_works_on() -> None:
    """The rest would wait there, while its time runs; and batches are smaller."""
    with judging(slots=3) as judge:
        engine = judge.load()
        assert engine.description.prompt_limits == PromptLimits(batch=2 * 3 * CALL, request=4_194_304)
        engine.close()


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    running, most, lock, loaded = 0, 0, threading.Lock(), threading.Event()

    def answer(body: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if loaded.is_set():
            until(lambda: most >= 3)
        with lock:
            running -= 1
        return checks_sums(body)

    with judging(answer) as judge:
        engine = judge.load(judge_concurrency=3)
        loaded.set()
        engine.score([engine.format.encode("How many?", [f"{n} + 1 = {n + 1}"] * 4) for n in range(6)])
        engine.close()
    assert most == 3


def test_a_judge_that_is_down_fails_requests_and_comes_back() -> None:
    """The queue is not ready meanwhile, and finds out by itself when it is again; nothing is lost for good."""
    with judging() as judge:
        engine = judge.load()
        scores, computed, tokens, *_ = columns(engine.score([engine.format.encode("How many?", STEPS)] * 2))
        assert (scores, computed, tokens) == ([pytest.approx((0.9, 0.2))] * 2, [82] * 2, [202] * 2)

    async def test() -> None:
        item = engine.format.encode("How many?", STEPS)
        lost: list[bool] = []
        scorer = ModelQueue(engine, retry=0.05, on_loss=lambda: lost.append(True))
        for _ in range(4):  # more than the failures after which a model is tested
            with pytest.raises(ModelUnavailable, match="the judge's server does not answer"):
                await scorer.score([item])
            with scorer.reserve(1):
                pass
            with pytest.raises(ModelUnavailable, match="does not answer"):
                scorer.check_ready()
        with judging(port=int(judge.url.rpartition(":")[2])):
            async with asyncio.timeout(PATIENCE):
                while not _ready(scorer):
                    await asyncio.sleep(0.01)
            scored = await scorer.score([item, item])
            assert columns(scored.scores).values == [pytest.approx((0.9, 0.2))] * 2
            assert scored.usage == Usage(404, 82, 322)  # of two equal items, one is last_step about
            await scorer.drain(PATIENCE)
        assert not lost

    asyncio.run(test())


def test_a_judge_that_has_too_much_to_do_fails_requests_and_stays_ready() -> None:
    with judging() as judge:
        engine = judge.load()
        port = int(judge.url.rpartition(":")[2])

    async def test() -> None:
        scorer = ModelQueue(engine)
        with judging(statuses=[429] * 3, headers={"Retry-After": "0"}, port=port):
            with pytest.raises(ModelBusy, match="the judge's server answered 429"):
                await scorer.score([engine.format.encode("How many?", STEPS[:1])])
            scorer.check_ready()
        await scorer.drain(PATIENCE)

    asyncio.run(test())


def _ready(scorer: ModelQueue) -> bool:
    try:
        scorer.check_ready()
    except ModelUnavailable:
        return False
    return True


def test_a_judge_s_cost_is_its_calls_and_their_prompts() -> None:
    """Prompts grow with each step, so their tokens grow with the square of the steps; no call is free."""
    with judging() as judge:
        engine = judge.load(judge_concurrency=4, judge_prompt_tokens=9999)
        assert engine.description.prompt_limits == PromptLimits(batch=2 * 4 * CALL, request=9999)
        one, few = (engine.format.encode("p", ["a"] * steps) for steps in (1, 3))
        assert (one.cost, few.cost) == (CALL, 3 * CALL)
        done = len(judge.bodies)
        many = engine.format.encode("p", [f"{number} + 1 = {number + 1}" for number in range(40)])
        engine.score([many])
        prompts = [sum(len(message["content"]) for message in body["messages"]) for body in judge.bodies[done:]]
        assert many.cost == sum(max(CALL, said // 4) for said in prompts)
        assert many.cost > 2 * 40 * CALL / 2
        engine.close()


@pytest.mark.parametrize(
    ("options", "calls", "rounds"),
    [
        ({}, 3, 1),
        ({"judge_readout": "chain"}, 1, 1),
        ({"judge_readout": "chain", "judge_layout": "genprm", "judge_repeats": 5}, 15, 8),
    ],
)
def test_what_a_solution_of_three_steps_costs_in_each_read_out(options: Any, calls: int, rounds: int) -> None:
    readout = pick_methods(JudgeOptions(**options))[None]
    assert readout.prompt_tokens("p", ["a", "b", "c"]) == calls * CALL
    assert readout.rounds == rounds


def test_what_the_judge_s_server_had_cached_is_told_to_no_named_caller() -> None:
    with judging() as judge:
        engine = judge.load()
        item = engine.format.encode("How many?", STEPS)
        done = columns(engine.score([item, replace(item, scope="caller")]))
        assert (done.computed, done.tokens) == ([82, 202], [202, 202])
        engine.close()
