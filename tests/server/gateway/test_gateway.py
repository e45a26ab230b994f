"""OpenAI's API with votes behind it, called by OpenAI's client over HTTP."""

import json
import logging
import re
import socket
import threading
from typing import Any

import httpx
import openai
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.fake_engine import FakeEngine
from tests.fakes import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    STREAMED,
    TOKENS,
    Refusal,
    Upstream,
    openai_server,
    top_logprobs,
    upstream,
)
from tests.server.gateway.harness import PROBLEM, ask, boxed, client, elected, gateway, refusal
from tests.server.harness import Background, Running, raw, serving
from tests.support import PATIENCE, until
from unprm.votes.registry import VOTES, Strategy


@pytest.mark.parametrize("strategy", [name for name, vote in VOTES.items() if vote.signal != "preference"])
def test_the_elected_completion_is_answered(strategy: Strategy) -> None:
    """A vote on the same candidates elects the same one."""
    texts = [boxed(7, "a"), boxed(8, "b"), boxed(9, "c"), boxed("7.0"), boxed(9, "d"), boxed(8, "e")]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        # log-probabilities come one candidate per request: in a round of several in any order
        round = 1 if VOTES[strategy].signal == "confidence" else 6
        answer, report = elected(running, strategy=strategy, budget=6, stable=1, round=round)
        solutions = [
            {
                "text": text,
                "token_logprobs": [top_logprobs(number, place)[0] for place in range(TOKENS)],
            }
            for number, text in enumerate(texts)
        ]
        vote = running.post(f"/vote/{strategy}", {"problem": PROBLEM, "solutions": solutions}).json()
    assert answer.choices[0].message.content == texts[vote["solution_index"]]
    assert answer.object == "chat.completion"
    assert answer.model == "m-served"
    for name in ("strategy", "answer", "decided_by", "tie", "margin", "solution_index", "candidates"):
        assert report[name] == vote[name], name
    assert report["reward"] == vote["solutions"][vote["solution_index"]]["reward"]
    assert (report["sampled"], report["saved"], report["rounds"]) == (6, 0, 6 / round)
    assert (report["unscored"], report["failures"], report["model"]) == ([], [], "fake")


def test_votes_by_confidence_run_no_prm_and_hide_log_probabilities_that_were_not_asked_for() -> None:
    with upstream(boxed(1), boxed(2), boxed(2)) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, strategy="cisc", budget=3, stable=1, round=3)
        assert (reasoner.bodies[0]["logprobs"], "top_logprobs" in reasoner.bodies[0]) == (True, False)
        assert answer.choices[0].logprobs is None
        assert (report["decided_by"], report["reward"]) == ("confidence", None)
        assert report["usage"]["tokens"] == 0
        more: dict[str, Any] = {"extra_body": {"unprm": {"strategy": "cisc", "budget": 3}}}
        shown = ask(running, logprobs=True, top_logprobs=7, **more)
        assert reasoner.bodies[-1]["top_logprobs"] == 7
        assert len(shown.choices[0].logprobs.content[0].top_logprobs) == 7


def test_the_most_confident_of_candidates_without_answers_is_elected() -> None:
    with upstream("It may be.", "Nor is this.", "Perhaps it is.") as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="cisc", budget=3, stable=1, round=1)
    assert (report["answer"], report["decided_by"]) == (None, "confidence")
    values = [sum(top_logprobs(number, place)[0] for place in range(TOKENS)) for number in range(3)]
    assert report["solution_index"] == values.index(max(values))


@pytest.mark.parametrize("strategy", ["prm", "wrf"])
def test_answers_of_which_none_can_be_scored_are_elected_by_their_frequency(strategy: str) -> None:
    texts = ["nothing", *(boxed(number, "x" * 500) for number in (1, 2, 2))]
    with upstream(*texts) as reasoner, gateway(reasoner, FakeEngine(max_tokens=200)) as running:
        answer, report = elected(running, strategy=strategy, budget=4, round=2, stable=1)
    assert answer.choices[0].message.content == texts[2]
    assert (report["answer"], report["decided_by"], report["without_answer_count"]) == ("2", "majority", 1)
    assert (report["strategy"], report["sampled"], report["reward"]) == (strategy, 4, None)
    assert (report["stable"], report["stopped"]) == (0.0, "budget")


