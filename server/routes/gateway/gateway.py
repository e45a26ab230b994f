"""From a chat request to its election: the terms, by what the server is and what it has in front of it."""

import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from unprm import pipeline
from unprm.election.acceptance import acceptance
from unprm.errors import InvalidRequest, NotText, UpstreamFailed, UpstreamRefused
from unprm.fields import unknown
from unprm.types import DEFAULT_STRATEGY
from unprm.votes.registry import VOTES, Strategy

from ...admission import Context
from ...scoring import RequestScorer
from ...service import Service
from ...settings import Settings
from .candidates import SampledCandidates
from .election import ElectionResult
from .escalation import elect
from .schema import BUDGET, MISSPELLED, ChatRequest, TooManyCandidates, UpstreamRequest
from .stream import EVENTS
from .terms import CandidateSource, ElectionTerms
from .upstream import Upstream

T = TypeVar("T")

_UNREAD = "(the conversation)"
"""Stands for the problem where models score by log-probabilities alone: images are no hindrance then."""
_WITHOUT_READING = "send the problem as `unprm.problem`, or name a vote without rewards, as `majority`"


@dataclass(frozen=True, slots=True)
class Gateway:
    """What an endpoint answers a request with. `budget`: of the request's header."""

    service: Service
    upstreams: Mapping[str, Upstream]
    context: Context
    budget: int | None = None

    @property
    def upstream(self) -> Upstream:
        """The first one, for what is not elected."""
        return next(iter(self.upstreams.values()))

    def assign_id(self, prefix: str) -> str:
        """A new id for the response, known to its context."""
        self.context.response_id = prefix + uuid.uuid4().hex
        return self.context.response_id

    async def read(self, function: Callable[[], T]) -> T:
        return await self.service.read(self.context, function)

    async def prepare_election(self, request: ChatRequest) -> partial[Coroutine[Any, Any, ElectionResult]]:
        """The election, still to be called. Raises the errors that are known before the upstream is called."""
        await self.check_name(request)
        terms = await self.decide_terms(request)
        groups = [[each] for each in terms.sources] if terms.settings.on_reject == "escalate" else [terms.sources]
        first, *further = [
            await self.read(partial(SampledCandidates, self.service, group, terms, self.context)) for group in groups
        ]
        return partial(elect, first, further)

    async def check_name(self, request: ChatRequest) -> None:
        """Raises `InvalidRequest` for a model whose name seems to choose a vote, unless the upstream lists that name or
        can't list any."""
        if request.may_be_misnamed:
            try:
                await self.upstream.model(request.model, self.context)
            except HTTPException:
                raise InvalidRequest(MISSPELLED, "/model") from None
            except (UpstreamRefused, UpstreamFailed):
                pass  # it has no list

    async def relay(self, path: str, request: UpstreamRequest, count: int) -> Response:
        """The upstream's answer unchanged, streamed or not, to a request for a number of completions."""
        check_count(count, self.service.settings)
        dump = partial(request.model_dump, mode="json", exclude_unset=True, exclude={"unprm"})
        parts = self.upstream.relay(path, await self.read(dump), self.context)
        streamed = (await anext(parts)).startswith(b"text/event-stream")
        # whatever else the upstream calls it: nobody's browser is to take it for a page
        headers = {"X-Content-Type-Options": "nosniff"}
        return StreamingResponse(parts, headers=headers, media_type=EVENTS if streamed else "application/json")

    async def decide_terms(self, request: ChatRequest) -> ElectionTerms:
        """Raises `TooManyCandidates`, `UnknownModel`, `ModelUnavailable`, and `InvalidRequest` for messages that the
        PRM would have to read and can't, and for a risk that no calibration fits."""
        election, settings = request.unprm, self.service.settings
        sources = self._choose_sources(request)
        with self.service.models.chosen(election.model) as models:
            scorer = RequestScorer(self.service, models, self.context)
            strategy, problem, why_majority = await self._choose_strategy(request, scorer)
            by_rewards = VOTES[strategy].signal == "reward"
            if by_rewards:  # nothing is bought that nobody can score
                for model in models:
                    model.scorer.check_ready()
                pipeline.check_vote(strategy, scorer)
            if election.risk is not None:
                at = "/unprm/risk"
                if request.may_call:
                    why = "a calibration is of answers, not of tool calls: send a risk without tools"
                    raise InvalidRequest(why, at)
                acceptance(scorer.calibration, election.risk, [strategy], election, scorer.name, election.aggregate, at)
            by_logprobs = by_rewards and scorer.by_logprobs
        question = await self.read(request.question)
        stable = settings.gateway_stable if election.stable is None else election.stable
        several = len(self.upstreams) > 1
        return ElectionTerms(request, question, problem, strategy, sources, stable, why_majority, by_logprobs, several)

    async def _choose_strategy(
        self, request: ChatRequest, scorer: RequestScorer
    ) -> tuple[Strategy, str | None, str | None]:
        """The vote; the problem, if it is by rewards; and why it is by majority, if nobody named one."""
        named = request.unprm.strategy
        chosen = named or self.service.settings.gateway_strategy
        strategy = chosen or DEFAULT_STRATEGY
        if chosen is None and request.may_call:
            return "majority", None, "tools may be called"
        if VOTES[strategy].signal != "reward":
            return strategy, None, None
        if all(model.engine.description.by_logprobs for model in scorer.models):
            problem = _UNREAD
        else:
            try:
                problem = await self.read(request.problem)
            except InvalidRequest as error:
                if named is not None or not isinstance(error, NotText):
                    raise InvalidRequest(f"{error}; {_WITHOUT_READING}", error.pointer) from None
                return "majority", None, f"the PRM can't read the conversation: {error}"
        if chosen is None and (why := pipeline.why_majority(scorer, problem)):
            return "majority", None, why
        return strategy, problem, None

    def _choose_sources(self, request: ChatRequest) -> list[CandidateSource]:
        """Where candidates are sampled, and how many. Raises `InvalidRequest`."""
        election, settings = request.unprm, self.service.settings
        budgets, at = [self.budget or request.budget, election.budget], "/unprm/models"
        if election.models and any(budgets):
            raise InvalidRequest("models say how many candidates there are: send no budget", at)
        for name in election.models:
            if name not in self.upstreams:
                raise InvalidRequest(f"{at}: a name {unknown(name, self.upstreams, 'an upstream')}", at)
        budget = next(filter(None, budgets), settings.gateway_budget or min(BUDGET, settings.max_candidates))
        escalates = election.on_reject == "escalate"
        counts = election.models or dict.fromkeys(self.upstreams if escalates else [*self.upstreams][:1], budget)
        check_count(sum(election.models.values()) or budget, settings)
        if escalates and len(counts) == 1:
            why = "there is no further upstream: it is set by another --upstream-url"
            raise InvalidRequest(why, "/unprm/on_reject")
        return [CandidateSource(name, self.upstreams[name], count) for name, count in counts.items()]


def check_count(candidates: int, settings: Settings) -> None:
    if candidates > settings.max_candidates:
        raise TooManyCandidates(candidates, settings.max_candidates)
