"""OpenAI's responses API, with OpenAI's client."""

import asyncio
import json
from typing import Any

import openai
import pytest

from tests.adder import SCHEMA, TASK, adding, call, calling
from tests.fake_engine import FakeEngine
from tests.fakes import COMPLETION_TOKENS, openai_server, upstream
from tests.server.gateway.harness import boxed, client, gateway, refusal
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


TOOL: dict[str, Any] = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": True}
PATCH = {"type": "custom", "name": "patch", "description": "Edits.", "format": {"type": "text"}}
HOSTED = {"type": "web_search"}


def test_calls_are_voted_on_and_a_conversation_with_calls_goes_on() -> None:
    made = calling(call('{"a": 1, "b": 2}'), reasoning_content="Hm.")
    choice: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}
    asked: dict[str, Any] = {"model": "majority-3@m", "tools": [TOOL, HOSTED], "parallel_tool_calls": False}
    candidates = [calling(call('{"a": 3}')), made, made]
    with upstream(*candidates) as reasoner, gateway(reasoner) as running, client(running) as api:
        first = api.responses.create(input=TASK, tool_choice=choice, **asked)
        thought, called = first.output
        result = {"type": "function_call_output", "call_id": "c", "output": "3"}
        reasoner.texts = [boxed(3)]
        turns: Any = [{"role": "user", "content": TASK}, *(item.model_dump() for item in first.output), result]
        second = api.responses.create(input=turns, **asked)
    assert (thought.type, called.type, called.name, called.arguments, called.call_id) == (  # type: ignore[union-attr]
        "reasoning",
        "function_call",
        "add",
        '{"a": 1, "b": 2}',
        "c",
    )
    assert (first.unprm["candidates"][0]["count"], second.output_text) == (2, boxed(3))  # type: ignore[attr-defined]
    sent = reasoner.bodies[0]
    function = {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}}
    assert (sent["tools"], sent["parallel_tool_calls"]) == ([function], False)
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "add"}}]}
    assert sent["tool_choice"] == {"type": "allowed_tools", "allowed_tools": allowed}
    function_called = call('{"a": 1, "b": 2}')
    assert reasoner.bodies[-1]["messages"] == [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": "", "tool_calls": [function_called], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]


def test_the_input_of_a_custom_tool_is_a_text() -> None:
    message = calling(call('{"input": "*** Begin"}', "patch"))
    with upstream(message) as reasoner, gateway(reasoner) as running, client(running) as api:
        asked: Any = {"model": "majority-1@m", "tools": [PATCH], "tool_choice": {"type": "custom", "name": "patch"}}
        (called,) = api.responses.create(input="Mend it.", **asked).output
        output = {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]}
        api.responses.create(input=[called.model_dump(), output], **asked)
    assert (called.type, called.name, called.input) == ("custom_tool_call", "patch", "*** Begin")  # type: ignore[union-attr]
    assert reasoner.bodies[0]["tools"][0]["function"]["parameters"]["required"] == ["input"]
    turn, result = reasoner.bodies[1]["messages"]
    assert (turn["tool_calls"], result["content"]) == ([call('{"input": "*** Begin"}', "patch")], "ok")


@pytest.mark.parametrize(
    ("message", "tools"),
    [
        ({"role": "assistant", "content": f"So:\n{boxed(4)}", "reasoning_content": "Twice two."}, []),
        ({"role": "assistant", "content": None, "refusal": "No."}, []),
        (calling(call('{"a": 1}'), call('{"a": 2}', id="d"), text="I add."), [TOOL]),
        (calling(call('{"input": "x"}', "patch")), [PATCH]),
    ],
    ids=["text", "refusal", "calls", "custom"],
)
def test_a_stream_adds_up_to_the_response(message: dict[str, Any], tools: Any) -> None:
    with upstream(message) as reasoner, gateway(reasoner) as running, client(running) as api:
        with api.responses.stream(model="majority-2@m", input=PROBLEM, tools=tools) as stream:
            events = list(stream)
            final = stream.get_final_response()
        whole = api.responses.create(model="majority-2@m", input=PROBLEM, tools=tools)
    assert [event.sequence_number for event in events] == list(range(len(events)))  # type: ignore[union-attr]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [event.unprm["progress"]["sampled"] for event in events if event.type == "response.in_progress"] == [1, 2]  # type: ignore[union-attr]
    kept = {"id", "created_at", "output", "unprm"}
    assert final.model_dump(exclude={*kept, "parsed"}) == whole.model_dump(exclude=kept)

    def told(items: Any) -> Any:
        return [item.model_dump(exclude={"id", "parsed_arguments"}, exclude_none=True) for item in items]

    pieces = "".join(event.delta for event in events if event.type.endswith(".delta"))  # type: ignore[union-attr]
    assert [each["type"] for each in told(final.output)] == [each["type"] for each in told(whole.output)]
    assert final.output_text == whole.output_text
    assert all(str(each) in pieces for each in _texts(whole.output))


def _texts(items: Any) -> list[str]:
    found = []
    for item in items:
        for part in item.content if item.type in ("message", "reasoning") else [item]:
            names = ("text", "refusal", "arguments", "input")
            found += [value for name in names if isinstance(value := getattr(part, name, None), str)]
    return found


def test_a_stream_that_fails_says_why() -> None:
    refused = dict.fromkeys(range(9), refusal(404, "no model m"))
    with upstream(boxed(1), errors=refused) as reasoner, gateway(reasoner) as running, client(running) as api:
        with pytest.raises(openai.APIError, match="no model m"):
            list(api.responses.create(model="majority-1@m", input=PROBLEM, stream=True))
        text = running.post("/v1/responses", {"model": "m", "input": PROBLEM, "stream": True}).text
    last = json.loads(text.strip().split("\n\n")[-1].partition("data: ")[2])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")


def test_the_agents_sdk_runs_before_an_upstream_of_chat_alone() -> None:
    agents = pytest.importorskip("agents")
    calls: list[tuple[float, float]] = []

    @agents.function_tool  # type: ignore[untyped-decorator]
    def add(a: float, b: float) -> float:
        calls.append((a, b))
        return a + b

    async def story() -> tuple[Any, list[str]]:
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as api:
            model = agents.OpenAIResponsesModel("majority-4@m", api)
            agent = agents.Agent(name="adder", model=model, tools=[add])
            config = agents.RunConfig(tracing_disabled=True)
            whole = await agents.Runner.run(agent, TASK, run_config=config)
            streamed = agents.Runner.run_streamed(agent, TASK, run_config=config)
            kinds = [event.type async for event in streamed.stream_events()]
            assert streamed.final_output == whole.final_output
            return whole.final_output, kinds

    with openai_server(adding) as (url, seen), serving(FakeEngine(), upstream_url=url) as running:
        answer, kinds = asyncio.run(story())
    assert answer == "The sum is 224. The answer is 224."
    assert calls == [(23, 45), (68, 67), (135, 89)] * 2
    assert "run_item_stream_event" in kinds
    assert {request.path for request in seen} == {"/v1/chat/completions"}


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "/tool_choice"),
        ({"stream": True, "extra_body": {"n": 64}}, "/n"),
        ({"stream": True, "extra_body": {"best_of": 64}}, "/best_of"),
        ({"previous_response_id": "resp_1"}, "/previous_response_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]}, "/input"),
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