@pytest.mark.parametrize("lacking", [{"content": None}, {"content": []}, None])
def test_a_candidate_without_log_probabilities_leaves_the_vote_to_the_others(lacking: Any) -> None:
    """As of a provider that caches some completions, or drops the log-probabilities of a refusal."""
    texts = [boxed(1), boxed(1), boxed(2)]
    terms = {"strategy": "cisc", "budget": 3, "round": 3, "stable": 1}
    absent = dict.fromkeys((0, 1), lacking)
    with upstream(*texts, logprobs=absent) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, **terms)
    assert (report["answer"], report["decided_by"]) == ("2", "confidence")
    assert [candidate["count"] for candidate in report["candidates"]] == [1, 2]
    # where the answers have none, and only a text without an answer has: frequency decides
    texts = [boxed(1), boxed(1, "b"), boxed(2), "nothing"]
    with upstream(*texts, logprobs=dict.fromkeys(range(3))) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, **terms | {"budget": 4, "round": 4})
    assert (report["answer"], report["decided_by"]) == ("1", "majority")


def test_an_upstream_without_log_probabilities_is_named() -> None:
    with upstream(boxed(1), boxed(2), gives_logprobs=False) as reasoner, gateway(reasoner) as running:
        messages = [{"role": "user", "content": PROBLEM}]
        refused = running.post(
            "/v1/chat/completions", {"model": "m", "messages": messages, "unprm": {"strategy": "cisc"}}
        )
    assert refused.status_code == 502
    assert "log-probabilities" in refused.json()["error"]["message"]


def test_several_choices_are_the_best_answers() -> None:
    """In the order of the vote, each by its best completion; fewer than `n` if there are no more answers."""
    terms = {"unprm": {"strategy": "majority", "budget": 6, "stable": 1}}
    texts = [boxed(1), boxed(2), boxed(2), boxed(3), boxed(3), boxed(3)]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        two, many = (ask(running, n=n, extra_body=terms) for n in (2, 9))
        chunks = list(ask(running, n=2, stream=True, extra_body=terms))
    assert [(choice.index, choice.message.content) for choice in two.choices] == [(0, boxed(3)), (1, boxed(2))]
    assert [choice.message.content for choice in many.choices] == [boxed(3), boxed(2), boxed(1)]
    assert all("n" not in body or body["n"] > 1 for body in reasoner.bodies)
    streamed = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == [boxed(3), boxed(2)]


def test_usage_is_that_of_all_candidates() -> None:
    with upstream(boxed(1), boxed(2)) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, budget=6, round=2, stable=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6 * COMPLETION_TOKENS
    assert answer.usage.prompt_tokens == 3 * PROMPT_TOKENS
    assert answer.usage.total_tokens == answer.usage.completion_tokens + answer.usage.prompt_tokens
    # in every round all candidates are voted on, and two are new: they are equal to those of the first
    assert report["usage"]["computed_tokens"] > 0
    assert report["usage"]["tokens"] == sum(report["usage"][name] for name in ("computed_tokens", "cached_tokens"))


def test_the_request_reaches_the_upstream_as_it_is() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner, upstream_key="theirs") as running:
        more = {"temperature": 0.4, "top_p": 0.9, "stop": ["x"], "seed": 5, "max_tokens": 9}
        ask(running, key="ours", extra_body={"unprm": {"budget": 3, "round": 2, "stable": 1}, "top_k": 3}, **more)
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "top_k": 3, **more}
    assert reasoner.bodies == [body | {"n": 2} | STREAMED, body | {"seed": 7}]
    assert reasoner.keys == ["Bearer theirs"] * 2


def test_the_defaults_are_the_server_s() -> None:
    settings = {"gateway_budget": 3, "gateway_strategy": "hmr", "gateway_stable": 1.0}
    with upstream(boxed(1), boxed(2)) as reasoner, gateway(reasoner, **settings) as running:
        _, report = elected(running)
        assert running.get("/model").json()["limits"]["max_candidates"] == 3
    assert (report["strategy"], report["budget"], report["sampled"]) == ("hmr", 3, 3)


def test_greedy_candidates_are_warmed_up_and_stay_reproducible() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        for _ in range(2):
            ask(running, temperature=0, extra_body={"unprm": {"budget": 4, "round": 2, "stable": 1}})
        ask(running, temperature=0, extra_body={"unprm": {"budget": 1}})
    sampling = [(body["temperature"], body.get("seed")) for body in reasoner.bodies]
    assert sampling == [(0.7, 0), (0.7, 2)] * 2 + [(0, None)]


def test_stops_when_the_vote_can_t_change() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="majority", budget=16, round=4, stable=1)
    assert (report["sampled"], report["saved"], report["rounds"], report["stopped"]) == (12, 4, 3, "stable")
    assert report["stable"] == 1.0
    assert reasoner.given == 12


