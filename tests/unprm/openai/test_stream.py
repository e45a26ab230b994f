"""What is put together from a stream, however odd its events are."""

import json
from typing import Any

import pytest

from unprm.openai.completion import Completion
from unprm.openai.errors import APIResponseError, APIStatusError
from unprm.openai.stream import CompletionStream

CHOICES = 4


def event(**choice: Any) -> bytes:
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


def part(delta: dict[str, Any], index: Any = 0, **more: Any) -> bytes:
    return event(index=index, delta=delta, **more)


def ended(*events: bytes) -> list[tuple[int, Completion]]:
    return [(index, found) for index, found in read(*events) if not isinstance(found, str)]


def read(*events: bytes) -> list[tuple[int, Completion | str]]:
    stream = CompletionStream(CHOICES)
    return [each for data in events for each in stream.feed(data)]


def message(*events: bytes) -> dict[str, Any]:
    ((_, completion),) = ended(*events, part({}, finish_reason="stop"))
    made: dict[str, Any] = completion.raw["message"]
    return made


def test_a_choice_counts_once_and_only_those_that_were_asked_for_do() -> None:
    ends = [part({"content": str(index)}, index, finish_reason="stop") for index in (3, 0, 3, 0, -1, CHOICES, 10**30)]
    assert [(index, completion.text) for index, completion in ended(*ends)] == [(3, "3"), (0, "0")]


def test_a_choice_without_an_index_is_the_first() -> None:
    assert [index for index, _ in ended(event(delta={"content": "a"}, finish_reason="stop"))] == [0]


def test_what_goes_on_at_the_end_of_a_stream_is_whole_only_where_it_is_said_to_end() -> None:
    text = part({"content": "5"}, 1)
    assert ended(text) == []
    ((index, completion),) = ended(text, b"data: [DONE]\n\n")
    assert (index, completion.text) == (1, "5")


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_comments_names_and_line_ends_are_those_of_any_stream(end: str) -> None:
    data = json.dumps({"choices": [{"index": 0, "delta": {"content": "5"}, "finish_reason": "stop"}]})
    lines = (": busy", f"event: x{end[: len(end) // 2]}data:{data}", "data:[DONE]")
    ((_, completion),) = ended(*(f"{line}{end}".encode() for line in lines))
    assert completion.text == "5"


def test_calls_whose_names_and_ids_are_repeated_or_null_are_whole() -> None:
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": ""}}
    again = {"index": 0, "id": "", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}
    nulls = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ": 1}"}}
    (call,) = message(*(part({"tool_calls": [each]}) for each in (first, again, nulls)))["tool_calls"]
    assert (call["id"], call["type"], call["function"]) == ("c", "function", {"name": "add", "arguments": '{"a": 1}'})


def test_arguments_that_are_an_object_are_kept() -> None:
    calls = [{"function": {"name": "add", "arguments": ""}}, {"index": 0, "function": {"arguments": {"a": 1}}}]
    (call,) = message(*(part({"tool_calls": [each]}) for each in calls))["tool_calls"]
    assert call["function"]["arguments"] == '{"a": 1}'


def test_a_legacy_call_comes_in_pieces() -> None:
    pieces = [{"name": "add", "arguments": '{"a"'}, {"arguments": ": 1}"}]
    made = message(*(part({"role": "assistant", "function_call": each}) for each in pieces))
    assert made["function_call"] == {"name": "add", "arguments": '{"a": 1}'}


def test_a_text_may_come_as_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    made = message(
        part({"content": [thinking]}), part({"content": [{"type": "text", "text": "It is "}]}), part({"content": "5."})
    )
    assert made["content"] == "It is 5."


def test_a_text_is_told_piece_by_piece_as_far_as_it_counts() -> None:
    parts = (
        part({"content": [{"type": "text", "text": "It "}]}),
        part({"role": "assistant", "content": None}, 1),
        part({"content": "is"}, CHOICES),
        part({"content": "5", "reasoning_content": "Hm."}, finish_reason="stop"),
        part({"content": "6"}),
    )
    assert [found for found in read(*parts) if isinstance(found[1], str)] == [(0, "It "), (0, "5")]


