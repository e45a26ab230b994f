"""A vote's stream: it begins at once, and tells of every candidate."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message, Receive, Scope, Send

from server.admission import CONTEXT, Admission, Claims, Context
from server.routes.gateway.election import Elected, Observer, Progress
from server.routes.gateway.replies import Sampled
from server.routes.gateway.report import Report, Sample
from server.routes.gateway.schema import ChatRequest
from server.routes.gateway.stream import Chunks, ElectionStream
from tests.fakes import COMPLETION_TOKENS, upstream
from tests.server.gateway.harness import PROBLEM, ask, boxed, gateway
from tests.server.harness import Running
from tests.support import asynchronous, until
from unprm.errors import UpstreamFailed

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
        streamed(running, budget=4, strategy="majority", candidates=True) as events,
    ):
        next(events)
        until(lambda: reasoner.given == 3)
        second.set()
        *rest, _ = events
    assert not any("n" in body for body in reasoner.bodies)
    told = [event["unprm"] for event in rest if "unprm" in event]
    candidates = [each["candidate"] for each in told if "candidate" in each]
    assert [each["index"] for each in candidates] == [0, 1, 2, 3]
    reasons = {each["text"]: each["finish_reason"] for each in candidates}
    assert reasons == dict(zip(texts, ["length", "stop", "stop", "stop"], strict=True))
    assert [each["progress"]["sampled"] for each in told if "progress" in each] == [1, 2, 3, 4]
    assert "solutions" not in told[-1]  # they were told
    for candidate in told[-1]["candidates"]:
        (index,) = candidate["members"]
        assert candidates[index]["text"] == boxed(candidate["answer"])


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
    stream: ElectionStream, sent: list[bytes], go_on: asyncio.Event, context: Context | None = None
) -> openai.AsyncOpenAI:
    """A client of the stream. Sets `go_on` once two comments were sent, and keeps what is sent."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            sent.append(message.get("body", b""))
            if sum(part.startswith(b":") for part in sent) == 2:
                go_on.set()
            await send(message)

        await stream(scope | {CONTEXT: context}, receive, noted)

    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))
    return openai.AsyncOpenAI(base_url="http://x/v1", api_key="x", http_client=http, max_retries=0)


@asynchronous
async def test_silence_is_filled_with_comments_that_openai_s_client_skips() -> None:
    go_on, sent = asyncio.Event(), list[bytes]()

    async def election(tell: Observer) -> Elected:
        tell(Sample(index=0, text="It is 7", finish_reason="stop"))
        tell(Progress(1, 4, None))
        await go_on.wait()
        choice = {"message": {"content": "It is 7"}, "finish_reason": "stop"}
        return Elected([choice], Sampled(), Report.model_construct(answer="7"))

    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"), silence=0.001)
    async with served(stream, sent, go_on) as client:
        chunks = [chunk async for chunk in await client.chat.completions.create(model="m", messages=[], stream=True)]
    assert not any(part.startswith(b":") for part in sent[:4])  # the head and three events came first
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "It is 7"
    told: list[Any] = [chunk.model_extra for chunk in chunks if chunk.model_extra]
    candidate, progress, report = [each["unprm"] for each in told]
    assert candidate == {"candidate": {"index": 0, "text": "It is 7", "finish_reason": "stop"}}
    assert progress == {"progress": {"sampled": 1, "budget": 4, "answer": None}}
    assert report["answer"] == "7"


@asynchronous
async def test_an_error_after_silence_is_an_event() -> None:
    go_on = asyncio.Event()

    async def election(tell: Observer) -> Elected:
        await go_on.wait()
        raise UpstreamFailed("the upstream answered 500")

    context = Context("x", 0.0, Claims(Admission(1)))
    stream = ElectionStream(election, Chunks(ChatRequest.model_validate(BODY), "chatcmpl-1"), silence=0.001)
    async with served(stream, [], go_on, context) as client:
        with pytest.raises(openai.APIError, match="the upstream answered 500") as caught:
            async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
                pass
    assert (caught.value.code, context.code) == ("upstream_failed", "upstream_failed")


@asynchronous
async def test_an_election_ends_with_its_stream() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def election(tell: Observer) -> Elected:
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