def test_stops_when_the_vote_will_hardly_change() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="majority", budget=16, round=4, stable=0.9)
        _, all_of_them = elected(running, strategy="wrf", budget=16, round=4, stable=1)
    assert (report["sampled"], report["stopped"]) == (4, "stable")
    assert 0.9 <= report["stable"] < 1
    assert (all_of_them["sampled"], all_of_them["stopped"]) == (16, "budget")


def test_goes_on_while_the_vote_is_open() -> None:
    with upstream(boxed(1), boxed(2), boxed(3)) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, strategy="majority", budget=9, round=3)
    assert report["sampled"] == 9


def test_an_upstream_that_gives_one_at_a_time_is_called_for_each() -> None:
    texts = [boxed(number) for number in range(4)]
    with upstream(*texts, takes_n=False) as reasoner, gateway(reasoner) as running:
        answer = ask(running, seed=1, extra_body={"unprm": {"budget": 4, "stable": 1}})
    assert sorted(c["answer"] for c in answer.unprm["candidates"]) == ["0", "1", "2", "3"]
    assert sorted(body["seed"] for body in reasoner.bodies) == [1, 2, 3, 4]


def test_without_answers_the_highest_reward_is_elected_if_the_request_names_a_vote_by_it() -> None:
    texts = ["I can't tell.", "Nobody knows.", "It depends."]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        answer, report = elected(running, budget=3, strategy="wrf")
        scored = running.post("/score_steps", {"problem": PROBLEM, "solutions": texts}).json()
    rewards = [solution["reward"] for solution in scored["solutions"]]
    assert (report["answer"], report["decided_by"], report["candidates"]) == (None, "reward", [])
    assert report["reward"] == max(rewards)
    assert answer.choices[0].message.content == texts[rewards.index(max(rewards))]


def test_what_the_model_can_t_read_stays_a_candidate_without_a_reward() -> None:
    texts = ["x" * 500, "", "a\n\nb\n\nc\n\n\\boxed{6}", boxed(5), {"role": "assistant", "content": None}]
    with upstream(*texts) as reasoner, gateway(reasoner, FakeEngine(max_tokens=200), max_steps=3) as running:
        answer, report = elected(running, budget=5, round=5, strategy="prm")
    assert answer.choices[0].message.content == boxed(5)
    assert (report["answer"], report["solution_index"]) == ("5", 3)
    assert [candidate["members"] for candidate in report["candidates"]] == [[3], [2]]
    reasons = {reason["index"]: reason["code"] for reason in report["unscored"]}
    assert reasons == {0: "solution_too_long", 1: "blank", 2: "too_many_steps", 4: "blank"}
    assert (report["without_answer_count"], report["compared_as_text"]) == (3, [])


def test_answers_and_steps_are_read_as_the_request_says() -> None:
    texts = ["so 4\nor 5", "\\boxed{9}"]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        options = {"budget": 2, "round": 2, "strategy": "wrf", "stable": 1}
        _, stated = elected(running, **options)
        _, guessed = elected(running, **options, extraction="last_number", normalization="share", split="line")
        body = {"problem": PROBLEM, "solutions": texts, "split": "line"}
        scored = running.post("/score_steps", body).json()["solutions"]
    assert (stated["without_answer_count"], guessed["without_answer_count"]) == (1, 0)
    best = max(scored, key=lambda solution: solution["reward"])
    assert guessed["reward"] == pytest.approx(best["reward"])
    assert guessed["candidates"][0]["normalized_frequency"] == 0.5


def test_nothing_to_elect_is_the_upstream_s_failure() -> None:
    with (
        upstream("", " ") as reasoner,
        gateway(reasoner) as running,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        elected(running, budget=2, strategy="prm")
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_failed")
    assert "none of the 2 candidates has text" in str(caught.value)


def test_later_failures_cost_candidates_and_are_reported() -> None:
    texts = [boxed(1), boxed(2), boxed(3)]
    with upstream(*texts, errors={1: PlainTextResponse("x", 500)}) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, budget=9, round=3, strategy="majority")
    assert (report["sampled"], report["rounds"], report["stopped"]) == (6, 3, "budget")
    assert report["failures"] == [{"candidates": 3, "detail": "the upstream answered 500: x"}]


def test_an_upstream_that_keeps_failing_is_not_called_again() -> None:
    errors = {number: PlainTextResponse("x", 500) for number in range(1, 9)}
    with upstream(boxed(1), boxed(2), boxed(3), errors=errors) as reasoner, gateway(reasoner) as running:
        _, report = elected(running, budget=30, round=3, strategy="majority")
    assert (report["sampled"], report["stopped"], len(reasoner.bodies)) == (3, "failures", 3)


