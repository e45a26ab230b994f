"""The candidates of one election: those sampled and those that failed."""

import asyncio

from pydantic import BaseModel, Field, ValidationError

from server.gateway.schema import ChatRequest, UpstreamFailure
from server.gateway.upstream import Sampled, Upstream, UpstreamFailed
from unprm.errors import UnprmError
from unprm.openai_api import Json
from unprm.wire import AnySolution, SolutionIn

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""


_ALTERNATIVES = 5
"""Likeliest tokens at each place that a vote by confidence asks for."""


class Candidates:
    """The candidates of one request, sampled in rounds. `confident`: with log-probabilities, from which confidences are
    computed."""

    def __init__(self, upstream: Upstream, request: ChatRequest, budget: int, confident: bool) -> None:
        self._upstream = upstream
        self._confident = confident
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

    async def sample(self, count: int, until: float) -> None:
        """Samples one more round, until a time of the event loop's clock. Failures are recorded; raises
        `UpstreamRefused`, `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far."""
        self.rounds += 1
        seeded = {} if self._seed is None else {"seed": self._seed + self.attempted}  # different in every round
        try:
            async with asyncio.timeout_at(until):
                sampled = await self._upstream.sample(self._body | seeded, count)
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

    def solutions(self) -> list[AnySolution]:
        """All candidates so far, in sampling order. Raises `UpstreamFailed` if they lack log-probabilities that were
        asked for."""
        if self._confident:
            return [_with_logprobs(choice) for choice in self.sampled.choices]
        return [text_of(choice) for choice in self.sampled.choices]

    def choice(self, index: int) -> Json:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for."""
        choice = self.sampled.choices[index]
        return choice if self._shows_logprobs else choice | {"logprobs": None} if "logprobs" in choice else choice

    def _note_failure(self, candidates: int, detail: str) -> None:
        self.failures.append(UpstreamFailure(candidates=candidates, detail=detail))


class _Alternative(BaseModel):
    logprob: float


class _Token(_Alternative):
    top_logprobs: list[_Alternative]


class _LogProbs(BaseModel):
    content: list[_Token] = Field(min_length=1)


def _with_logprobs(choice: Json) -> SolutionIn:
    try:
        tokens = _LogProbs.model_validate(choice.get("logprobs")).content
        return SolutionIn.model_validate(
            {
                "text": text_of(choice),
                "token_logprobs": [_logprob(token) for token in tokens],
                "top_logprobs": [[_logprob(each) for each in token.top_logprobs] for token in tokens],
            }
        )
    except ValidationError:
        raise UpstreamFailed(
            "the upstream sends no log-probabilities of tokens and their alternatives, which votes by confidence need"
        ) from None


def _logprob(token: _Alternative) -> float:
    return min(0.0, token.logprob)  # rounding may leave one just above 0


def text_of(choice: Json) -> str:
    """The text of a completion; empty if it has none."""
    content = choice["message"].get("content")
    return content if isinstance(content, str) else ""
