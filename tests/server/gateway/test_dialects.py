"""What clients send beside what their API's documentation shows, and what upstreams answer that speak a dialect."""

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.adder import SCHEMA
from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, Upstream, upstream
from tests.server.gateway.harness import PROBLEM, boxed, gateway, refusal
from tests.server.harness import serving

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": PROBLEM}]
FUNCTION = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
ONE = {"budget": 1}


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": USER, "unprm": ONE, **more}


def messages(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": USER, "unprm": ONE, **more}


def responses(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": PROBLEM, "unprm": ONE, **more}


SCHEMA_FORMAT = {"type": "json_schema", "schema": {"type": "object"}}
AS_ASKED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True}}
NAMED = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": False}


@pytest.mark.parametrize(
    ("path", "body", "sent"),
    [
        (MESSAGES, messages(context_management={"edits": []}, cache_control={"type": "ephemeral"}), {}),
        (MESSAGES, messages(service_tier="auto", metadata={"user_id": "u"}, thinking={"type": "adaptive"}, new=1), {}),
        (MESSAGES, messages(output_config={"effort": "low"}), {}),
        (MESSAGES, messages(output_config={"format": SCHEMA_FORMAT}), {"response_format": AS_ASKED}),
        (MESSAGES, messages(seed=3, system=None, stream=None, tools=None), {"seed": 3}),
        (RESPONSES, responses(truncation="disabled", parallel_tool_calls=True, include=[], tools=None), {}),
        (RESPONSES, responses(text={"format": {"type": "text"}}, background=False, store=True), {}),
        (RESPONSES, responses(user="u", service_tier="auto"), {"user": "u", "service_tier": "auto"}),
        (RESPONSES, responses(reasoning={"effort": "low", "summary": "auto"}), {"reasoning_effort": "low"}),
        (
            RESPONSES,
            responses(text={"format": NAMED, "verbosity": "low"}),
            {
                "response_format": {"type": "json_schema", "json_schema": {n: NAMED[n] for n in NAMED if n != "type"}},
                "verbosity": "low",
            },
        ),
        (CHAT, chat(stream=None, n=None, tools=None, seed=None, response_format=None), {}),
        (CHAT, chat(unprm=None, model="majority-1@m"), {}),
        (CHAT, chat(unprm={"strategy": None, "budget": None}, model="majority-1@m"), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_asks_for_nothing_more_is_accepted(path: str, body: dict[str, Any], sent: dict[str, Any]) -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        answer = running.post(path, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["unprm"]["budget"] == 1
    (asked,) = reasoner.bodies
    assert {name: value for name, value in asked.items() if name not in ("model", "messages", "max_tokens")} == sent


def test_a_response_is_accepted_as_input() -> None:
    thinking = {"role": "assistant", "content": boxed(1), "reasoning_content": "Hm."}
    with upstream(thinking) as reasoner, gateway(reasoner) as running:
        output = running.post(RESPONSES, responses()).json()["output"]
        assert [item["type"] for item in output] == ["reasoning", "message"]
        again = running.post(RESPONSES, responses(input=[*USER, *output, {"role": "user", "content": "Sure?"}]))
    assert again.status_code == 200, again.text
    assert [each["content"] for each in reasoner.bodies[1]["messages"]] == [PROBLEM, boxed(1), "Sure?"]


def _ended(choice: dict[str, Any]) -> Any:
    """An upstream whose choices have these fields."""

    class Ended(Upstream):
        def _choice(self, index: int, body: dict[str, Any]) -> dict[str, Any]:
            return super()._choice(index, body) | choice

    return Ended


@pytest.mark.parametrize(
    ("choice", "message", "response"),
    [
        ({"finish_reason": "length"}, ("max_tokens", None), ("incomplete", "max_output_tokens")),
        ({"finish_reason": "content_filter"}, ("refusal", None), ("incomplete", "content_filter")),
        ({"stop_reason": "END"}, ("stop_sequence", "END"), ("completed", None)),
        ({"matched_stop": "END"}, ("stop_sequence", "END"), ("completed", None)),
        ({"stop_reason": 151645}, ("end_turn", None), ("completed", None)),
        ({}, ("end_turn", None), ("completed", None)),
    ],
    ids=["cut", "filtered", "vllm", "sglang", "token", "end"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_why_an_answer_ends(choice: dict[str, Any], message: Any, response: Any, stream: bool) -> None:
    with upstream("It is 5 ", kind=_ended(choice)) as reasoner, gateway(reasoner) as running:
        said = running.post(MESSAGES, messages(stop_sequences=["END"], stream=stream))
        answer = running.post(RESPONSES, responses()).json()
    ended = said.json() if not stream else next(e["delta"] for e in _events(said.text) if e["type"] == "message_delta")
    assert (ended["stop_reason"], ended["stop_sequence"]) == message
    reason = (answer["incomplete_details"] or {}).get("reason")
    assert (answer["status"], reason, answer["output"][-1]["status"]) == (*response, response[0])


def _events(text: str) -> list[dict[str, Any]]:
    return [json.loads(event.partition("data: ")[2]) for event in text.split("\n\n")[:-1]]


def test_a_refusal_is_told() -> None:
    with upstream({"role": "assistant", "content": None, "refusal": "No."}) as reasoner, gateway(reasoner) as running:
        said = running.post(MESSAGES, messages()).json()
        answer = running.post(RESPONSES, responses()).json()
    assert (said["stop_reason"], said["content"]) == ("refusal", [{"type": "text", "text": "No."}])
    assert answer["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_a_failed_tool_is_known_to_have_failed() -> None:
    use = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        for content in ({"content": "disk full"}, {}):
            turns = [*USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result | content]}]
            assert running.post(MESSAGES, messages(messages=turns)).status_code == 200
    told = [body["messages"][-1]["content"] for body in reasoner.bodies]
    assert told == ["The tool failed.\ndisk full", "The tool failed."]


def test_an_image_that_only_anthropic_has_is_refused() -> None:
    image = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        refused = running.post(MESSAGES, messages(messages=[{"role": "user", "content": [image]}]))
    assert (refused.status_code, refused.json()["error"]["type"]) == (422, "invalid_request_error")
    assert "base64 or by its URL" in refused.json()["error"]["message"]
    assert not reasoner.bodies


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (500, "api_error")]
)
def test_errors_are_anthropic_s_on_its_addresses(status: int, kind: str) -> None:
    with upstream(boxed(1), errors={0: refusal(status), 1: refusal(status)}) as reasoner, gateway(reasoner) as running:
        for path in (MESSAGES, f"{MESSAGES}/count_tokens"):
            error = running.post(path, messages()).json()
            assert (error["type"], error["error"]["type"]) == ("error", kind)
        wrong = running.post(MESSAGES, {"model": "m"}).json()
        assert (wrong["error"]["type"], wrong["type"]) == ("invalid_request_error", "error")
        assert "type" not in running.post(CHAT, {"model": "m"}).json()["error"].get("error", {})


def test_tokens_are_counted_by_the_upstream() -> None:
    tools = [{"name": "add", "input_schema": SCHEMA}]
    sent = {"model": "m", "messages": USER, "tools": tools, "tool_choice": {"type": "any"}}
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        counted = running.post(f"{MESSAGES}/count_tokens", sent)
    assert counted.json() == {"input_tokens": PROMPT_TOKENS}
    assert reasoner.bodies == [{"model": "m", "messages": USER, "tools": [FUNCTION], "max_tokens": 1}]


def test_the_conversation_counts_once_however_many_candidates_read_it() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        usage = running.post(MESSAGES, messages(unprm={"budget": 6, "stable": 1, "round": 2})).json()["usage"]
    assert len(reasoner.bodies) == 3
    assert usage == {"input_tokens": PROMPT_TOKENS, "output_tokens": 6 * COMPLETION_TOKENS}


def test_models_have_what_anthropic_s_clients_read() -> None:
    with upstream(boxed(1), lists=("a", "b")) as reasoner, gateway(reasoner) as running:
        listed = running.get("/v1/models").json()
    assert [(card["type"], card["display_name"], card["object"]) for card in listed["data"]] == [
        ("model", "a", "model"),
        ("model", "b", "model"),
    ]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b", False)


ADDED = {"name": "add", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    ("sent", "made"),
    [
        ({"tool_calls": [{"id": "c", "type": "function", "function": {"name": "add"}}]}, "{}"),
        ({"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": None}}]}, "{}"),
        ({"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": {"a": 1}}}]}, '{"a": 1}'),
        ({"tool_calls": [{"type": "function", "function": ADDED}, "?"]}, '{"a": 1}'),
        ({"function_call": ADDED}, '{"a": 1}'),
    ],
    ids=["none", "null", "object", "without id", "legacy"],
)
def test_calls_in_a_dialect_are_as_openai_s(sent: dict[str, Any], made: str) -> None:
    message = {"role": "assistant", "content": None, **sent}
    with upstream(message) as reasoner, gateway(reasoner) as running:
        answer = running.post(CHAT, chat(tools=[FUNCTION])).json()
        turn = running.post(MESSAGES, messages(tools=[{"name": "add", "input_schema": SCHEMA}])).json()
    (called,) = answer["choices"][0]["message"]["tool_calls"]
    assert called == {"id": called["id"], "type": "function", "function": {"name": "add", "arguments": made}}
    assert called["id"]
    assert turn["content"][0]["input"] == json.loads(made)
    assert answer["unprm"]["answer"] == f"add({made.replace(' ', '')})"


