"""A vote's stream: it begins at once, and tells of every candidate."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message, Receive, Scope, Send

from server.lease import LEASE, Admission, Lease
from server.routes.gateway.election import ElectionResult, Observer
from server.routes.gateway.report import Progress, Report, TextPiece, WrittenCandidate
from server.routes.gateway.schema import ChatRequest
from server.routes.gateway.stream import Chunks, ElectionStream
from tests.fakes import COMPLETION_TOKENS, STREAMED, Upstream, upstream
from tests.server.gateway.harness import PROBLEM, ask, boxed, gateway
from tests.server.harness import Running
from tests.support import asynchronous, until
from unprm.errors import UpstreamFailed
from unprm.openai.completion import Completion, Samples

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": PROBLEM}], "stream": True}


@contextmanager
def streamed(running: Running, **unprm: Any) -> Iterator[Iterator[Any]]:
    """The events of a request, as they come."""
    with running.http.stream("POST", "/v1/chat/completions", json=BODY | {"unprm": unprm}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: "))
        yield (line if line == "[DONE]" else json.loads(line) for line in lines)


def test_a_stream_shows_progress_and_then_the_answer() -> None:
    text = boxed(1, "Step 1", "Step 2")
    with upstream(text, text, boxed(2)) as reasoner, gateway(reasoner) as running:
        unprm = {"budget": 6, "round": 3, "stable": 1, "strategy": "majority"}
        chunks = ask(running, stream=True, stream_options={"include_usage": True}, extra_body={"unprm": unprm})
    assert [chunk.choices[0].delta.role for chunk in chunks[:2]] == ["assistant", None]
    steps = [chunk.unprm["progress"] for chunk in chunks[1:8]]
    assert [step["sampled"] for step in steps] == [1, 2, 3, 3, 4, 5, 6]
    assert [step["answer"] for step in steps] == [None] * 3 + ["1"] * 4  # the first round is voted on once it is whole
    assert {step["budget"] for step in steps} == {6}
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) == 5
    last, usage = chunks[-2:]
    assert last.choices[0].finish_reason == "stop"
    assert last.unprm["sampled"] == 6
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 6 * COMPLETION_TOKENS
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_first_byte_comes_before_the_upstream_answers() -> None:
    first = threading.Event()
    with (
        upstream(boxed(1), held={0: first}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=1) as events,
    ):
        begin = next(events)
        assert reasoner.given == 0
        first.set()
        *rest, _ = events
    assert begin["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in rest) == boxed(1)


def test_progress_is_streamed_while_candidates_are_sampled() -> None:
    second = threading.Event()
    with (
        upstream(boxed(1), boxed(2), held={1: second}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=4, round=2, stable=1) as events,
    ):
        next(events)
        assert [next(events)["unprm"]["progress"]["sampled"] for _ in range(3)] == [1, 2, 2]
        assert reasoner.given == 2
        second.set()
        *_, last = events
    assert last == "[DONE]"


def test_progress_is_streamed_while_others_of_the_round_are_sampled() -> None:
    second = threading.Event()
    with (
        upstream(boxed(1), boxed(2), takes_n=False, held={1: second}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=4) as events,
    ):
        next(events)
        assert next(events)["unprm"]["progress"] == {"sampled": 1, "budget": 4, "answer": None}
        second.set()
        *_, last = events
    assert last == "[DONE]"


def test_every_candidate_is_told_as_it_arrives_if_the_request_wants_it() -> None:
    """Each is asked for on its own; they are told in the order in which the report counts them, whichever is first."""
    texts = [boxed(1), boxed(2), boxed(3), boxed(4)]
    second = threading.Event()
    with (
        upstream(*texts, cut={0}, held={1: second}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=4, strategy="majority", show_samples=True) as events,
    ):
        next(events)
        until(lambda: reasoner.given == 3)
        second.set()
        *rest, _ = events
    assert not any("n" in body for body in reasoner.bodies)
    candidates = told(rest, "candidate")
    assert [each["index"] for each in candidates] == [0, 1, 2, 3]
    reasons = {each["text"]: each["finish_reason"] for each in candidates}
    assert reasons == dict(zip(texts, ["length", "stop", "stop", "stop"], strict=True))
    assert [each["sampled"] for each in told(rest, "progress")] == [1, 2, 3, 4]
    assert "solutions" not in rest[-1]["unprm"]  # they were told
    for candidate in rest[-1]["unprm"]["candidates"]:
        (index,) = candidate["members"]
        assert candidates[index]["text"] == boxed(candidate["answer"])


def told(events: Iterable[Any], kind: str) -> list[Any]:
    """What events tell of an election."""
    return [event["unprm"][kind] for event in events if event != "[DONE]" and kind in event.get("unprm", {})]


def test_a_candidate_is_told_while_it_is_written() -> None:
    more, text = threading.Event(), boxed(1, "Step 1: so.")
    with (
        upstream(text, paused={0: more}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=1, show_samples=True) as events,
    ):
        next(events)
        assert told([next(events)], "piece") == [{"candidate": 0, "text": text[: len(text) // 2]}]
        more.set()
        rest = list(events)
    assert told(rest[:1], "piece") == [{"candidate": 0, "text": text[len(text) // 2 :]}]
    assert told(rest[1:2], "candidate") == [{"index": 0, "text": text, "finish_reason": "stop"}]
    assert STREAMED.items() <= reasoner.bodies[0].items()


@pytest.mark.parametrize("strategy", ["majority", "cisc"])
def test_a_candidate_that_is_not_streamed_is_one_piece(strategy: str) -> None:
    with (
        upstream(boxed(1), streams=strategy == "cisc") as reasoner,  # whose log-probabilities are not put together
        gateway(reasoner) as running,
        streamed(running, budget=1, strategy=strategy, show_samples=True) as events,
    ):
        assert told(events, "piece") == [{"candidate": 0, "text": boxed(1)}]


def test_what_was_told_of_a_candidate_that_is_lost_is_taken_back() -> None:
    """And so is what was told of the others after it, which are candidates by lower numbers then."""

    class Lossy(Upstream):
        async def _chunks(self, common: Any, choices: Any, *rest: Any) -> AsyncIterator[str]:
            chunks = super()._chunks(common, choices, *rest)
            yield await anext(chunks)
            following = [chunk async for chunk in chunks]
            lost = choices[0]["message"]["content"] == "It is"
            yield 'data: {"error": "out of memory"}\n\n' if lost else "".join(following)

    more = threading.Event()
    with (
        upstream("It is", boxed(2), kind=Lossy, paused={0: more}) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=2, strategy="majority", show_samples=True) as events,
    ):
        (lost,) = next(found for event in events if (found := told([event], "piece")) and found[0]["text"] == "It")
        more.set()
        rest = list(events)
    assert [(each["index"], each["text"]) for each in told(rest, "candidate")] == [(0, boxed(2))]
    for number in {1, lost["candidate"]}:
        assert [each["text"] for each in told(rest, "piece") if each["candidate"] == number][-1] == ""


def test_a_stream_that_ends_early_is_begun_anew() -> None:
    class Early(Upstream):
        async def _chunks(self, *arguments: Any) -> AsyncIterator[str]:
            yield await anext(super()._chunks(*arguments))

    text = boxed(1)
    with (
        upstream(text, kind=Early) as reasoner,
        gateway(reasoner) as running,
        streamed(running, budget=1, show_samples=True) as events,
    ):
        seen = list(events)
    assert [each["text"] for each in told(seen, "piece")] == [text[: len(text) // 2], "", text]
    assert told(seen, "answer") == ["1"]


def test_a_caller_who_leaves_ends_what_is_being_written() -> None:
    with upstream(boxed(1), paused={0: threading.Event()}) as reasoner, gateway(reasoner) as running:
        with streamed(running, budget=1, show_samples=True) as events:
            assert told(islice(events, 2), "piece")
        until(lambda: reasoner.gone == 1)


def test_what_is_known_before_the_upstream_is_asked_has_its_status() -> None:
    with upstream(boxed(1)) as reasoner, gateway(reasoner, gateway_budget=4) as running:
        for unprm, code in (
            ({"budget": 5}, "too_many_solutions"),
            ({"model": "other"}, "unknown_model"),
            ({"speed": 1}, "invalid_request"),
        ):
            refused = running.post("/v1/chat/completions", BODY | {"unprm": unprm})
            assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert not reasoner.bodies


def served(
    stream: ElectionStream, sent: list[bytes], go_on: asyncio.Event, context: Lease | None = None
) -> openai.AsyncOpenAI:
    """A client of the stream. Sets `go_on` once two comments were sent, and keeps what is sent."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            sent.append(message.get("body", b""))
            if sum(part.startswith(b":") for part in sent) == 2:
                go_on.set()
            await send(message)

        await stream(scope | {LEASE: context}, receive, noted)

    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
    return openai.AsyncOpenAI(base_url="http://x/v1", api_key="x", http_client=http, max_retries=0)