@pytest.mark.parametrize(
    ("response", "status", "code", "detail"),
    [
        (refusal(400, "context too long"), 400, "upstream_refused", "the upstream answered 400: context too long"),
        (refusal(404, "no model m"), 404, "upstream_refused", "/v1/chat/completions: no model m"),
        (PlainTextResponse("<html>", 422), 422, "upstream_refused", "answered 422: without a reason"),
        (refusal(401), 502, "upstream_failed", "refuses the gateway's key"),
        (refusal(402, "no credit"), 400, "upstream_refused", "the upstream answered 402: no credit"),
        (PlainTextResponse("x", 500), 502, "upstream_failed", "the upstream answered 500: x"),
        (JSONResponse({"error": {"message": "limit", "code": 429}}), 429, "upstream_busy", "now (429): limit"),
        (JSONResponse({"object": "error", "message": "no", "code": 400}), 400, "upstream_refused", "400: no"),
        (JSONResponse({"choices": [{"error": {"message": "gone"}}]}), 502, "upstream_failed", "an error: gone"),
        (PlainTextResponse("<html>"), 502, "upstream_failed", "not JSON"),
        (JSONResponse({"choices": 3}), 502, "upstream_failed", "not a chat completion"),
        (JSONResponse([]), 502, "upstream_failed", "not a chat completion"),
        (refusal(429, **{"Retry-After": "17"}), 429, "upstream_busy", "the upstream takes no more requests now"),
        (refusal(429, **{"Retry-After": "999999999"}), 429, "upstream_busy", "the upstream takes no more requests"),
        (JSONResponse({"choices": []}), 502, "upstream_failed", "not a chat completion"),
        (PlainTextResponse('{"choices": [{"message": {"content": "\\ud83d"}}]}'), 502, "upstream_failed", "not JSON"),
        (refusal(503, **{"Retry-After": "3"}), 503, "upstream_unavailable", "the upstream is not available now"),
    ],
)
def test_errors_of_the_upstream_are_reported(response: Response, status: int, code: str, detail: str) -> None:
    """In the form that OpenAI's client expects, and as problem details; in a stream, which has begun, as an event."""
    with upstream(boxed(1), errors={0: response, 1: response}) as reasoner, gateway(reasoner) as running:
        with pytest.raises(openai.APIStatusError) as caught:
            ask(running)
        with pytest.raises(openai.APIError, match=re.escape(detail)) as late:
            ask(running, stream=True)
    error = caught.value
    assert (error.status_code, error.code, late.value.code) == (status, code, code)
    assert detail in str(error)
    body = error.response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert detail in body["detail"]
    if code in ("upstream_busy", "upstream_unavailable"):
        asked = int(response.headers.get("retry-after", 1))
        assert error.response.headers["retry-after"] == str(min(60, asked))


def completion(message: str = '{"content": "x"}', usage: str = "{}", choice: str = "", model: str = '"m"') -> Response:
    """A completion with these parts, which need not be JSON."""
    logprobs = '{"content": [{"token": "x", "logprob": NUMBER, "top_logprobs": []}]}'.replace("NUMBER", choice or "-1")
    body = f'{{"model": {model}, "usage": {usage}, "choices": [{{"message": {message}, "logprobs": {logprobs}}}]}}'
    return Response(body, media_type="application/json")


@pytest.mark.parametrize(
    "response",
    [
        JSONResponse({"choices": []}),
        completion(message='{"content": "\\ud800"}'),
        completion(message='{"content": "x", "reasoning": "\\udfff"}'),
        completion(message='{"content": "x", "y": [1e999]}'),
        completion(message='{"content": "x", "y": NaN}'),
        completion(message='{"content": "x", "y": ' + "[" * 900 + "]" * 900 + "}"),
        completion(message="null"),
        completion(choice="-1e999"),
        completion(choice="NaN"),
        completion(model='"\\ud800"'),
        Response('{"choices": ' + "[" * 1000 + "]" * 1000 + "}"),
        Response("NaN"),
    ],
    ids=lambda response: response.body.decode()[:110],
)
def test_what_an_upstream_says_amiss_is_its_failure(response: Response) -> None:
    """Also while candidates are streamed."""
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "logprobs": True, "unprm": {"budget": 1}}
    with upstream(boxed(1), refused={PROBLEM: response}) as reasoner, gateway(reasoner) as running:
        for more in ({}, {"unprm": {"budget": 2, "strategy": "cisc"}}):
            refused = running.post("/v1/chat/completions", body | more)
            assert (refused.status_code, refused.json()["code"]) == (502, "upstream_failed")
        *_, event, _ = running.post("/v1/chat/completions", body | {"stream": True}).text.split("\n\n")
        assert json.loads(event.removeprefix("event: error\ndata: "))["error"]["code"] == "upstream_failed"