def test_the_parts_of_a_text_are_one_text() -> None:
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": boxed(5)},
    ]
    with upstream({"role": "assistant", "content": parts}) as reasoner, gateway(reasoner) as running:
        answer = running.post(CHAT, chat()).json()
    assert (answer["unprm"]["answer"], answer["choices"][0]["message"]["content"]) == ("5", f"It is {boxed(5)}")


def test_one_odd_candidate_costs_itself() -> None:
    class Odd(Upstream):
        def _choice(self, index: int, body: dict[str, Any]) -> dict[str, Any]:
            made = super()._choice(index, body)
            return made | {"message": "?"} if index == 0 else made

    with upstream(boxed(1), boxed(7), boxed(7), kind=Odd, streams=False) as reasoner, gateway(reasoner) as running:
        report = running.post(CHAT, chat(unprm={"budget": 3, "stable": 1})).json()["unprm"]
    assert (report["answer"], report["sampled"], report["without_answer_count"]) == ("7", 3, 1)


def test_an_error_with_status_200_keeps_its_message() -> None:
    busy = JSONResponse({"error": {"message": "the model is busy"}})
    with upstream(boxed(1), errors={0: busy}) as reasoner, gateway(reasoner) as running:
        failed = running.post(CHAT, chat())
    assert (failed.status_code, "an error: the model is busy" in failed.json()["detail"]) == (502, True)