@asynchronous
async def test_silence_is_filled_with_comments_that_openai_s_client_skips() -> None:
    go_on, sent = asyncio.Event(), list[bytes]()

    async def election(tell: Observer) -> ElectionResult:
        tell(WrittenCandidate(index=0, text="It is 7", finish_reason="stop"))
        tell(Progress(sampled=1, budget=4, answer=None))
        await go_on.wait()
        choice = {"message": {"content": "It is 7"}, "finish_reason": "stop"}
        read = Completion.read(choice)
        assert read is not None
        return ElectionResult([read], Samples(), Report.model_construct(answer="7"))

    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"), silence=0.001)
    async with served(stream, sent, go_on, Lease(Admission(1), "x")) as client:
        chunks = [chunk async for chunk in await client.chat.completions.create(model="m", messages=[], stream=True)]
    assert not any(part.startswith(b":") for part in sent[:4])  # the head and three events came first
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "It is 7"
    extras: list[Any] = [chunk.model_extra for chunk in chunks if chunk.model_extra]
    candidate, progress, report = [each["unprm"] for each in extras]
    assert candidate == {"candidate": {"index": 0, "text": "It is 7", "finish_reason": "stop"}}
    assert progress == {"progress": {"sampled": 1, "budget": 4, "answer": None}}
    assert report["answer"] == "7"