def test_a_message_may_come_whole() -> None:
    assert message(event(index=0, message={"role": "assistant", "content": "5"}))["content"] == "5"
    both = event(index=0, delta={"content": "5"}, message={"content": "all"})
    assert message(both)["content"] == "5"


def test_usage_may_come_without_choices() -> None:
    stream = CompletionStream(CHOICES)
    for more in ({}, {"choices": None}):
        assert stream.feed(f"data: {json.dumps({'usage': {'completion_tokens': 3}} | more)}\n\n".encode()) == []
    assert stream.usage is not None


@pytest.mark.parametrize("error", [{"type": "x"}, ["busy"], {"message": "busy"}, "busy"], ids=str)
def test_an_error_in_any_form_ends_the_stream(error: Any) -> None:
    data = {"error": error, "choices": []}
    with pytest.raises(APIResponseError, match="an error") as caught:
        CompletionStream(CHOICES).feed(f"data: {json.dumps(data)}\n\n".encode())
    assert caught.value.message in ("busy", "without a reason")
    with pytest.raises(APIStatusError, match="an error inside a 200: 429"):
        CompletionStream(CHOICES).feed(b'data: {"error": {"code": 429}}\n\n')


@pytest.mark.parametrize("goes_on", ["", None, "null"])
def test_only_the_reasons_of_the_api_end_a_completion(goes_on: Any) -> None:
    made = ended(*(part({"content": text}, finish_reason=goes_on) for text in "ab"), part({}, finish_reason="length"))
    assert [(index, each.text, each.finish) for index, each in made] == [(0, "ab", "length")]


def test_a_completion_with_another_reason_ends_with_the_stream() -> None:
    ((_, completion),) = ended(part({"content": "5"}, finish_reason="eos"), b"data: [DONE]\n\n")
    assert (completion.text, completion.finish, completion.raw["finish_reason"]) == ("5", None, None)


@pytest.mark.parametrize("sent", [{"error": {"code": 502}}, {"finish_reason": "error"}], ids=str)
def test_a_choice_that_broke_off_costs_itself(sent: dict[str, Any]) -> None:
    events = part({"content": "4"}), part({"content": "5"}, 1), part({}, **sent), part({}, 1, finish_reason="stop")
    assert [(index, completion.text) for index, completion in ended(*events, b"data: [DONE]\n\n")] == [(1, "5")]


def test_a_sign_of_life_has_no_choices() -> None:
    for data in ({"id": "x"}, {"choices": None}, {"type": "ping"}):
        assert read(f"data: {json.dumps(data)}\n\n".encode()) == []


def _call(id: Any, name: str | None = "look", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("calls", "arguments"),
    [
        ([_call("a", index=0), _call("b", arguments='{"a": 1}', index=0)], ["{}", '{"a": 1}']),
        ([_call("a", index=0), _call("a", index=1)], ["{}", "{}"]),
        ([_call("a", arguments='{"a"', index=0), _call("b", None, ": 1}", index=0)], ['{"a": 1}']),
        ([_call("", "", "", index=0), _call("a", index=1)], ["{}"]),
        ([_call("a", index=0, type=None), _call("b", index=1, type=None)], ["{}", "{}"]),
    ],
    ids=["one index", "one id", "an id for each piece", "an empty one first", "without a type"],
)
def test_parallel_calls_are_kept_apart(calls: list[dict[str, Any]], arguments: list[str]) -> None:
    made = message(*(part({"tool_calls": [each]}) for each in calls))["tool_calls"]
    assert [call["function"]["arguments"] for call in made] == arguments
    assert {call["type"] for call in made} == {"function"}
    assert len({call["id"] for call in made}) == len(made)


def test_all_that_is_kept_counts() -> None:
    stream, long = CompletionStream(CHOICES), "x" * 1000
    kept: tuple[bytes, ...] = (
        part({"content": long}),
        part({"tool_calls": [{"id": long}]}),
        part({"other": [long]}),
        part({}, logprobs={"content": [long]}),
        part({long: "x"}),
        b"data: " + long.encode(),  # a line that doesn't end
    )
    for count, data in enumerate(kept, 1):
        stream.feed(data)
        assert stream.size >= 1000 * count
