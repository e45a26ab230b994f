"""The candidates of one election: those sampled and those that failed."""

import asyncio

from pydantic import ValidationError

from unprm.errors import UnprmError
from unprm.openai_api import Json, is_json
from unprm.types import Strategy
from unprm.votes.ballot import Ballot
from unprm.votes.confidence import OnlineStop, cut
from unprm.votes.decide import of_answered
from unprm.votes.rules import RULES
from unprm.wire import AnySolution, SolutionIn

from .answers import LogProbs
from .schema import ChatRequest, UpstreamFailure
from .upstream import STOPPED, Sampled, Upstream, UpstreamFailed, Watch

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""
_ALTERNATIVES = 5
"""Likeliest tokens at each place that a vote by confidence asks for."""


class Candidates:
    """The candidates of one request, sampled in rounds; for a vote by confidence, with log-probabilities."""

    def __init__(self, upstream: Upstream, request: ChatRequest, budget: int, strategy: Strategy) -> None:
        self._upstream = upstream
        self._terms = request.unprm
        self._confident = confident = RULES[strategy].signal == "confidence"
        self._least: float | None = None  # below it, candidates are stopped
        self._body = request.for_upstream()
        self._shows_logprobs = bool(self._body.get("logprobs"))
        if confident:
            self._body["logprobs"] = True
            self._body["top_logprobs"] = max(_ALTERNATIVES, self._body.get("top_logprobs") or 0)
        self._seed = request.seed
        if budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self.sampled = Sampled()
        self.rounds = 0
        self.failures: list[UpstreamFailure] = []
        self._failed = 0

    @property
    def attempted(self) -> int:
        """Number of candidates that were sampled or failed."""
        return len(self.sampled.choices) + sum(failure.candidates for failure in self.failures)

    @property
    def failing(self) -> bool:
        """Whether the upstream keeps failing, so that no more is worth requesting."""
        return self._failed >= _FAILED

    @property
    def stopped_early(self) -> int:
        """Number of candidates that were stopped for low confidence."""
        return sum(choice.get("finish_reason") == STOPPED for choice in self.sampled.choices)

    async def sample(self, count: int, until: float) -> None:
        """Samples one more round, until a time of the event loop's clock. Failures are recorded; raises
        `UpstreamRefused`, `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far."""
        self.rounds += 1
        seeded = {} if self._seed is None else {"seed": self._seed + self.attempted}  # different in every round
        try:
            async with asyncio.timeout_at(until):
                sampled = await self._complete(self._body | seeded, count)
        except (UnprmError, TimeoutError) as error:
            if not self.sampled.choices:
                raise
            late = isinstance(error, TimeoutError)
            self._failed = _FAILED if late else self._failed + 1
            self._note_failure(count, "the upstream gave none in time" if late else str(error))
            return
        del sampled.choices[count:]
        if (missing := count - len(sampled.choices)) > 0:
            self._note_failure(missing, "the upstream gave fewer candidates than were asked for")
        self._failed = 0 if sampled.choices else self._failed + 1
        self.sampled.add(sampled)

    def watch_by(self, ballot: Ballot) -> None:
        """With early stops: candidates to come are stopped below the lowest confidence that votes on the first
        ballot."""
        if self._terms.early_stop and self._least is None and (values := ballot.confidences.get("deepconf")):
            answered = of_answered(ballot.classes, values) or ()
            self._least = cut([value for value in answered if value is not None], self._terms.top_share)

    def solutions(self) -> list[AnySolution]:
        """All candidates so far, in sampling order. Raises `UpstreamFailed` if log-probabilities were asked for and
        none of them has any."""
        if not self._confident:
            return [text_of(choice) for choice in self.sampled.choices]
        solutions = [_with_logprobs(choice) for choice in self.sampled.choices]
        if all(solution.top_logprobs is None for solution in solutions):
            raise UpstreamFailed(
                "the upstream sends no log-probabilities of tokens and their alternatives, which votes by confidence "
                "need"
            )
        return list(solutions)

    def choice(self, index: int) -> Json:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for. Raises
        `UpstreamFailed` if these are no JSON."""
        choice = self.sampled.choices[index]
        if not self._shows_logprobs:
            return choice | {"logprobs": None}
        if not is_json(choice["logprobs"]):
            raise UpstreamFailed("the upstream's log-probabilities have numbers that JSON can't hold")
        return choice

    async def _complete(self, body: Json, count: int) -> Sampled:
        if self._least is None:
            return await self._upstream.sample(body, count)
        least, window = self._least, self._terms.window

        def watch() -> Watch:
            return OnlineStop(least, window).after

        return await self._upstream.sample_watched(body, count, watch)

    def _note_failure(self, candidates: int, detail: str) -> None:
        self.failures.append(UpstreamFailure(candidates=candidates, detail=detail))


def _with_logprobs(choice: Json) -> SolutionIn:
    """The text of a completion with the log-probabilities of its tokens; without them if it has none, or they are none
    of two alternatives or more."""
    text = {"text": text_of(choice)}
    try:
        tokens = LogProbs.model_validate(choice.get("logprobs")).content or []
        logprobs = {
            "token_logprobs": [min(0.0, token.logprob) for token in tokens],
            "top_logprobs": [token.likeliest for token in tokens],
        }
        return SolutionIn.model_validate(text | logprobs)
    except ValidationError:
        return SolutionIn.model_validate(text)


def text_of(choice: Json) -> str:
    """The text of a completion; empty if it has none."""
    content = choice["message"].get("content")
    return content if isinstance(content, str) else ""
