"""OpenAI's endpoints, and Anthropic's: a client of these APIs can use them unchanged."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response, StreamingResponse

from unprm.openai.completion import Samples
from unprm.openai.models import Json

from ...lease import Lease, lease_of
from ...service import Service
from ..openapi import OF_UPSTREAM, codes_without, describe
from ..route import WorkRoute
from .election import elect
from .messages import CountRequest, MessageFormat, MessagesRequest
from .plan import check_count, plan
from .responses import ResponseFormat, ResponsesRequest
from .sampling import Sampling
from .schema import MAX_CANDIDATES, NAMED, ChatRequest, CompletionRequest, UpstreamRequest
from .stream import EVENTS, AnswerFormat, Chunks, ElectionStream
from .upstream import Listener, Upstream


class GatewayRoute(WorkRoute):
    """A route with more time than a vote, because it waits for completions."""

    seconds = attrgetter("gateway_seconds")


_Budget = Annotated[
    int | None,
    Header(alias="X-ITS-Budget", ge=1, le=MAX_CANDIDATES, description="In place of a body's `budget`, as in its_hub."),
]


_CODES = codes_without("no_answer")


@dataclass(frozen=True, slots=True)
class Gateway:
    """What an endpoint answers a request with."""

    service: Service
    upstreams: Mapping[str, Upstream]
    lease: Lease

    @property
    def upstream(self) -> Upstream:
        """The first one, for what is not elected."""
        return next(iter(self.upstreams.values()))

    def new_id(self, prefix: str) -> str:
        """The response's."""
        self.lease.response_id = prefix + self.lease.request_id
        return self.lease.response_id

    async def elect(self, request: ChatRequest, budget: int | None, format: AnswerFormat) -> Response | Json:
        """The elected answer, whole or as a stream; `budget`: of the request's header. Raises the errors that are known
        before the upstream is called."""
        planned = await plan(request, budget, self.upstreams, self.service, self.lease)
        escalates = planned.settings.on_reject == "escalate"
        groups = [[source] for source in planned.sources] if escalates else [planned.sources]
        begin = partial(Sampling, self.service, planned, self.lease)
        election = partial(elect, [await self.lease.read(partial(begin, group)) for group in groups])
        if request.stream:
            return ElectionStream(election, format)
        return await self.lease.read(partial(format.whole, await election()))

    async def relay(self, path: str, request: UpstreamRequest, count: int) -> Response:
        """The upstream's answer unchanged, streamed or not, to a request for a number of completions."""
        check_count(count, self.service.settings)
        dump = partial(request.model_dump, mode="json", exclude_unset=True, exclude={"unprm"})
        parts = self.upstream.relay(path, await self.lease.read(dump), count, self.lease)
        streamed = (await anext(parts)).startswith(b"text/event-stream")
        # whatever else the upstream calls it: nobody's browser is to take it for a page
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type=EVENTS if streamed else "application/json")


async def _gateway(request: Request) -> Gateway:
    return Gateway(request.app.state.service, request.app.state.upstreams, lease_of(request.scope))


TheGateway = Annotated[Gateway, Depends(_gateway)]
"""As a parameter of an endpoint."""

router = APIRouter(prefix="/v1", route_class=GatewayRoute)
_listing = APIRouter(route_class=WorkRoute)


@router.post("/chat/completions", response_model=None, **describe("chat_completions", _CODES))
async def chat(gateway: TheGateway, chat_request: ChatRequest, budget: _Budget = None) -> Response | Json:
    """Answers as OpenAI's API does, with the completion that a vote elects among the upstream's candidates.

    `unprm` has the settings of the vote in the request, and its report in the answer.
    """
    return await gateway.elect(chat_request, budget, Chunks(chat_request, gateway.new_id("chatcmpl-")))


@router.post("/completions", response_model=None, **describe("completions", _CODES))
async def completion(gateway: TheGateway, request: CompletionRequest) -> Response:
    """The upstream's own answer, without a vote."""
    return await gateway.relay("/completions", request, request.candidates)


@router.post("/responses", response_model=None, **describe("responses", _CODES))
async def respond(gateway: TheGateway, request: ResponsesRequest, budget: _Budget = None) -> Response | Json:
    """As `/v1/chat/completions`, for OpenAI's responses API."""
    chat = await gateway.lease.read(request.chat)
    return await gateway.elect(chat, budget, ResponseFormat(request, gateway.new_id("resp_")))


@router.post("/messages", response_model=None, **describe("messages", _CODES))
async def converse(gateway: TheGateway, request: MessagesRequest, budget: _Budget = None) -> Response | Json:
    """As `/v1/chat/completions`, for Anthropic's messages API."""
    chat = await gateway.lease.read(request.chat)
    return await gateway.elect(chat, budget, MessageFormat(request.model, gateway.new_id("msg_")))


@router.post("/messages/count_tokens", response_model=None, **describe("count_tokens", _CODES))
async def count(gateway: TheGateway, request: CountRequest) -> Json:
    """The tokens of a conversation by the upstream's own count."""
    chat = await gateway.lease.read(request.chat)
    counted = Samples()
    body = await gateway.lease.read(chat.for_upstream) | {"max_tokens": 1}
    body.pop("tool_choice", None)  # no call ends within a token
    await gateway.upstream.sample(body, 1, gateway.lease, Listener(lambda _, sampled: counted.count(sampled)))
    return {"input_tokens": counted.context_tokens}


@_listing.get("/models", **describe("models", OF_UPSTREAM))
async def models(gateway: TheGateway) -> Json:
    """The upstream's models, with the fields that Anthropic's clients read, too."""
    cards = await gateway.upstream.models(gateway.lease)
    data = [{"type": "model", "display_name": card.get("id")} | card for card in cards]
    ends = {"first_id": data[0].get("id"), "last_id": data[-1].get("id")} if data else {}
    return {"object": "list", "data": data, "has_more": False} | ends


@_listing.get("/models/{name:path}", **describe("retrieve_model", ("not_found", *OF_UPSTREAM)))
async def model(name: str, gateway: TheGateway) -> Json:
    """One of the upstream's models, by its name or by one that also chooses a vote (`wrf-16@name`)."""
    named = NAMED.fullmatch(name)
    return await gateway.upstream.model(named[3] if named else name, gateway.lease) | {"id": name}


router.include_router(_listing)