@pytest.mark.parametrize(
    "content", [b'{"data": [{"id": "m", "x": 1e999}]}', b'{"data": [{"id": "\\ud800"}]}', b"NaN", b'{"data": 3}']
)
def test_models_that_an_upstream_lists_amiss_are_its_failure(content: bytes) -> None:
    with openai_server(lambda body: content) as (url, _), serving(FakeEngine(), upstream_url=url) as running:
        for path in ("/v1/models", "/v1/models/m"):
            refused = running.get(path)
            assert (refused.status_code, refused.json()["code"]) == (502, "upstream_failed")


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
@pytest.mark.parametrize("tools", ["", ', "tools": [{"type": "function"}]'])
def test_numbers_that_json_can_t_hold_are_not_passed_on(path: str, number: str, tools: str) -> None:
    messages = f'[{{"role": "user", "content": "x", "y": {number}}}]'
    bodies = [f'{{"model": "m", "messages": {messages}{tools}}}']
    for field in (f'"top_k": {number}', f'"logit_bias": {{"1": [{number}]}}', f'"stream_options": {{"x": {number}}}'):
        bodies.append(f'{{"model": "m", "messages": [{{"role": "user", "content": "x"}}], {field}{tools}}}')
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        for body in bodies:
            refused = running.http.post(f"/v1/{path}", content=body, headers={"Content-Type": "application/json"})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
            assert "JSON can't represent" in refused.json()["detail"]
        assert not reasoner.bodies


@pytest.mark.parametrize("strategy", ["wrf", "cisc"])
@pytest.mark.parametrize("value", ["x", "5", [1], -1, 2.5, True])
def test_top_logprobs_are_a_number_of_tokens(strategy: str, value: Any) -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            ask(running, extra_body={"top_logprobs": value, "unprm": {"strategy": strategy}})
        assert caught.value.response.json()["errors"][0]["pointer"] == "/top_logprobs"
        ask(running, extra_body={"top_logprobs": None, "unprm": {"strategy": strategy, "budget": 1}})
    assert len(reasoner.bodies) == 1


def test_an_unreachable_upstream_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "server.serving")
    with serving(FakeEngine(), upstream_url="http://user:CANARY@127.0.0.1:9") as running:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="does it run, and is --upstream-url right"):
                ask(running)
        until(lambda: f"ready: {running.url}/ serves fake; base URL of requests: {running.url}/v1 " in caplog.text)
    assert caplog.text.count("first failure of the upstream first, tried at http://127.0.0.1:9/v1: does it run") == 1
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    ("more", "pointer", "detail"),
    [
        ({"n": 0}, "/n", "Input should be greater than or equal to 1"),
        ({"extra_body": {"unprm": {"budget": 0}}}, "/unprm/budget", "Input should be greater than or equal to 1"),
        ({"extra_body": {"unprm": {"strategy": "best"}}}, "/unprm/strategy", "Input should be 'majority', 'prm'"),
        ({"extra_body": {"unprm": {"speed": 1}}}, "/unprm/speed", "not a field"),
        ({"messages": [{"role": "user", "content": " "}]}, "/messages", "no text; send the problem as `unprm.problem`"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "x"}]},
            "/messages/1/role",
            "or name a vote without rewards",
        ),
        ({"messages": []}, "/messages", "must not be empty"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(more: dict[str, Any], pointer: str, detail: str) -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            ask(running, **more)
        body = caught.value.response.json()
        assert body["errors"][0]["pointer"] == pointer
        assert detail in str(caught.value)
        assert caught.value.code == "invalid_request"
        with pytest.raises(openai.UnprocessableEntityError, match="Input should be less than or equal to 256"):
            elected(running, budget=257)
    assert reasoner.bodies == []


def test_a_budget_beyond_the_limit_is_refused() -> None:
    detail = "5 candidates were requested, the limit is 4"
    limits: list[dict[str, Any]] = [{"max_solutions": 4}, {"gateway_budget": 4}]
    for limit in limits:
        with upstream(boxed(1)) as reasoner, gateway(reasoner, **limit) as running, client(running) as api:
            for refused in (
                lambda: elected(running, budget=5),
                lambda: ask(running, model="wrf-5@m"),
                lambda: api.completions.create(model="m", prompt="so", best_of=5),
                lambda: api.completions.create(model="m", prompt=["so"] * 5),
                lambda: api.completions.create(model="m", prompt=[[1, 2]] * 5),
            ):
                with pytest.raises(openai.UnprocessableEntityError, match=detail):
                    refused()
            api.completions.create(model="m", prompt=[1, 2, 3, 4, 5], n=4)
        assert len(reasoner.bodies) == 1


def test_without_a_limit_of_its_own_the_gateway_samples_eight() -> None:
    limits: list[tuple[dict[str, Any], int]] = [({}, 8), ({"max_solutions": 3}, 3), ({"gateway_budget": 2}, 2)]
    for limit, budget in limits:
        with upstream(boxed(1)) as reasoner, gateway(reasoner, **limit) as running:
            _, report = elected(running, stable=1)
        assert report["budget"] == budget


def test_the_key_is_asked_for_in_openai_s_way() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner, api_key="k") as running:
        with pytest.raises(openai.AuthenticationError, match="send a key"):
            ask(running, key="other")
        assert ask(running, key="k").choices[0].message.content == boxed(1)
    assert reasoner.keys == [None] * len(reasoner.keys)  # ours never reaches the upstream


