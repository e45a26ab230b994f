"""The candidates of one election: those sampled and those that failed."""

import asyncio

from server.gateway.schema import ChatRequest, UpstreamFailure
from server.gateway.upstream import Sampled, Upstream
from unprm.errors import UnprmError
from unprm.openai_api import Json
from unprm.wire import AnySolution

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""


class Candidates:
    """The candidates of one request, sampled in rounds."""

    def __init__(self, upstream: Upstream, request: ChatRequest, budget: int) -> None:
        self._upstream = upstream
        self._body = request.for_upstream()
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

    def texts(self) -> list[AnySolution]:
        """The texts of all candidates so far, in sampling order."""
        return [text_of(choice) for choice in self.sampled.choices]

    def _note_failure(self, candidates: int, detail: str) -> None:
        self.failures.append(UpstreamFailure(candidates=candidates, detail=detail))


def text_of(choice: Json) -> str:
    """The text of a completion; empty if it has none."""
    content = choice["message"].get("content")
    return content if isinstance(content, str) else ""
