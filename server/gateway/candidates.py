"""The candidates of one election: what was sampled, what of it can be voted on, and what became of the rest."""

import asyncio

from server.gateway.schema import ChatRequest, Json, LeftOut, UpstreamFailure
from server.gateway.upstream import Sampled, Upstream
from unprm.errors import SolutionTooLong, TooManySteps, UnprmError
from unprm.wire import AnySolution

WARM = 0.7
"""Temperature of candidates where the request asks for 0: equal candidates would leave nothing to vote on."""
_FAILED = 2
"""Rounds without a candidate, one after the other, after which no more are asked for."""


class Candidates:
    """Grows by rounds. `valid`: indices into `sampled.choices` of those that can be voted on."""

    def __init__(self, upstream: Upstream, request: ChatRequest, budget: int) -> None:
        self._upstream = upstream
        self._body = request.for_upstream()
        self._seed = request.seed
        if budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # what was to be the same each time is
        self.sampled = Sampled()
        self.rounds = 0
        self.valid: list[int] = []
        self.left_out: list[LeftOut] = []
        self.failures: list[UpstreamFailure] = []
        self._failed = 0

    @property
    def asked(self) -> int:
        """Candidates that came or failed to."""
        return len(self.sampled.choices) + sum(own.candidates for own in self.failures)

    @property
    def failing(self) -> bool:
        """Whether the upstream seems to have nothing more to give."""
        return self._failed >= _FAILED

    async def sample(self, count: int, until: float) -> None:
        """One round more, until a time of the event loop's clock. What fails is noted; raises `UpstreamRefused`,
        `UpstreamFailed`, `Overloaded` or `TimeoutError` if nothing has come so far."""
        self.rounds += 1
        seeded = {} if self._seed is None else {"seed": self._seed + self.asked}  # in every round others
        try:
            async with asyncio.timeout_at(until):
                sampled = await self._upstream.sample(self._body | seeded, count)
        except (UnprmError, TimeoutError) as error:
            if not self.sampled.choices:
                raise
            self._failed = _FAILED if _late(error) else self._failed + 1
            self._note_failure(count, "the upstream gave none in time" if _late(error) else str(error))
            return
        del sampled.choices[count:]
        if (missing := count - len(sampled.choices)) > 0:
            self._note_failure(missing, "the upstream gave fewer candidates than were asked for")
        self._failed = 0 if sampled.choices else self._failed + 1
        for number, choice in enumerate(sampled.choices, len(self.sampled.choices)):
            if text_of(choice).strip():
                self.valid.append(number)
            else:
                self.left_out.append(LeftOut(code="no_text", detail=f"candidate {number} has no text"))
        self.sampled.add(sampled)

    def texts(self) -> list[AnySolution]:
        """Of those that can be voted on."""
        return [text_of(self.sampled.choices[number]) for number in self.valid]

    def leave_out(self, error: SolutionTooLong | TooManySteps) -> None:
        """Takes out the one that the error names by its index into `valid`."""
        number = self.valid.pop(error.index)
        self.left_out.append(LeftOut(code=error.code, detail=f"candidate {number}: {error}"))

    def _note_failure(self, candidates: int, detail: str) -> None:
        self.failures.append(UpstreamFailure(candidates=candidates, detail=detail))


def _late(error: BaseException) -> bool:
    return isinstance(error, TimeoutError)


def text_of(choice: Json) -> str:
    """The text of a completion; empty where it has none."""
    content = choice["message"].get("content")
    return content if isinstance(content, str) else ""