def test_models_are_the_upstream_s() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running, client(running) as api:
        assert [model.id for model in api.models.list()] == ["reasoner"]


def test_a_model_is_retrieved_also_by_a_name_that_chooses_a_vote() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running, client(running) as api:
        assert api.models.retrieve("reasoner").id == "reasoner"
        assert api.models.retrieve("wrf-16@reasoner").id == "wrf-16@reasoner"
        for unknown in ("another/model", "wrf-16@other"):
            with pytest.raises(openai.NotFoundError, match="no model of this name"):
                api.models.retrieve(unknown)


def test_completions_are_the_upstream_s() -> None:
    with upstream("go on") as reasoner, gateway(reasoner) as running, client(running) as api:
        answer = api.completions.create(model="m", prompt="so", max_tokens=3)
        asked: Any
        for asked in ({"model": "wrf-8@m"}, {"model": "m", "extra_body": {"unprm": {"budget": 8}}}):
            with pytest.raises(openai.UnprocessableEntityError, match="no vote on completions"):
                api.completions.create(prompt="so", **asked)
    assert answer.choices[0].text == "go on"
    assert reasoner.bodies == [{"model": "m", "prompt": "so", "max_tokens": 3}]


@pytest.mark.parametrize(
    ("model", "strategy", "budget"),
    [
        ("prm-3@org/m@1", "prm", 3),
        ("majority@org/m@1", "majority", 4),
        ("best_of_majority-4@org/m@1", "best_of_majority", 4),
    ],
)
def test_the_model_s_name_chooses_the_vote(model: str, strategy: str, budget: int) -> None:
    texts = [boxed(7, "a"), boxed(8, "b"), boxed(9, "c"), boxed(9, "d")]
    with upstream(*texts) as reasoner, gateway(reasoner, gateway_budget=4) as running:
        answer = ask(running, model=model, extra_body={"unprm": {"stable": 1}})
    assert (answer.unprm["strategy"], answer.unprm["budget"]) == (strategy, budget)
    assert {body["model"] for body in reasoner.bodies} == {"org/m@1"}


def test_other_names_are_the_upstream_s() -> None:
    with upstream(boxed(7)) as reasoner, gateway(reasoner, gateway_budget=1) as running:
        reasoner.lists = ["phi-4@q8_0"]
        for model in ("wrf-16", "phi-4@q8_0", "@cf/meta/llama", "org/m@1", "qwen2.5-7b@q4_k_m"):
            assert ask(running, model=model).unprm["budget"] == 1
            assert reasoner.bodies[-1]["model"] == model


@pytest.mark.parametrize("model", ["wfr-4@m", "wfr@m", "WRF-4@m", "wrf-x@m", "wrf-16@", "other-2@m", "wrf-1234567@m"])
def test_a_name_that_misses_a_vote_is_refused_with_their_list(model: str) -> None:
    """Before anything is sampled, so in a stream too; with a vote named elsewhere it can only be the upstream's."""
    with upstream(boxed(7)) as reasoner, gateway(reasoner) as running:
        message = {"role": "user", "content": PROBLEM}
        one = {"model": model, "messages": [message]}
        for path, body in (
            ("chat/completions", one),
            ("chat/completions", one | {"stream": True}),
            ("responses", {"model": model, "input": PROBLEM}),
        ):
            refused = running.post(f"/v1/{path}", body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, "/model")
            assert "expected majority, prm, hmr, wrf," in refused.json()["error"]["message"]
        assert not reasoner.bodies
        ask(running, model=model, extra_body={"unprm": {"strategy": "wrf", "budget": 1}})
    assert [body["model"] for body in reasoner.bodies] == [model]