def test_a_stream_has_the_log_probabilities_that_were_asked_for() -> None:
    body = chat(logprobs=True, top_logprobs=1)
    with upstream(f"Let me see.\n{boxed(5)}") as reasoner, gateway(reasoner) as running:
        whole = running.post(CHAT, body).json()["choices"][0]["logprobs"]["content"]
        text = running.post(CHAT, body | {"stream": True}).text
    chunks = [json.loads(line[6:])["choices"][0] for line in text.splitlines() if line.startswith("data: {")]
    streamed = [token for each in chunks for token in (each.get("logprobs") or {}).get("content", [])]
    assert streamed == whole
    assert all(each["delta"].get("content") for each in chunks if each.get("logprobs"))


IMAGE = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "user", "content": [{"type": "text", "text": PROBLEM}, IMAGE]}],
        [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}],
        [*USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}, *USER],
        [*USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, *USER],
    ],
    ids=["image", "file", "thoughts", "refusal"],
)
def test_a_conversation_that_no_prm_can_read_is_voted_on_by_majority(turns: list[Any]) -> None:
    with upstream(boxed(4), boxed(5), boxed(5)) as reasoner, gateway(reasoner) as running:
        terms = {"budget": 3, "stable": 1}
        report = running.post(CHAT, chat(messages=turns, unprm=terms)).json()["unprm"]
        named = running.post(CHAT, chat(messages=turns, unprm={**terms, "strategy": "prm"}))
    assert (report["answer"], report["strategy"]) == ("5", "majority")
    why = "the vote is by majority, as none was named: the PRM can't read the conversation: message"
    assert any(note.startswith(why) for note in report["notes"])
    assert named.status_code == 422
    assert "name a vote without rewards" in named.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/score", {"text_1": 5, "text_2": ["a"]}, "/text_1"),
        ("/classify", {"input": [["a"]]}, "/input/0/0"),
        ("/score_steps", {"problem": "p", "solutions": ["a"], "model": 5}, "/model"),
        ("/score_steps", {"problem": "p", "solutions": [{"text": "a", "step": 1}]}, "/solutions/0/step"),
        ("/rerank", {"query": "q", "documents": ["a", {"t": "b"}]}, "/documents/1"),
        (CHAT, chat(messages=[{"role": "user", "content": 5}], unprm={"strategy": "prm"}), "/messages/0/content"),
    ],
)
def test_an_error_points_to_what_was_sent(path: str, body: dict[str, Any], pointer: str) -> None:
    with serving(FakeEngine(), upstream_url="http://127.0.0.1:9") as running:
        (error, *_) = running.post(path, body).json()["errors"]
    assert error["pointer"] == pointer
