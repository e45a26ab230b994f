"""Trajectories as a PRM reads them."""

from typing import Any

import pytest

from unprm.errors import InvalidRequest
from unprm.trajectories import (
    AgentTool,
    Cut,
    Message,
    Reading,
    Rendered,
    conversation,
    describe_tools,
    from_atif,
    render,
)

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "capital of Peru"}'}}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the capital of Peru?"},
    {"role": "assistant", "content": "<think>hm</think>I look it up.", "reasoning_content": "Lima?",
     "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Lima is the capital of Peru."},
    {"role": "assistant", "content": "It is Lima."},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip


def rendered(messages: list[dict[str, object]], **reading: object) -> Rendered:
    return render([Message.model_validate(each) for each in messages], Reading(**reading))  # type: ignore[arg-type]


def test_a_step_is_a_message_and_its_calls_and_evidence_follows_it() -> None:
    found = rendered(MESSAGES)
    assert found.problem == "[system] Be brief.\n\n[user] What is the capital of Peru?"
    assert found.steps == (
        'I look it up.\nsearch({"query":"capital of Peru"})\n\n[search] Lima is the capital of Peru.',
        "It is Lima.\n\n[user] Thanks.",
    )
    assert found.messages == (2, 4)
    assert found.final == "It is Lima."
    assert not found.cut


def test_an_action_can_be_judged_before_its_result_is_known() -> None:
    found = rendered(MESSAGES, evidence="before")
    assert found.steps == (
        'I look it up.\nsearch({"query":"capital of Peru"})',
        "[search] Lima is the capital of Peru.\n\nIt is Lima.",
    )


def test_thoughts_are_read_only_on_request() -> None:
    assert rendered(MESSAGES, thoughts=True).steps[0].startswith("Lima?\n<think>hm</think>I look it up.\nsearch(")


def test_a_single_user_message_is_the_problem_as_it_stands() -> None:
    assert rendered(MESSAGES[1:]).problem == "What is the capital of Peru?"


def test_long_observations_are_cut_in_the_middle_and_listed() -> None:
    long = [*MESSAGES[:3], {"role": "tool", "tool_call_id": "c1", "content": "a" * 50 + "b" * 50}]
    found = rendered(long, observation_tokens=5)
    assert found.steps[0].endswith("[search] aaaaaaaaaa … bbbbbbbbbb")
    assert found.cut == {3: Cut(100, 20)}


def test_messages_without_text_or_calls_are_no_steps() -> None:
    found = rendered([*MESSAGES[:2], {"role": "assistant", "content": None}, *MESSAGES[4:]])
    assert found.messages == (3,)
    assert rendered(MESSAGES[:2]).steps == ()


def test_parts_of_text_are_joined_and_others_refused() -> None:
    text = {"type": "text", "text": "What is"}
    found = rendered([{"role": "user", "content": [text, {"type": "text", "text": "this?"}]}, MESSAGES[4]])
    assert found.problem == "What is\nthis?"
    with pytest.raises(InvalidRequest, match="message 0 has a part of type 'image_url'") as refused:
        rendered([{"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": "x"}}]}])
    assert refused.value.pointer == "/messages/0/content/1"


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_are_compact_json(arguments: object) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    assert rendered([{"role": "assistant", "tool_calls": [call]}]).steps == ('f({"a":1})',)


@pytest.mark.parametrize("arguments", ["{broken", '{"a": "\\ud800"}', '{"a":' * 1000], ids=["broken", "half", "deep"])
def test_arguments_that_are_no_json_stay_as_they_are(arguments: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    assert rendered([{"role": "assistant", "tool_calls": [call]}]).steps == (f"f({arguments})",)


def test_a_conversation_is_the_problem_of_what_comes_next() -> None:
    assert conversation([Message.model_validate(each) for each in MESSAGES]) == (
        "[system] Be brief.\n\n[user] What is the capital of Peru?\n\n"
        '[assistant] I look it up.\nsearch({"query":"capital of Peru"})\n\n[search] Lima is the capital of Peru.\n\n'
        "[assistant] It is Lima.\n\n[user] Thanks."
    )
    tools = [AgentTool.model_validate({"type": "function", "function": {"name": "search"}})]
    assert (
        conversation([Message.model_validate(MESSAGES[1])], tools) == f"Tools:\n- search()\n\n{MESSAGES[1]['content']}"
    )


def test_atif_becomes_messages() -> None:
    trajectory = {
        "schema_version": "ATIF-v1.4",
        "steps": [
            {"step_id": 1, "source": "system", "message": "Be brief."},
            {"step_id": 2, "source": "user", "message": "What is the capital of Peru?"},
            {"step_id": 3, "source": "agent", "message": "<think>hm</think>I look it up.", "reasoning_content": "Lima?",
             "tool_calls": [{"tool_call_id": "c1", "function_name": "search",
                             "arguments": {"query": "capital of Peru"}}],
             "observation": {"results": [{"source_call_id": "c1", "content": "Lima is the capital of Peru."}]}},
            {"step_id": 4, "source": "agent", "message": "It is Lima."},
            {"step_id": 5, "source": "user", "message": "Thanks."},
        ],
    }  # fmt: skip
    assert rendered(from_atif(trajectory)) == rendered(MESSAGES)


@pytest.mark.parametrize(
    ("trajectory", "place"),
    [
        ({"schema_version": "ATIF-v1.4"}, "/steps"),
        ({"steps": [5]}, "/steps/0"),
        ({"steps": [{"source": "robot"}]}, "/steps/0/source"),
        ({"steps": [{"source": "agent", "tool_calls": [{"function_name": None}]}]},
         "/steps/0/tool_calls/0/function_name"),
        ({"steps": [{"source": "agent", "observation": {"results": ["x"]}}]}, "/steps/0/observation/results/0"),
    ],
)  # fmt: skip
def test_what_is_not_atif_is_refused_at_its_place(trajectory: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^not a trajectory in ATIF: {place}: ") as raised:
        from_atif(trajectory)
    assert raised.value.pointer == place


def test_tools_are_listed_with_parameters() -> None:
    search: dict[str, Any] = {"type": "function", "function": {"name": "search", "description": "Looks things up.",
              "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}  # fmt: skip
    tools = [search, search["function"] | {"type": "function"}, {"type": "code_interpreter"}]
    assert describe_tools([AgentTool.model_validate(each) for each in tools]) == (
        "Tools:\n- search(query): Looks things up.\n- search(query): Looks things up.\n- code_interpreter()"
    )
    assert describe_tools([]) == ""