def test_where_the_upstream_lists_nothing_any_name_may_be_its_own() -> None:
    def answer(body: Any) -> Any:
        return bytes(completion().body) if body else Refusal(404, {})

    with openai_server(answer) as (url, _), serving(FakeEngine(), upstream_url=url) as running:
        answered = ask(running, model="phi-4@q8_0", extra_body={"unprm": {"budget": 1}})
    assert answered.choices[0].message.content == "x"


@pytest.mark.parametrize(
    ("model", "unprm", "reason"),
    [
        ("wrf-2@m", {"budget": 3}, "budget: in the model's name and in unprm"),
        ("wrf-2@m", {"budget": 3, "strategy": "prm"}, "budget and strategy: in the model's name"),
        ("wrf-0@m", {}, "Input should be greater than or equal to 1"),
        ("wrf-257@m", {}, "Input should be less than or equal to 256"),
        ("wrf-2@m", 3, "Input should be an object"),
    ],
)
def test_a_name_that_does_not_fit_is_refused(model: str, unprm: Any, reason: str) -> None:
    with (
        upstream(boxed(7)) as reasoner,
        gateway(reasoner) as running,
        pytest.raises(openai.UnprocessableEntityError, match=reason),
    ):
        ask(running, model=model, extra_body={"unprm": unprm})


def test_without_an_upstream_there_is_no_gateway(server: Running) -> None:
    assert server.post("/v1/chat/completions", {}).status_code == 404


@pytest.mark.parametrize("digits", [19, 400, 4300, 4301])
@pytest.mark.parametrize("tools", [False, True])
def test_numbers_of_many_digits_are_no_error_of_the_server_s(digits: int, tools: bool) -> None:
    named: dict[str, Any] = {"tools": [{"type": "function"}]} if tools else {}
    with upstream(boxed(1), boxed(2)) as reasoner, gateway(reasoner) as running:
        for place in ("seed", "n", "temperature", "max_tokens", "top_k", "unprm", "messages"):
            body = {"model": "m", "messages": [{"role": "user", "content": "x", "y": "NUMBER"}], **named}
            if place == "unprm":
                body["unprm"] = {"budget": "NUMBER"}
            elif place != "messages":
                body[place] = "NUMBER"
            sent = json.dumps(body).replace('"NUMBER"', "9" * digits)
            headers = {"Content-Type": "application/json"}
            response = running.http.post("/v1/chat/completions", content=sent, headers=headers)
            assert response.status_code in (200, 400, 422), (place, response.text)
            if place == "seed":
                assert response.status_code == (400 if digits > 4300 else 422)


def test_the_upstream_s_models_are_waited_for_no_longer_than_a_request_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reasoner = Upstream([], url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with gateway(reasoner, max_request_seconds=60, gateway_seconds=60) as running:
            response = running.get("/v1/models", headers={"X-Request-Timeout": "0.2"})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_a_failure_in_the_middle_of_a_stream_is_an_event() -> None:
    engine = FakeEngine(failures={1: RuntimeError("CANARY"), 2: RuntimeError("CANARY")})
    more: Any = {"unprm": {"budget": 4, "round": 2, "stable": 1}}
    with (
        upstream(*[boxed(k, str(k)) for k in range(4)]) as reasoner,
        gateway(reasoner, engine) as running,
        pytest.raises(openai.APIError, match="model") as caught,
    ):
        ask(running, stream=True, extra_body=more)
    assert "CANARY" not in str(caught.value)


def test_who_goes_away_is_not_worked_for() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"budget": 4}}
    for stream in (False, True):
        with upstream(boxed(1), held={0: threading.Event()}) as reasoner, gateway(reasoner) as running:
            with running.connect(raw(body | {"stream": stream}, "/v1/chat/completions")):
                until(lambda reasoner=reasoner: len(reasoner.bodies) == 1)  # type: ignore[misc]
            until(lambda reasoner=reasoner: reasoner.gone == 1)  # type: ignore[misc]
            until(lambda running=running: running.metric("unprm_running_requests") == 0)  # type: ignore[misc]


