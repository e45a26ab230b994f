"""From a chat request to the plan of its election, by the server's settings, models and upstreams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from unprm import pipeline
from unprm.answers.options import lists_options
from unprm.election.acceptance import STOPPING, acceptance
from unprm.errors import InvalidRequest, NoModel, NotText, TooManySolutions, UpstreamFailed, UpstreamRefused
from unprm.openai.completion import Samples
from unprm.types import DEFAULT_STRATEGY, Extraction
from unprm.validation_messages import unknown
from unprm.votes.registry import VOTES, Strategy
from unprm.votes.vote import Signal

from ...lease import Lease
from ...scoring import RequestScorer
from ...service import Service
from ...settings import Settings
from .schema import BUDGET, MISSPELLED, ChatRequest, ElectionSettings
from .upstream import Upstream

_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""
_WITHOUT_READING = "send the problem as `unprm.problem`, or name a vote without rewards, as `majority`"


@dataclass(slots=True, eq=False)
class Source:
    """An upstream from which at most `budget` candidates are sampled. `requested`: whether it was asked; `failed`:
    missing candidates; `failing`: consecutive rounds without a candidate; `sampled`: what came, and its cost."""

    name: str
    upstream: Upstream
    budget: int
    requested: bool = False
    failed: int = 0
    failing: int = 0
    sampled: Samples = field(default_factory=Samples)

    @property
    def left(self) -> int:
        return self.budget - len(self.sampled) - self.failed

    @property
    def given_up(self) -> bool:
        return self.failing >= _FAILED

    @property
    def goes_on(self) -> bool:
        """Whether more is worth requesting."""
        return self.left > 0 and not self.given_up

    def give_up(self) -> None:
        self.failing = _FAILED


@dataclass(frozen=True, slots=True)
class ElectionPlan:
    """The request's choices, and the server's where the request makes none: `settings.stable` is None if the election
    does not stop early.

    `problem`: a PRM's or a judge's input, None for a vote that needs none. `extraction`: how answers are read;
    `by_letters`: as the letters of the options that the question lists. `why_majority`: the reason for a majority vote
    that nobody named. `several`: whether the server has several upstreams.
    """

    request: ChatRequest
    settings: ElectionSettings
    extraction: Extraction
    by_letters: bool
    problem: str | None
    strategy: Strategy
    signal: Signal
    sources: Sequence[Source]
    why_majority: str | None
    several: bool


async def plan(
    request: ChatRequest,
    budget: int | None,
    upstreams: Mapping[str, Upstream],
    service: Service,
    lease: Lease,
) -> ElectionPlan:
    """The plan of an election; `budget`: of the request's header.

    Raises `TooManySolutions`, `UnknownModel`, `ModelUnavailable`, and `InvalidRequest` for a misspelled vote, messages
    that the PRM would have to read and can't, and a risk that no calibration fits.
    """
    if request.may_be_misnamed:
        await _check_name(request.model, next(iter(upstreams.values())), lease)
    election, settings = request.unprm, service.settings
    sources = _choose_sources(request, budget, upstreams, settings)
    with service.models.chosen(election.model, least=0) as models:
        scorer = RequestScorer(service, models, lease)
        strategy, problem, why_majority = await _choose_strategy(request, scorer, settings)
        if (signal := VOTES[strategy].signal) == "reward":  # nothing is bought that nobody can score
            if not scorer.name:
                raise NoModel
            for model in models:
                model.queue.check_ready()
        if election.stable is None and election.risk is None:
            election = election.model_copy(update={"stable": settings.gateway_stable})
        elif election.stable is None and (calibration := service.vote_calibration) is not None:
            # as calibrated: early, or not at all
            calibrated = {name: calibration.terms.get(name) for name in STOPPING}
            election = election.model_copy(update={name: each for name, each in calibrated.items() if each is not None})
        if election.risk is not None:
            at = "/unprm/risk"
            if request.may_call:
                raise InvalidRequest("a calibration is of answers, not of tool calls: send a risk without tools", at)
            voted = "majority" if signal == "preference" else strategy
            acceptance(service.vote_calibration, election.risk, [voted], election, scorer.name, election.aggregate, at)
    by_letters = "extraction" not in election.model_fields_set
    by_letters = by_letters and await scorer.lease.read(lambda: lists_options(request.question()))
    return ElectionPlan(
        request=request,
        settings=election,
        extraction="choice" if by_letters else election.extraction,
        by_letters=by_letters,
        problem=problem,
        strategy=strategy,
        signal=signal,
        sources=sources,
        why_majority=why_majority,
        several=len(upstreams) > 1,
    )


def check_count(candidates: int, settings: Settings) -> None:
    """Raises `TooManySolutions` for more candidates than the server samples for an answer."""
    if candidates > (limit := settings.max_candidates):
        raise TooManySolutions.saying(f"{candidates} candidates were requested, the limit is {limit} per answer")


async def _check_name(model: str, upstream: Upstream, lease: Lease) -> None:
    """Raises `InvalidRequest` for a name that seems to choose a vote, unless the upstream lists it, or lists none."""
    try:
        await upstream.model(model, lease)
    except HTTPException:
        raise InvalidRequest(MISSPELLED, "/model") from None
    except (UpstreamRefused, UpstreamFailed):
        pass  # it has no list


async def _choose_strategy(
    request: ChatRequest, scorer: RequestScorer, settings: Settings
) -> tuple[Strategy, str | None, str | None]:
    """The vote; the problem, if it is by rewards or a comparison; and why it is by majority, if nobody named one."""
    named = request.unprm.strategy
    chosen = named or settings.gateway_strategy
    strategy = chosen or DEFAULT_STRATEGY
    if chosen is None and request.may_call:
        return "majority", None, "tools may be called"
    if VOTES[strategy].signal not in ("reward", "preference"):
        return strategy, None, None
    try:
        problem = await scorer.lease.read(request.problem)
    except InvalidRequest as error:
        if named is not None or not isinstance(error, NotText):
            raise InvalidRequest(f"{error}; {_WITHOUT_READING}", error.pointer) from None
        return "majority", None, f"the PRM can't read the conversation: {error}"
    if chosen is None and (why := pipeline.why_majority(scorer, problem)):
        return "majority", None, why
    return strategy, problem, None


def _choose_sources(
    request: ChatRequest, budget: int | None, upstreams: Mapping[str, Upstream], settings: Settings
) -> list[Source]:
    """Where candidates are sampled, and how many. Raises `InvalidRequest`."""
    election, at = request.unprm, "/unprm/models"
    budgets = [budget or request.budget, election.budget]
    if election.models and any(budgets):
        raise InvalidRequest("models say how many candidates there are: send no budget", at)
    for name in election.models:
        if name not in upstreams:
            raise InvalidRequest(f"{at}: a name {unknown(name, upstreams, 'an upstream')}", at)
    most = next(filter(None, budgets), settings.gateway_budget or min(BUDGET, settings.max_candidates))
    escalates = election.on_reject == "escalate"
    counts = election.models or dict.fromkeys(upstreams if escalates else [*upstreams][:1], most)
    check_count(sum(election.models.values()) or most, settings)
    if escalates and len(counts) == 1:
        raise InvalidRequest("there is no further upstream: it is set by another --upstream-url", "/unprm/on_reject")
    return [Source(name, upstreams[name], count) for name, count in counts.items()]
