"""Candidates count as soon as they are written: one that is slow holds up no other."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.adder import SCHEMA, call, calling
from tests.fakes import COMPLETION_TOKENS, PROMPT_TOKENS, STREAMED, Upstream, upstream
from tests.server.gateway.harness import PROBLEM, boxed, gateway, refusal

PATH = "/v1/chat/completions"
LONG, FOREVER = 5.0, {0: 1}


def ask(**unprm: Any) -> dict[str, Any]:
    terms = {"budget": 4, "stable": 1, "strategy": "majority"} | unprm
    return {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "unprm": terms}


@pytest.mark.parametrize("strategy", ["majority", "prm"])
def test_when_time_runs_out_those_that_are_there_elect(strategy: str) -> None:
    with (
        upstream("Hm.", boxed(1), boxed(2), boxed(2, "b"), hangs=FOREVER) as reasoner,
        gateway(reasoner, gateway_seconds=1) as running,
    ):
        answer = running.post(PATH, ask(strategy=strategy))
    assert answer.status_code == 200, answer.text
    report = answer.json()["unprm"]
    assert (report["sampled"], report["stopped"]) == (3, "failures")
    assert report["answer"] in ("1", "2")
    assert report["notes"][0] == "1 of 4 candidates are missing: they were not waited for: time ran out"
    # estimated: each of three has three deltas, and what hangs had two; a token of the prompt has four bytes
    usage = answer.json()["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens"] > 20) == (11, True)


def test_those_that_can_change_nothing_are_not_waited_for() -> None:
    with (
        upstream("Hm.", boxed(2), boxed(2, "b"), boxed(2, "c"), hangs=FOREVER) as reasoner,
        gateway(reasoner) as running,
    ):
        report = running.post(PATH, ask()).json()["unprm"]
    assert (report["answer"], report["stopped"], report["sampled"], report["saved"]) == ("2", "stable", 3, 1)
    assert report["failures"] == []


@pytest.mark.parametrize("stable", [0.5, 0.95, 1])
def test_slow_candidates_of_a_round_count_as_much_as_fast_ones(stable: float) -> None:
    """Three that come first agree; the five others of their round state another answer."""

    class Uneven(Upstream):
        async def _chunks(self, *arguments: Any) -> AsyncIterator[str]:
            late = list[str]()
            async for chunk in super()._chunks(*arguments):
                for line in chunk.splitlines(keepends=True):
                    if any(f'"index": {place},' in line for place in (1, 3, 6)):
                        yield line + "\n"
                    elif line.strip():
                        late.append(line + "\n")
            await asyncio.sleep(0.1)
            for line in late:
                yield line

    texts = [boxed(2 if place in (1, 3, 6) else 1, str(place)) for place in range(8)]
    with upstream(*texts, kind=Uneven) as reasoner, gateway(reasoner) as running:
        report = running.post(PATH, ask(budget=8, round=8, stable=stable)).json()["unprm"]
    assert (report["answer"], report["share"], report["sampled"]) == ("1", 5 / 8, 8)


def test_equal_texts_without_an_answer_end_no_round() -> None:
    with (
        upstream(*["I sing of frogs\nand of their pond"] * 8) as reasoner,
        gateway(reasoner, gateway_seconds=20) as running,
    ):
        report = running.post(PATH, ask(budget=8, round=5)).json()["unprm"]
    assert (report["answer"], report["sampled"], report["rounds"], report["failures"]) == (None, 8, 2, [])


def test_nobody_answers_in_time() -> None:
    never = threading.Event()
    with upstream(boxed(1), held={0: never}) as reasoner, gateway(reasoner, gateway_seconds=LONG / 10) as running:
        failed = running.post(PATH, ask())
        never.set()
    assert (failed.status_code, failed.json()["code"]) == (504, "deadline_exceeded")
    assert failed.json()["detail"].startswith("the request was not answered within 0.45 s")


def test_a_stream_is_read_as_an_answer_would_be() -> None:
    texts: list[Any] = [
        calling(call('{"a": 1, "b": 2}'), call("{}", id="d"), text="I add.", reasoning_content="Hm."),
        boxed(3),
        {"role": "assistant", "content": None, "refusal": "No."},
        "",
    ]
    tools = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    found = []
    for streams in (True, False):
        with upstream(*texts, cut={3}, streams=streams) as reasoner, gateway(reasoner) as running:
            answer = running.post(PATH, ask(show_samples=True) | {"tools": tools}).json()
        assert answer["usage"] == {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": 4 * COMPLETION_TOKENS,
            "total_tokens": PROMPT_TOKENS + 4 * COMPLETION_TOKENS,
        }
        message = answer["choices"][0]["message"]
        found.append((answer["unprm"]["solutions"], answer["unprm"]["answer"], answer["model"], message))
    assert found[0] == found[1]
    assert [each["text"] for each in found[0][0]] == ["I add.", boxed(3), "", ""]


@pytest.mark.parametrize("field", ["stream", "stream_options", "max_tokens"])
def test_what_the_upstream_refuses_is_not_sent_again(field: str) -> None:
    refused = refusal(400, f"Unsupported parameter: '{field}'")
    with upstream(boxed(1), boxed(2), errors={0: refused, 2: refused}) as reasoner, gateway(reasoner) as running:
        for _ in range(3):
            assert running.post(PATH, ask(budget=2)).json()["unprm"]["sampled"] == 2
    added = {"stream", "stream_options", "max_tokens"}
    sent = [{name for name in (*added, "max_completion_tokens") if name in body} for body in reasoner.bodies]
    kept = added - {field} - ({"stream_options"} if field == "stream" else set())
    if field == "max_tokens":
        kept.add("max_completion_tokens")
    assert sent == [added, kept, added, kept, kept]  # a single refusal may have been that of one request


def test_a_limit_without_room_becomes_smaller_and_is_never_left_out() -> None:
    words = "'max_tokens' or 'max_completion_tokens' is too large: the context has 2048 tokens, the prompt 100"
    with (
        upstream(boxed(1), errors=dict.fromkeys(range(3), refusal(400, words))) as reasoner,
        upstream(boxed(1), errors=dict.fromkeys(range(99), refusal(400, words))) as narrow,
        gateway(reasoner) as running,
    ):
        assert running.post(PATH, ask(budget=1)).status_code == 200
        with gateway(narrow) as strict:
            assert words in strict.post(PATH, ask(budget=1)).json()["detail"]
    named = [(name, body[name]) for body in reasoner.bodies for name in body if name.endswith("_tokens")]
    assert named == [("max_tokens", 8192), ("max_completion_tokens", 8192), ("max_tokens", 2048), ("max_tokens", 512)]
    assert [name for body in narrow.bodies for name in body if name == "max_tokens"] == ["max_tokens"] * 4
    assert all(body.keys() & {"max_tokens", "max_completion_tokens"} for body in narrow.bodies)


def test_a_candidate_is_limited_where_its_request_sets_no_limit() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner, gateway_max_tokens=99) as running:
        running.post(PATH, ask(budget=1))
        running.post(PATH, ask(budget=2) | {"max_completion_tokens": 7})
    first, second = reasoner.bodies
    assert (first["max_tokens"], "stream" in first, "max_tokens" in second) == (99, False, False)
    assert {name: second[name] for name in STREAMED} == STREAMED


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ('data: {"error": {"message": "out of memory"}}\n\n', "an error: out of memory"),
        ("data: {\n\n", "not a chat completion"),
        ('data: {"choices": [{"index": 0, "delta": [1]}]}\n\n', "not a chat completion"),
        ('data: {"choices": "x"}\n\n', "not a chat completion"),
    ],
    ids=["error", "cut", "delta", "choices"],
)
def test_a_stream_that_is_none_is_the_upstream_s_failure(events: str, reason: str) -> None:
    class Broken(Upstream):
        async def _complete(self, request: Any) -> Response:
            return StreamingResponse(iter([events]), media_type="text/event-stream")

    with upstream(boxed(1), kind=Broken) as reasoner, gateway(reasoner) as running:
        failed = running.post(PATH, ask())
    assert (failed.status_code, reason in failed.json()["detail"]) == (502, True)


def test_an_upstream_that_ends_a_stream_early_is_asked_again() -> None:
    class Early(Upstream):
        async def _complete(self, request: Any) -> Response:
            body = await request.json()
            self.bodies.append(body)
            if "n" in body:
                start = '{"index": 0, "delta": {"content": "It"}}'
                return StreamingResponse(iter([f'data: {{"choices": [{start}]}}\n\n']), media_type="text/event-stream")
            return JSONResponse({"choices": [self._choice(0, body)]})

    with upstream(boxed(1), boxed(2), kind=Early) as reasoner, gateway(reasoner) as running:
        report = running.post(PATH, ask(budget=2)).json()["unprm"]
    assert (report["sampled"], len(reasoner.bodies)) == (2, 3)


def test_an_upstream_that_ends_every_stream_early_has_failed() -> None:
    class Early(Upstream):
        async def _complete(self, request: Any) -> Response:
            return StreamingResponse(iter(['data: {"choices": []}\n\n']), media_type="text/event-stream")

    with upstream(boxed(1), kind=Early) as reasoner, gateway(reasoner) as running:
        failed = running.post(PATH, ask(budget=2))
    assert (failed.status_code, failed.json()["detail"]) == (
        502,
        "the upstream returned fewer candidates than requested",
    )


def test_the_tokens_of_all_are_told_by_the_upstream_where_all_have_come() -> None:
    class Slow(Upstream):
        async def _chunks(self, *arguments: Any) -> AsyncIterator[str]:
            async for chunk in super()._chunks(*arguments):
                if '"usage"' in chunk:
                    await asyncio.sleep(0.2)
                yield chunk

    with upstream(boxed(2), boxed(2, "b"), kind=Slow) as reasoner, gateway(reasoner) as running:
        usage = running.post(PATH, ask(budget=2)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (PROMPT_TOKENS, 2 * COMPLETION_TOKENS)


def test_where_one_never_ends_another_is_asked_for_in_its_place() -> None:
    class Endless(Upstream):
        async def _chunks(self, *arguments: Any) -> AsyncIterator[str]:
            async for chunk in super()._chunks(*arguments):
                lines = chunk.splitlines(keepends=True)
                yield "".join(line for line in lines if '"index": 1' not in line and "[DONE]" not in line)

    texts = [boxed(1), "lost", boxed(3), boxed(4)]
    with upstream(*texts, kind=Endless) as reasoner, gateway(reasoner) as running:
        report = running.post(PATH, ask(show_samples=True)).json()["unprm"]
    assert [each["text"] for each in report["solutions"]] == [boxed(1), boxed(3), boxed(4), boxed(1)]
    assert report["failures"] == []


def test_an_endless_line_is_the_upstream_s_failure() -> None:
    class Endless(Upstream):
        async def _complete(self, request: Any) -> Response:
            return StreamingResponse(itertools.repeat("data: " + "x" * 9999), media_type="text/event-stream")

    with upstream(boxed(1), kind=Endless) as reasoner, gateway(reasoner, max_body_bytes=100_000) as running:
        failed = running.post(PATH, ask())
    assert (failed.status_code, "longer than 100000 bytes" in failed.json()["detail"]) == (502, True)
