"""Votes on tool calls, with OpenAI's client."""

import json
from typing import Any

import openai
import pytest

from tests.adder import TASK, TOOLS, adding, call, calling
from tests.fake_engine import FakeEngine, hashed
from tests.fakes import openai_server, upstream
from tests.server.gateway.harness import PROBLEM, ask, boxed, client, gateway
from tests.server.harness import serving
from unprm.types import Encoded
from unprm.votes.registry import VOTES

RIGHT, OTHER, BROKEN = call('{"a": 1, "b": 2}', id="right"), call('{"a": 3}', id="other"), call('{"a": 1', id="broken")
SAME = call('{"b":2.0,"a":1}', id="same")
NO_JSON = [call(arguments) for arguments in ("[1]", "3", '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 300, " ")]
LAX: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CUSTOM = {"id": "x", "type": "custom", "custom": {"name": "shell", "input": "ls"}}


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_calls_the_elected_tools(stream: bool) -> None:
    """Three calls, then the answer. The first of the candidates that agree is returned as it came, with its id."""
    messages: list[Any] = [{"role": "user", "content": TASK}]
    called: list[str] = []
    with (
        openai_server(adding) as (url, seen),
        serving(FakeEngine(), upstream_url=url) as running,
        client(running) as api,
    ):
        while len(messages) < 9:
            asked: dict[str, Any] = {"model": "m", "messages": messages, "tools": TOOLS}
            if stream:
                with api.chat.completions.stream(**asked) as chunks:
                    answer: Any = chunks.get_final_completion()
            else:
                answer = api.chat.completions.create(**asked)
                report = answer.unprm
                assert (report["strategy"], report["decided_by"], report["reward"]) == ("majority", "majority", None)
            message = answer.choices[0].message
            messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
            if not message.tool_calls:
                break
            (made,) = message.tool_calls
            assert answer.choices[0].finish_reason == "tool_calls"
            assert message.reasoning_content == "It is my turn."
            arguments = json.loads(made.function.arguments)
            messages.append({"role": "tool", "tool_call_id": made.id, "content": str(sum(arguments.values()))})
            called.append(made.id)
    assert called == ["call_0", "call_1", "call_2"]
    assert message.content == "The sum is 224. The answer is 224."
    assert seen[0].body["tools"] == TOOLS
    assert "unprm" not in seen[0].body


@pytest.mark.parametrize(
    ("candidates", "elected", "answer", "count", "without"),
    [
        ([calling(OTHER), calling(RIGHT), calling(SAME)], 1, 'add({"a":1,"b":2})', 2, 0),
        (
            [calling(OTHER), calling(RIGHT, OTHER), calling(OTHER, SAME, OTHER)],
            1,
            'add({"a":1,"b":2})\nadd({"a":3})',
            2,
            0,
        ),
        ([calling(call("{}")), calling(RIGHT), calling(call("")), calling(call("null"))], 0, "add({})", 3, 0),
        ([calling(call('{"a": "x  y"}')), calling(call('{"a": "x y"}'))], 0, 'add({"a":"x  y"})', 1, 0),
        ([calling(RIGHT), boxed(7), boxed("7.0")], 1, "7", 2, 0),
        ([calling(RIGHT), "It is done.", "All done."], 1, "no call", 2, 0),
        ([calling(BROKEN), calling(BROKEN), calling(RIGHT)], 2, 'add({"a":1,"b":2})', 1, 2),
        ([calling(each) for each in NO_JSON], 0, None, 0, 6),
        (["", calling(BROKEN), "Done."], 2, "no call", 1, 2),
        ([calling(CUSTOM), calling(CUSTOM), calling(RIGHT)], 2, 'add({"a":1,"b":2})', 1, 2),
    ],
    ids=["canonical", "a set", "no arguments", "text", "answers", "words", "broken", "all broken", "blank", "custom"],
)
def test_candidates_agree_on_calls_or_answers(
    candidates: list[Any], elected: int, answer: str | None, count: int, without: int
) -> None:
    many = len(candidates)
    with upstream(*candidates) as reasoner, gateway(reasoner) as running:
        more = {"unprm": {"strategy": "majority", "budget": many, "round": many, "stable": 1, "show_samples": True}}
        got = ask(running, tools=LAX, extra_body=more)
        again = ask(running, tools=LAX, n=many, stream=True, extra_body=more)
    report = got.unprm
    assert (report["solution_index"], report["answer"], report["without_answer_count"]) == (elected, answer, without)
    assert sum(each["count"] for each in report["candidates"][:1]) == count
    sent = candidates[elected] if isinstance(candidates[elected], dict) else {"content": candidates[elected]}
    message = got.choices[0].message
    calls = [each.model_dump() for each in message.tool_calls or []]
    assert (message.content, calls) == (sent["content"], sent.get("tool_calls", []))
    assert report["solutions"][0].get("tool_calls") == (
        candidates[0].get("tool_calls") if isinstance(candidates[0], dict) else None
    )
    deltas = [chunk.choices[0].delta for chunk in again if chunk.choices and not chunk.choices[0].index]
    streamed = [made.model_dump() for delta in deltas for made in delta.tool_calls or []]
    assert streamed == [{"index": index} | made for index, made in enumerate(calls)]


@pytest.mark.parametrize("strategy", [name for name in VOTES if name != "select"])  # which calls the upstream, too
def test_every_vote_elects_calls(strategy: str) -> None:
    texts = [calling(BROKEN), calling(OTHER), calling(RIGHT), calling(SAME)]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        report = ask(running, tools=LAX, extra_body={"unprm": {"strategy": strategy, "budget": 4, "stable": 1}}).unprm
        nothing = ask(running, extra_body={"unprm": {"strategy": strategy, "budget": 1}}).unprm
    assert {each["answer"]: each["count"] for each in report["candidates"]} == {
        'add({"a":3})': 1,
        'add({"a":1,"b":2})': 2,
    }
    assert report["answer"] == report["candidates"][0]["answer"]
    assert (nothing["answer"], nothing["solution_index"]) == (None, 0)  # the broken one alone


def test_a_call_that_is_cut_votes_for_nothing() -> None:
    with upstream(calling(OTHER), calling(RIGHT), cut={0}) as reasoner, gateway(reasoner) as running:
        report = ask(running, tools=LAX, extra_body={"unprm": {"budget": 2}}).unprm
    assert (report["solution_index"], report["without_answer_count"], report["cut"]) == (1, 1, 1)


def test_arguments_can_be_left_out_of_the_comparison() -> None:
    texts = [calling(call(f'{{"a": {a}, "why": "{why}"}}', id=why)) for a, why in ((2, "x"), (1, "y"), (1, "z"))]
    with upstream(*texts) as reasoner, gateway(reasoner) as running:
        for excluded, elected, count in (([], "x", 1), (["why"], "y", 2), (["why", "a"], "x", 3)):
            more = {"unprm": {"budget": 3, "round": 3, "exclude_args": excluded}}
            got = ask(running, tools=LAX, extra_body=more)
            assert (got.choices[0].message.tool_calls[0].id, got.unprm["candidates"][0]["count"]) == (elected, count)


CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]},
    calling(RIGHT, text="I add.", reasoning_content="Hm."),
    {"role": "tool", "tool_call_id": "right", "content": "3" * 2001},
    {"role": "user", "content": "And then?"},
]
READ = (
    "Tools:\n- add(a, b)\n\n[system] Be brief.\n\n[user] What is 1 + 2?\n\n"
    f'[assistant] I add.\nadd({{"a":1,"b":2}})\n\n[add] {"3" * 1000} … {"3" * 1000}\n\n[user] And then?'
)


