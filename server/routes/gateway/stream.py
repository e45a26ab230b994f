"""The elected completions in OpenAI's form: whole, or as server-sent events, which begin before there are any."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from unprm.openai.models import Json
from unprm.task_groups import all_of

from ...lease import lease_of
from ...problem_details import event, respond
from .election import ElectionResult, ElectionUpdate, Observer
from .report import Progress, TextPiece, WrittenCandidate
from .schema import ChatRequest

EVENTS = "text/event-stream"
SILENCE = 5.0
"""Seconds without an event after which a comment is sent: many proxies hang up on a server that is silent for 30 s."""
_UPDATES = {Progress: "progress", TextPiece: "piece", WrittenCandidate: "candidate"}
_COMMENT = b": candidates are being sampled\n\n"
_APART = ("role", "content", "tool_calls")
"""Fields of a message that have chunks of their own."""
_PARTS = 1000
"""Maximum number of parts in which an answer is sent: each costs the server time."""


class AnswerFormat(Protocol):
    """The answer to one request in the form of an API: whole, or as events at the start of its election, at each
    update, and for its outcome."""

    def whole(self, elected: ElectionResult) -> Json:
        """Raises `UpstreamFailed` if this API can't express it."""
        ...

    def begin(self) -> bytes: ...

    def update(self, update: ElectionUpdate) -> bytes: ...

    def answer(self, elected: ElectionResult) -> Iterator[bytes]:
        """The last events. Raises as `whole`, before the first."""
        ...

    def fail(self, problem: bytes) -> bytes:
        """In place of the last ones: an error, as its problem details say."""
        return event(problem, "error")


class Chunks(AnswerFormat):
    """A chat completion, or the events of one: its answers, and the usage if the request asks for it."""

    def __init__(self, request: ChatRequest, id: str) -> None:
        self._usage = bool((request.stream_options or {}).get("include_usage"))
        about = {"id": id, "object": "chat.completion.chunk", "created": int(time.time()), "model": request.model}
        self._common: Json = about

    def whole(self, elected: ElectionResult) -> Json:
        return self._common | {
            "object": "chat.completion",
            "model": elected.sampled.model or self._common["model"],
            "choices": [
                choice.raw | {"index": index, "finish_reason": choice.ended_by}
                for index, choice in enumerate(elected.choices)
            ],
            "usage": elected.sampled.usage.for_chat(),
            "unprm": elected.report.model_dump(mode="json"),
        }

    def begin(self, index: int = 0) -> bytes:
        return self._chunk({"role": "assistant", "content": ""}, index=index)

    def update(self, update: ElectionUpdate) -> bytes:
        """An empty chunk of the answer, which reports the election's progress."""
        return self._chunk({}, unprm=describe(update))

    def answer(self, elected: ElectionResult) -> Iterator[bytes]:
        """The rest. For each completion: other fields of the message, as thoughts, then the text in parts, then the
        whole tool calls. The report comes with the first completion's last chunk; the usage is last."""
        for index, choice in enumerate(elected.choices):
            if index:
                yield self.begin(index)
            if rest := {name: value for name, value in choice.raw["message"].items() if value and name not in _APART}:
                yield self._chunk(rest, index=index)
            for part, logprobs in _with_logprobs(list(parts_of(choice.text)), choice.raw.get("logprobs")):
                yield self._chunk({"content": part}, index=index, logprobs=logprobs)
            if calls := [{"index": number} | call for number, call in enumerate(choice.calls)]:
                yield self._chunk({"tool_calls": calls}, index=index)
            report = {} if index else {"unprm": elected.report.model_dump(mode="json")}
            yield self._chunk({}, choice.ended_by, index, **report)
        if self._usage:
            yield _encoded(self._common | {"choices": [], "usage": elected.sampled.usage.for_chat()})
        yield event(b"[DONE]")

    def _chunk(
        self, delta: Json, reason: str | None = None, index: int = 0, logprobs: object = None, **more: Json
    ) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": reason}
        if logprobs is not None:
            choice["logprobs"] = logprobs
        return _encoded(self._common | {"choices": [choice]} | more)