@asynchronous
async def test_pieces_that_wait_for_a_slow_reader_are_joined() -> None:
    async def election(tell: Observer) -> ElectionResult:
        for candidate, text in ((0, "It "), (1, "Hm"), (0, "is"), (1, ""), (1, "7")):
            tell(TextPiece(candidate=candidate, text=text))
        raise UpstreamFailed("the upstream answered 500")

    sent = list[bytes]()
    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"))
    async with served(stream, sent, asyncio.Event(), Lease(Admission(1), "x")) as client:
        with pytest.raises(openai.APIError):
            async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
                pass
    pieces = told((json.loads(part.removeprefix(b"data: ")) for part in sent if b"piece" in part), "piece")
    assert [(each["candidate"], each["text"]) for each in pieces] == [(0, "It is"), (1, ""), (1, "7")]


@asynchronous
async def test_an_error_after_silence_is_an_event() -> None:
    go_on = asyncio.Event()

    async def election(tell: Observer) -> ElectionResult:
        await go_on.wait()
        raise UpstreamFailed("the upstream answered 500")

    context = Lease(Admission(1), "x")
    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"), silence=0.001)
    async with served(stream, [], go_on, context) as client:
        with pytest.raises(openai.APIError, match="the upstream answered 500") as caught:
            async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
                pass
    assert (caught.value.code, context.code) == ("upstream_failed", "upstream_failed")


@asynchronous
async def test_an_election_ends_with_its_stream() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def election(tell: Observer) -> ElectionResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def send(message: Message) -> None:
        pass

    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"))
    response = asyncio.create_task(stream({"type": "http"}, asyncio.Queue[Message]().get, send))
    await begun.wait()
    response.cancel()
    with pytest.raises(asyncio.CancelledError):
        await response
    assert ended.is_set()
