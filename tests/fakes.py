"""Servers of OpenAI's HTTP API for tests: one that answers as a test says, and a gateway's upstream with texts written
beforehand."""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support import until


class _Server(uvicorn.Server):
    """Ends as soon as it is told to."""

    async def main_loop(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(0.01)


@contextmanager
def listening(routes: Sequence[Route], port: int = 0) -> Iterator[str]:
    """Serves in a thread until the end of the block; yields the address."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off", ws="none")
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Seen(NamedTuple):
    """A request as the server got it."""

    path: str
    body: Any
    authorization: str | None


class Refusal(NamedTuple):
    """An answer with a status of its own."""

    status: int
    content: Any


async def at_once(seconds: float) -> None:
    """For an `OpenAIClient` to wait with: not at all."""


@contextmanager
def openai_server(
    answer: Callable[[Any], Any],
    statuses: Sequence[int] = (),
    headers: Mapping[str, str] | None = None,
    port: int = 0,
    slots: int | None = None,
    props: bool = False,
) -> Iterator[tuple[str, list[Seen]]]:
    """Answers the first requests with `statuses` and `headers`, the others with what `answer(body)` returns: bytes as
    they are, a value as JSON, or a `Refusal`. `slots`: as many as llama.cpp would say it has; `props`: what
    `answer(None)` returns is said where llama.cpp says it. Yields the address and the list of requests so far, without
    those."""
    seen: list[Seen] = []
    pending = list(statuses)

    async def respond(request: Request) -> Response:
        path = request.scope["raw_path"].decode()
        if path == "/props" and not props:
            return Response(status_code=404) if slots is None else JSONResponse({"total_slots": slots})
        body = json.loads(await request.body() or "null")
        if request.url.query:
            path += f"?{request.url.query}"
        seen.append(Seen(path, body, request.headers.get("authorization")))
        status = pending.pop(0) if pending else 200
        content = {"error": {"message": f"no: {json.dumps(body)}"}}
        if status == 200:
            content = await run_in_threadpool(answer, body)
        if isinstance(content, Refusal):
            status, content = content
        payload = content if isinstance(content, bytes) else json.dumps(content)
        return Response(payload, status, None if status == 200 else headers)

    with listening([Route("/{path:path}", respond, methods=["GET", "POST"])], port) as url:
        yield url, seen


PROMPT_TOKENS, COMPLETION_TOKENS = 10, 7
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""What the gateway sends with a request for several completions."""
TOKENS = 3
"""Tokens of a completion that have log-probabilities."""


def top_logprobs(number: int, place: int) -> list[float]:
    """Log-probabilities of the likeliest tokens at a place of the number-th text."""
    return [-0.05 * (1 + (7 * number + 3 * place) % 5) * (1 + rank) ** 2 for rank in range(20)]


@dataclass
class Upstream:
    """Gives `texts` one after the other, again from the start at their end; a text may be a whole message.

    `for_problem` has texts for single problems, the next one last, and `refused` responses to them. `errors` maps the
    number of a call, from 0, to the response it gets, `held` to an event before which it gets none; `hangs`, the number
    of a text to the place of a token after which its stream has nothing more, `paused` to an event before which its
    stream has only the first. `takes_n` and `streams`:
    whether it heeds `n` and `stream`;
    `gives_logprobs`: whether it has log-probabilities for callers that ask for them; `logprobs`: what it has instead of
    its own for single texts, by their number; `cut`: the numbers of texts that end at `max_tokens`; `ends`: why others
    do; `lists`: the models that it says it has; `usage`: what it tells of each call beside the tokens. `bodies`, `keys`
    and `traces` are the
    JSON bodies and the headers Authorization and traceparent of the calls, `given` counts choices, `gone` the callers
    that disconnected, `most_running` the calls at a time.
    """

    texts: Sequence[str | dict[str, Any]]
    errors: Mapping[int, Response] = field(default_factory=dict)
    held: Mapping[int, threading.Event] = field(default_factory=dict)
    hangs: Mapping[int, int] = field(default_factory=dict)
    paused: Mapping[int, threading.Event] = field(default_factory=dict)
    takes_n: bool = True
    streams: bool = True
    gives_logprobs: bool = True
    logprobs: Mapping[int, dict[str, Any] | None] = field(default_factory=dict)
    cut: Collection[int] = ()
    ends: Mapping[int, str] = field(default_factory=dict)
    lists: Sequence[str] = ("reasoner",)
    usage: Mapping[str, Any] = field(default_factory=dict)
    media_type: str = "application/json"
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    traces: list[str | None] = field(default_factory=list)
    given: int = 0
    gone: int = 0
    running: int = 0
    most_running: int = 0
    for_problem: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, Response] = field(default_factory=dict)

    async def complete(self, request: Request) -> Response:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            return await self._complete(request)
        finally:
            self.running -= 1

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        number = len(self.bodies)  # only now: others may have come while this one was read
        self.bodies.append(body)
        self.keys.append(request.headers.get("authorization"))
        self.traces.append(request.headers.get("traceparent"))
        while (gate := self.held.get(number)) is not None and not gate.is_set():
            await asyncio.sleep(0.01)
            if await request.is_disconnected():
                self.gone += 1
                break
        problem = str(body["messages"][-1]["content"])
        if error := self.errors.get(number) or self.refused.get(problem):
            return error
        count = body.get("n", 1) if self.takes_n else 1
        first = self.given % max(1, len(self.texts))
        choices = [self._choice(index, body) for index in range(count)]
        usage: dict[str, Any] = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count * COMPLETION_TOKENS}
        usage |= {"total_tokens": 0, **self.usage}
        common = {"id": "x", "object": "chat.completion", "created": 1, "model": f"{body['model']}-served"}
        if body.get("stream") and self.streams:
            hangs = {number - first: place for number, place in self.hangs.items() if first <= number < first + count}
            pauses = [self.paused[number] for number in range(first, first + count) if number in self.paused]
            chunks = self._chunks(common, choices, usage, hangs, pauses)
            return StreamingResponse(chunks, media_type="text/event-stream")
        return JSONResponse(common | {"choices": choices, "usage": usage})

    async def _chunks(
        self,
        common: dict[str, Any],
        choices: list[dict[str, Any]],
        usage: Any,
        hangs: dict[int, int],
        pauses: Sequence[threading.Event],
    ) -> AsyncIterator[str]:
        """The choices in two parts each, or token by token if they have log-probabilities; of one that `hangs` nothing
        after the part at that place, and nothing after the others. Those that end do so at once: how many have come is
        no matter of time."""
        whole = False
        try:
            for place in range(TOKENS):
                events = [
                    f"data: {json.dumps(common | {'choices': [{'index': index} | part]})}\n\n"
                    for index, choice in enumerate(choices)
                    if place <= hangs.get(index, TOKENS)
                    for part in _parts(choice, place)
                ]
                yield "".join(events)
                while not all(pause.is_set() for pause in pauses):
                    await asyncio.sleep(0.01)
            if hangs:
                await asyncio.Event().wait()
            yield f"data: {json.dumps(common | {'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"
            whole = True
        finally:
            self.gone += not whole

    async def go_on(self, request: Request) -> Response:
        """The completions API, with the first text; a stream is that of a chat."""
        body = await request.json()
        if body.get("stream"):
            return await self.complete(request)
        self.bodies.append(body)
        choice = {"index": 0, "text": self.texts[0], "finish_reason": "stop", "logprobs": None}
        answer = {"id": "x", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        return JSONResponse(answer, headers={"Content-Type": self.media_type})

    async def models(self, request: Request) -> Response:
        cards = [{"id": name, "object": "model", "created": 1, "owned_by": "x"} for name in self.lists]
        return JSONResponse({"object": "list", "data": cards})

    def _choice(self, index: int, body: dict[str, Any]) -> dict[str, Any]:
        number = self.given % max(1, len(self.texts))
        problem = str(body["messages"][-1]["content"])
        text = self.for_problem[problem].pop() if problem in self.for_problem else self.texts[number]
        self.given += 1
        message = {"role": "assistant", "content": text} if isinstance(text, str) else text
        reason = "length" if number in self.cut else self.ends.get(number, "stop")
        return {"index": index, "message": message, "finish_reason": reason, "logprobs": self._logprobs(number, body)}

    def _logprobs(self, number: int, body: dict[str, Any]) -> dict[str, Any] | None:
        if not (self.gives_logprobs and body.get("logprobs")):
            return None
        if number in self.logprobs:
            return self.logprobs[number]
        wanted = [top_logprobs(number, place)[: body.get("top_logprobs", 0)] for place in range(TOKENS)]
        content = [
            {
                "token": "x",
                "bytes": None,
                "logprob": top_logprobs(number, place)[0],
                "top_logprobs": [{"token": "y", "bytes": None, "logprob": value} for value in alternatives],
            }
            for place, alternatives in enumerate(wanted)
        ]
        return {"content": content}


def _parts(choice: dict[str, Any], place: int) -> Iterator[dict[str, Any]]:
    """What a stream has of a choice at the place of a token: its beginning with the first, its end with the last."""
    message, logprobs = choice["message"], (choice["logprobs"] or {}).get("content")
    text, calls = message.get("content"), message.get("tool_calls")
    start = {"role": "assistant"} | {k: v for k, v in message.items() if k not in ("role", "content", "tool_calls")}
    half = len(text or "") // 2 if isinstance(text, str) else None
    content = (
        start | {"content": text if half is None else text[:half]},
        {"content": None if half is None else text[half:]},
        {},
    )[place]
    if calls and place == 1:
        content["tool_calls"] = [{"index": k} | each for k, each in enumerate(calls)]
    part: dict[str, Any] = {"delta": {name: value for name, value in content.items() if value is not None}}
    if logprobs is not None:
        part["logprobs"] = {"content": [logprobs[place]]}
    more = {name: value for name, value in choice.items() if name not in ("index", "message", "logprobs")}
    yield part | (more if place == TOKENS - 1 else {"finish_reason": None})


_upstreams: dict[int, Upstream] = {}
"""Those that are served now, by the number that their addresses begin with."""
_numbers = itertools.count()
_open = ExitStack()
"""Never closed: a thread of `listening` ends with the process."""


@cache
def _upstream_server() -> str:
    """The address of a server of all upstreams, which lives as long as the process: to start one and to end it takes
    longer than most tests."""

    async def respond(request: Request) -> Response:
        reasoner = _upstreams.get(request.path_params["number"])
        answers = {"chat/completions": "complete", "responses": "complete", "completions": "go_on", "models": "models"}
        if reasoner is None or (name := answers.get(request.path_params["path"])) is None:
            return Response(status_code=404)
        answer: Response = await getattr(reasoner, name)(request)
        return answer

    route = Route("/{number:int}/v1/{path:path}", respond, methods=["GET", "POST"])
    return _open.enter_context(listening([route]))


@contextmanager
def upstream(*texts: str | dict[str, Any], kind: type[Upstream] = Upstream, **more: Any) -> Iterator[Upstream]:
    """Serves until the end of the block."""
    number, reasoner = next(_numbers), kind(texts, **more)
    reasoner.url = f"{_upstream_server()}/{number}/v1"
    _upstreams[number] = reasoner
    try:
        yield reasoner
    finally:
        del _upstreams[number]
