"""OpenAI's responses API, with OpenAI's client."""

import json
from typing import Any

import openai
import pytest

from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, openai_server, upstream
from tests.server.gateway.harness import boxed, client, gateway
from tests.server.harness import PROBLEM, serving

TERMS = {"unprm": {"strategy": "majority", "budget": 3, "stable": 1}}


def test_a_text_is_answered_with_the_elected_one() -> None:
    with upstream(boxed(1), boxed(2), boxed(2)) as reasoner, gateway(reasoner) as running, client(running) as api:
        answer = api.responses.create(
            model="m",
            input=PROBLEM,
            instructions="Think.",
            temperature=0.4,
            max_output_tokens=9,
            store=False,
            extra_body=TERMS,
        )
    assert answer.output_text == boxed(2)
    assert (answer.status, answer.instructions) == ("completed", "Think.")
    assert answer.usage is not None
    assert answer.usage.output_tokens == 3 * COMPLETION_TOKENS
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert (answer.usage.input_tokens_details.cached_tokens, answer.usage.output_tokens_details.reasoning_tokens) == (
        0,
        0,
    )
    report: Any = answer.unprm  # type: ignore[attr-defined]
    assert (report["answer"], report["sampled"]) == ("2", 3)
    body = reasoner.bodies[0]
    messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": PROBLEM}]
    assert (body["messages"], body["temperature"], body["max_tokens"]) == (messages, 0.4, 9)


def test_a_conversation_is_passed_on_and_its_last_question_is_the_problem() -> None:
    conversation: Any = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi.", "annotations": []}]},
        {"role": "user", "content": PROBLEM},
    ]
    with upstream(boxed(4)) as reasoner, gateway(reasoner) as running, client(running) as api:
        answer = api.responses.create(model="wrf-2@m", input=conversation)
    assert answer.output_text == boxed(4)
    assert (answer.unprm["strategy"], answer.unprm["budget"]) == ("wrf", 2)  # type: ignore[attr-defined]
    assert [(each["role"], each["content"]) for each in reasoner.bodies[0]["messages"]] == [
        ("system", "Be brief."),
        ("user", "Hello."),
        ("assistant", "Hi."),
        ("user", PROBLEM),
    ]
    assert reasoner.bodies[0]["model"] == "m"


def test_thoughts_are_kept() -> None:
    message = {"role": "assistant", "content": boxed(4), "reasoning": "Twice two."}
    with upstream(message) as reasoner, gateway(reasoner) as running, client(running) as api:
        answer = api.responses.create(model="m", input=PROBLEM)
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text == "Twice two."  # type: ignore[union-attr]


def test_tools_and_streams_are_passed_on_as_they_are() -> None:
    tools: Any = [{"type": "function", "name": "f", "parameters": {}, "strict": False}]
    turns: Any = [
        {"role": "user", "content": PROBLEM},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    done = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "7"}
    events = f"event: response.output_text.delta\ndata: {json.dumps(done | {'sequence_number': 0, 'logprobs': []})}\n\n"

    def answer(body: Any) -> Any:
        return events.encode() if body.get("stream") else {"id": "r", "object": "response", "output": [turns[1]]}

    with (
        openai_server(answer) as (url, seen),
        serving(FakeEngine(), upstream_url=url) as running,
        client(running) as api,
    ):
        called = api.responses.create(model="phi-4@q8", input=turns, tools=tools, previous_response_id="resp_1")
        (event,) = api.responses.create(model="m", input=PROBLEM, stream=True)
    assert called.output[0].call_id == "c"  # type: ignore[union-attr]
    assert (event.type, event.delta) == ("response.output_text.delta", "7")  # type: ignore[union-attr]
    assert [request.path for request in seen] == ["/v1/responses"] * 2
    assert seen[0].body == {"model": "phi-4@q8", "input": turns, "tools": tools, "previous_response_id": "resp_1"}


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"stream": True, "extra_body": {"unprm": {"budget": 3}}}, ""),
        ({"stream": True, "model": "wrf-2@m"}, ""),
        ({"stream": True, "extra_body": {"n": 64}}, "/n"),
        ({"stream": True, "extra_body": {"best_of": 64}}, "/best_of"),
        ({"previous_response_id": "resp_1"}, "/previous_response_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "/input"),
        ({"input": [{"role": "system", "content": " "}]}, "/messages"),
        ({"model": "wrf-2@m", "extra_body": {"unprm": {"budget": 3}}}, ""),
    ],
)
def test_what_is_not_supported_is_refused_by_name(more: dict[str, Any], pointer: str) -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running, client(running) as api:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            api.responses.create(**{"model": "m", "input": PROBLEM, **more})
        assert not reasoner.bodies
    body: Any = caught.value.body
    assert body is not None
    fields = caught.value.response.json()["errors"] or [{"pointer": ""}]
    assert any(field["pointer"].startswith(pointer) for field in fields)


def test_what_is_passed_on_is_unchanged_within_its_fields_too() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "new": 1}
    body = {"model": "m", "input": PROBLEM, "stream": True, "text": {"format": form, "verbosity": "low"}}
    body |= {"reasoning": {"effort": "low", "summary": "auto"}, "truncation": "auto", "background": True}
    with (
        openai_server(lambda sent: {"id": "r"}) as (url, seen),
        serving(FakeEngine(), upstream_url=url) as running,
    ):
        assert running.post("/v1/responses", body).status_code == 200
        for refused in ({"truncation": "auto"}, {"background": True}):
            answer = running.post("/v1/responses", {"model": "m", "input": PROBLEM} | refused)
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["pointer"]) == (422, "/" + next(iter(refused)))
    assert [request.body for request in seen] == [body]
