"""Anthropic's messages API, with requests as its client sends them (anthropic-sdk-python 2.14)."""

import json
from typing import Any

import pytest

from tests.adder import SCHEMA, TASK, call, calling
from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, STREAMED, upstream
from tests.server.gateway.harness import PROBLEM, boxed, gateway, refusal

PATH = "/v1/messages"
TOOL = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}
USE = {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1, "b": 2}}
THOUGHT = {
    "reasoning_content": "Hm.",
    "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}],
}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
ANSWER = calling(call('{"a": 1, "b": 2}'), text="I add.", reasoning_content="Hm.")


def ask(content: Any = PROBLEM, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}], **more}


def test_a_conversation_is_translated_both_ways() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": TASK, **cached}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"},
                                          {"type": "text", "text": "I add."}, USE]},
        {"role": "user", "content": [{"type": "text", "text": "Go on."},
                                     {"type": "tool_result", "tool_use_id": "c", "content": "3"}]},
    ]  # fmt: skip
    body = {
        "model": "majority-2@m", "max_tokens": 9, "messages": turns, "system": [{"type": "text", "text": "Be brief."}],
        "tools": [TOOL | cached], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "temperature": 0.4,
        "top_k": 3, "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"},
        "unprm": {"stable": 1},
    }  # fmt: skip
    with upstream(ANSWER) as reasoner, gateway(reasoner) as running:
        answer = running.post(PATH, body).json()
    report = answer.pop("unprm")
    assert (report["strategy"], report["sampled"], report["answer"]) == ("majority", 2, 'add({"a":1,"b":2})')
    assert answer.pop("id").startswith("msg_")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "m-served",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"},
            {"type": "text", "text": "I add."},
            USE,
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": 2 * COMPLETION_TOKENS},
    }
    made = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    assert reasoner.bodies == [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": TASK},
                {"role": "assistant", "content": "I add.", "tool_calls": [made], **THOUGHT},
                {"role": "tool", "tool_call_id": "c", "content": "3"},
                {"role": "user", "content": "Go on."},
            ],
            "tools": [FUNCTION],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 9,
            "temperature": 0.4,
            "top_k": 3,
            "stop": ["x"],
            "n": 2,
            **STREAMED,
        }
    ]


def test_a_stream_has_the_events_of_a_message() -> None:
    with upstream(ANSWER) as reasoner, gateway(reasoner) as running:
        body = ask(TASK, tools=[TOOL], tool_choice={"type": "tool", "name": "add"}, stream=True, unprm={"budget": 1})
        text = running.post(PATH, body).text
        assert reasoner.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    events = [event.removeprefix("event: ").split("\ndata: ") for event in text.split("\n\n")[:-1]]
    told = [json.loads(data) for _, data in events]
    assert [name for name, _ in events] == [event["type"] for event in told]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    blocks = [*block[:2], "content_block_delta", *block[2:], *block * 2]
    types = [event["type"] for event in told if event["type"] != "ping"]
    assert types == ["message_start", *blocks, "message_delta", "message_stop"]
    assert [event["unprm"]["progress"]["sampled"] for event in told if event["type"] == "ping"] == [1]
    assert [event["content_block"] for event in told if event["type"] == "content_block_start"] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        USE | {"input": {}},
    ]
    assert [event["delta"] for event in told if event["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "unsigned"},
        {"type": "text_delta", "text": "I add."},
        {"type": "input_json_delta", "partial_json": '{"a": 1, "b": 2}'},
    ]
    assert told[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (told[-2]["usage"]["output_tokens"], told[-2]["unprm"]["sampled"]) == (COMPLETION_TOKENS, 1)


def test_a_signature_is_handed_on_and_thoughts_of_turns_without_calls_are_dropped() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    message = calling(call('{"a": 1}'), reasoning_content="Hm.", thinking_blocks=[block])
    with upstream(message) as reasoner, gateway(reasoner) as running:
        made = running.post(PATH, ask(TASK, tools=[TOOL], unprm={"budget": 1})).json()["content"]
        said = {"role": "assistant", "content": [block, {"type": "text", "text": "So."}]}
        turns = [*ask(TASK)["messages"], said, {"role": "assistant", "content": made}, *ask()["messages"]]
        running.post(PATH, ask(unprm={"budget": 1}) | {"messages": turns})
    assert made[0] == block
    _, dropped, kept, _ = reasoner.bodies[1]["messages"]
    assert dropped == {"role": "assistant", "content": "So."}
    assert (kept["reasoning_content"], kept["thinking_blocks"]) == ("Hm.", [block])


def test_images_are_passed_on_by_a_vote_without_rewards() -> None:
    content = [{"type": "text", "text": "What is this?"}, IMAGE]
    with upstream(boxed(1), cut={0}) as reasoner, gateway(reasoner) as running:
        refused = running.post(PATH, ask(content, unprm={"strategy": "prm"}))
        assert (refused.status_code, "a part of type 'image_url'" in refused.json()["error"]["message"]) == (422, True)
        answer = running.post(PATH, ask(content, unprm={"strategy": "majority", "budget": 1})).json()
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": boxed(1)}], "max_tokens")
    (message,) = reasoner.bodies[0]["messages"]
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (ask(top_p=1, unprm={"container": "x"}), "/unprm/container"),
        (ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "/tools/0"),
        (ask([{"type": "document", "source": {}}]), "/messages/0/content/0/type"),
        ({"model": "m", "messages": []}, "/max_tokens"),
    ],
    ids=["field", "tool", "block", "missing"],
)
def test_what_is_not_supported_is_refused_by_name(body: dict[str, Any], pointer: str) -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        refused = running.post(PATH, body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == pointer
    assert not reasoner.bodies


def test_errors_have_the_event_of_an_error_and_a_key_its_header() -> None:
    broken = calling(call('{"a": 1'))
    with upstream(broken, errors={0: refusal(500)}) as reasoner, gateway(reasoner, api_key="k") as running:
        assert running.post(PATH, ask(), headers={"x-api-key": "other"}).status_code == 401
        key = {"x-api-key": "k"}
        for body, reason in ((ask(stream=True), "answered 500"), (ask(stream=True), "arguments are JSON objects")):
            *_, last, _ = running.post(PATH, body, headers=key).text.split("\n\n")
            name, data = last.split("\n")
            assert name == "event: error"
            assert reason in json.loads(data.removeprefix("data: "))["error"]["message"]
        assert running.post(PATH, ask(), headers=key).status_code == 502