class ElectionStream(StreamingResponse):
    """The events of an election while it goes on: the first at once, and a comment after every `silence` seconds
    without any. The status is then sent: an error is an event, as with OpenAI."""

    def __init__(
        self,
        election: Callable[[Observer], Coroutine[Any, Any, ElectionResult]],
        format: AnswerFormat,
        silence: float = SILENCE,
    ) -> None:
        super().__init__(self._events(), media_type=EVENTS)
        self._election, self._format, self._silence = election, format, silence
        self._updates: asyncio.Queue[ElectionUpdate | ElectionResult | Exception] = asyncio.Queue()
        self._texts: dict[int, list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Holds the election and sends its events; ends one with the other."""
        self._scope = scope
        await all_of([self._elect(), self.stream_response(send)])

    async def _elect(self) -> None:
        update: ElectionResult | Exception
        try:
            update = await self._election(self._observe)
        except Exception as error:  # whatever it is, the reader of the stream is waiting for it
            update = error
        self._updates.put_nowait(update)

    def _observe(self, update: ElectionUpdate) -> None:
        """Queues it. Pieces of a candidate that wait for a slow reader become one."""
        if isinstance(update, TextPiece):
            waits = update.candidate in self._texts
            texts = self._texts.setdefault(update.candidate, [])
            if not update.text:
                texts.clear()
            texts.append(update.text)
            if waits:
                return
        self._updates.put_nowait(update)

    def _take_pieces(self, candidate: int) -> Iterator[TextPiece]:
        texts = self._texts.pop(candidate)
        if texts[0] == "":
            yield TextPiece(candidate=candidate, text="")
        if text := "".join(texts):
            yield TextPiece(candidate=candidate, text=text)

    async def _events(self) -> AsyncIterator[bytes]:
        yield self._format.begin()
        while True:
            try:
                async with asyncio.timeout(self._silence):
                    update = await self._updates.get()
            except TimeoutError:
                yield _COMMENT
                continue
            if isinstance(update, ElectionUpdate):
                for each in self._take_pieces(update.candidate) if isinstance(update, TextPiece) else [update]:
                    yield self._format.update(each)
                continue
            try:
                if isinstance(update, Exception):
                    raise update
                update.report.solutions = None  # they were streamed
                answer = partial(list[bytes], self._format.answer(update))
                for part in await lease_of(self._scope).read(answer):  # log-probabilities are long
                    yield part
                    await asyncio.sleep(0)  # a caller that reads fast must not keep the others waiting
            except Exception as error:  # as above
                yield self._format.fail(bytes(respond(error, self._scope).body))
            return


def typed_event(type: str, **fields: Any) -> bytes:
    """A server-sent event whose name is also the `type` of its JSON."""
    return event(json.dumps({"type": type, **fields}).encode(), type)


def describe(update: ElectionUpdate) -> Json:
    return {_UPDATES[type(update)]: update.model_dump()}


def parts_of(text: str) -> Iterator[str]:
    """The text line by line; a long one in at most `_PARTS` parts of as many lines."""
    lines = text.splitlines(keepends=True)
    size = -(-len(lines) // _PARTS)
    for start in range(0, len(lines), max(1, size)):
        yield "".join(lines[start : start + size])


def _with_logprobs(parts: list[str], logprobs: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a text, the log-probabilities of its tokens spread evenly over them in order, whichever part a token
    is of. Log-probabilities that are no list of tokens come with the first part."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list):
        yield from zip(parts, [logprobs, *[None] * len(parts)], strict=False)
        return
    size = -(-len(tokens) // max(1, len(parts)))
    for number, part in enumerate(parts):
        some = tokens[number * size : (number + 1) * size]
        yield part, logprobs | {"content": some} if some else None


def _encoded(chunk: Json) -> bytes:
    return event(json.dumps(chunk).encode())