def reading(seen: list[str]) -> FakeEngine:
    """An engine that keeps the texts that it reads."""

    def score(item: Encoded) -> tuple[float, ...]:
        seen.append(bytes(token for token in item.ids if token < 256).decode())
        return tuple(hashed(item))

    return FakeEngine(scores=score, max_tokens=9000)


def test_rewards_are_of_the_action_in_the_whole_conversation() -> None:
    seen: list[str] = []
    whole = call('{"a": 3, "b": 0}')
    acting = [calling(RIGHT, text="So:", reasoning_content="Hm."), calling(whole), "It is 3.\n\nYes."]
    more = {"unprm": {"strategy": "prm", "budget": 3, "round": 3, "stable": 1}}
    with upstream(*acting) as reasoner, gateway(reasoner, reading(seen)) as running:
        for choice, texts in (("auto", acting), ("none", [boxed(1), boxed(2), boxed(3)])):
            reasoner.texts, reasoner.given = texts, 0
            report = ask(running, messages=CONVERSATION, tools=TOOLS, tool_choice=choice, extra_body=more).unprm
            assert (report["strategy"], report["decided_by"]) == ("prm", "reward")
            assert report["reward"] == max(each["max_reward"] for each in report["candidates"])
    assert all("Hm." not in text for text in seen)
    steps = ['So:\nadd({"a":1,"b":2})', 'add({"a":3,"b":0})', "It is 3.Yes."]
    without_tools = READ.partition("\n\n")[2]
    expected = {f"{READ}\n{step}" for step in steps} | {f"{without_tools}\n{boxed(k)}" for k in (1, 2, 3)}
    assert {text.strip() for text in seen} == expected


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, "a part of type 'image_url'"),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "a part of type 'input_audio'"),
    ],
    ids=["image", "audio"],
)
def test_what_the_prm_can_t_read_is_refused_where_it_has_to(part: dict[str, Any], reason: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": PROBLEM}, part]}]
    with upstream(boxed(1)) as reasoner, gateway(reasoner) as running:
        with pytest.raises(openai.UnprocessableEntityError, match=reason) as caught:
            ask(running, messages=messages, extra_body={"unprm": {"strategy": "hmr"}})
        assert caught.value.response.json()["errors"][0]["pointer"] == "/messages/0/content/1"
        assert not reasoner.bodies
        for terms in ({}, {"strategy": "majority"}, {"strategy": "cisc"}, {"problem": PROBLEM}):
            answer = ask(running, messages=messages, extra_body={"unprm": {"budget": 1, **terms}})
            assert answer.choices[0].message.content == boxed(1)
            assert reasoner.bodies[-1]["messages"] == messages


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_kept_and_never_searched_or_scored(name: str) -> None:
    seen: list[str] = []
    texts = [{"role": "assistant", "content": boxed(k), name: "I guess \\boxed{9}."} for k in (1, 2)]
    texts.append({"role": "assistant", "content": None, name: "It must be \\boxed{9}."})
    more = {"unprm": {"strategy": "prm", "budget": 3, "round": 3, "stable": 1}}
    with upstream(*texts) as reasoner, gateway(reasoner, reading(seen)) as running:
        answer = ask(running, extra_body=more)
        chunks = ask(running, stream=True, extra_body=more)
    assert getattr(answer.choices[0].message, name) == "I guess \\boxed{9}."
    assert [each for chunk in chunks if (each := getattr(chunk.choices[0].delta, name, None))] == [
        "I guess \\boxed{9}."
    ]
    assert sorted(each["answer"] for each in answer.unprm["candidates"]) == ["1", "2"]
    assert answer.unprm["without_answer_count"] == 1
    assert all("9" not in text for text in seen)


def test_a_call_that_is_repeated_is_one() -> None:
    with upstream(calling(RIGHT, SAME), calling(OTHER), calling(SAME)) as reasoner, gateway(reasoner) as running:
        report = ask(running, tools=LAX, extra_body={"unprm": {"budget": 3, "round": 3, "stable": 1}}).unprm
    assert (report["answer"], report["candidates"][0]["members"]) == ('add({"a":1,"b":2})', [0, 2])