def test_a_late_upstream_ends_at_the_deadline_with_what_has_come() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}]}
    body["unprm"] = {"budget": 4, "round": 2, "stable": 1}
    with upstream(boxed(1), boxed(2), held={1: threading.Event()}) as reasoner, gateway(reasoner) as running:
        answer = running.post("/v1/chat/completions", body, headers={"X-Request-Timeout": "2"})
    report = answer.json()["unprm"]
    assert (report["sampled"], report["stopped"]) == (2, "failures")
    assert report["failures"] == [{"candidates": 2, "detail": "they were not waited for: time ran out"}]
    late = threading.Event()
    with upstream(boxed(1), held={0: late}) as reasoner, gateway(reasoner, gateway_seconds=0.5) as running:
        answer = running.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize(
    ("path", "stream"),
    [("chat/completions", False), ("chat/completions", True), ("completions", True)],
)
def test_what_outlives_the_drain_is_told_so(path: str, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "prompt": PROBLEM, "stream": stream}
    with (
        upstream(boxed(1), held={0: threading.Event()}) as reasoner,
        gateway(reasoner, drain_seconds=0) as running,
    ):
        waiting = Background(lambda: running.post(f"/v1/{path}", body))
        until(lambda: len(reasoner.bodies) == 1)
        running.server.should_exit = True
        answer = waiting.result()
    passed_on = path == "completions"
    status, last = (200, answer.text.split("data: ")[-1]) if stream and not passed_on else (503, answer.text)
    assert (answer.status_code, json.loads(last)["error"]["code"]) == (status, "shutting_down")
    assert _logged(caplog, path) == [(status, "shutting_down")]


def _logged(caplog: pytest.LogCaptureFixture, path: str = "chat/completions") -> list[tuple[int, str]]:
    """Status and code of the requests in the log, which has no traceback."""
    assert not [record for record in caplog.records if record.exc_info]
    lines: list[Any] = [record.__dict__["fields"] for record in caplog.records if hasattr(record, "fields")]
    return [(line["status"], line["code"]) for line in lines if line.get("route") == f"/v1/{path}"]


def test_a_stream_that_outlives_the_drain_ends_with_an_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "stream": True}
    body["unprm"] = {"budget": 4, "round": 2, "stable": 1}
    with (
        upstream(boxed(1), boxed(2), held={1: threading.Event()}) as reasoner,
        gateway(reasoner, drain_seconds=0) as running,
        httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body, timeout=PATIENCE) as response,
    ):
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        assert json.loads(next(events))["choices"][0]["delta"]["role"] == "assistant"
        assert [json.loads(next(events))["unprm"]["progress"]["sampled"] for _ in range(3)] == [1, 2, 2]
        running.server.should_exit = True
        assert json.loads(next(events))["error"]["code"] == "shutting_down"
        assert not list(events)
    assert _logged(caplog) == [(200, "shutting_down")]


def test_a_stream_that_is_passed_on_ends_at_its_deadline_with_an_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    messages = [{"role": "user", "content": PROBLEM}]
    body = {"model": "m", "prompt": PROBLEM, "messages": messages, "stream": True, "logprobs": True}
    with upstream(boxed(1), hangs={0: 0}) as reasoner, gateway(reasoner, gateway_seconds=1) as running:
        answer = running.post("/v1/completions", body)
    *_, last = answer.text.split("\n\n")[:-1]
    assert json.loads(last.removeprefix("event: error\ndata: "))["error"]["code"] == "deadline_exceeded"
    assert _logged(caplog, "completions") == [(200, "deadline_exceeded")]


def test_votes_are_counted_once() -> None:
    votes = 'unprm_votes_total{strategy="hmr"}'
    with upstream(boxed(1), boxed(2)) as reasoner, gateway(reasoner) as running:
        counted = running.metric(votes)
        elected(running, budget=8, round=2, stable=1, strategy="hmr")
        assert running.metric(votes) == counted + 1


def test_several_are_answered_at_a_time() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": {"budget": 1}}
    all_asked = threading.Event()
    with upstream(boxed(1), held=dict.fromkeys(range(3), all_asked)) as reasoner, gateway(reasoner) as running:
        calls = [Background(lambda: running.post("/v1/chat/completions", body)) for _ in range(3)]
        until(lambda: len(reasoner.bodies) == 3)
        all_asked.set()
        assert [call.result().status_code for call in calls] == [200] * 3


def test_no_text_of_a_caller_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with upstream(boxed("CANARY"), errors={1: refusal(400, "CANARY")}) as reasoner, gateway(reasoner) as running:
        ask(running, "CANARY", extra_body={"unprm": {"budget": 1}})
        with pytest.raises(openai.BadRequestError):
            ask(running, "CANARY", extra_body={"unprm": {"budget": 1}})
    assert "CANARY" not in caplog.text
