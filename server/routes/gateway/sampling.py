"""The candidates of one election: sampled in rounds, each with its vote."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from unprm.errors import UnprmError, UpstreamFailed
from unprm.openai.completion import Completion, Samples, TokenUsage, is_json
from unprm.openai.errors import APIResponseError
from unprm.task_groups import first_of
from unprm.wire import confidence_of

from ...lease import Lease
from ...service import Service
from .plan import ElectionPlan, Source
from .report import TextPiece, UpstreamFailure, WrittenCandidate
from .upstream import Listener

Notice = Callable[[WrittenCandidate | TextPiece], None]
"""Gets candidates as they are written."""
WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""


class Sampling:
    """The candidates of one election, sampled in rounds from the sources, in their order; with log-probabilities for a
    vote by confidence.

    Their texts together are at most as long as a request's body may be; they count in its size and its memory.
    """

    def __init__(self, service: Service, plan: ElectionPlan, lease: Lease, sources: Sequence[Source]) -> None:
        self.service, self.sources, self.plan, self.lease = service, sources, plan, lease
        self.budget = sum(source.budget for source in sources)
        request = plan.request
        self._body, self._seed = request.for_upstream(), request.seed
        self._shows_logprobs = bool(self._body.get("logprobs"))
        if plan.signal == "confidence":
            self._body["logprobs"] = True
        if self.budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self._room = service.settings.max_body_bytes
        self.failures: list[UpstreamFailure] = []
        self.rounds = 0

    @property
    def completions(self) -> list[Completion]:
        """All candidates so far, in sampling order, which is that of the sources."""
        return [each for source in self.sources for each in source.sampled.completions]

    @property
    def usage(self) -> TokenUsage:
        return sum((source.sampled.usage for source in self.sources), TokenUsage())

    @property
    def origins(self) -> list[Source]:
        """The source of each candidate."""
        return [source for source in self.sources for _ in source.sampled.completions]

    @property
    def attempted(self) -> int:
        return self.budget - sum(source.left for source in self.sources)

    @property
    def name(self) -> str:
        return "+".join(source.name for source in self.sources)

    @property
    def failing(self) -> bool:
        """Whether no source is left but failing ones."""
        return any(each.given_up for each in self.sources) and not any(each.goes_on for each in self.sources)

    @property
    def token_limit(self) -> str | None:
        """The limit to the tokens of a candidate, as `max_tokens=220`; None if the request's is not a number."""
        for name in ("max_completion_tokens", "max_tokens"):
            if name in self._body:
                return f"{name}={limit}" if type(limit := self._body[name]) is int else None
        return f"the gateway's limit of {self.service.settings.gateway_max_tokens} tokens"

    async def sample(
        self,
        wanted: int,
        until: float,
        observe: Notice | None,
        until_final: "Callable[[Round], Coroutine[Any, Any, None]] | None",
    ) -> None:
        """Samples one more round of at most `wanted` candidates, all from one source, until a time of the event loop's
        clock, or until `until_final` returns, which watches those of the round arrive.

        `observe`, if there is one, gets candidates in order, an early one once all before it have arrived; if the
        request shows samples, first the pieces of a text while it is written. Failures are recorded, and tokens charged
        as they are told. A source is given up if it keeps failing, if its first candidates all fail, or if it takes
        more than its share of the time while others wait.

        Raises `UpstreamRefused`, `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far, and
        no other source.
        """
        self.rounds += 1
        before, first = len(self.completions), self.attempted
        source = next(source for source in self.sources if source.left > 0)
        waiting = [each for each in self.sources if each.goes_on and each is not source]
        now = asyncio.get_running_loop().time()
        shown = observe is not None and self.plan.settings.show_samples
        round = Round(source, min(wanted, source.left), before, observe, shown=shown)
        error: UnprmError | None = None
        complete, late, missing = True, False, "the upstream returned fewer candidates than requested"

        async def request() -> bool:
            nonlocal error
            source.requested = True
            seeded = {} if self._seed is None else {"seed": self._seed + first}  # different in every round
            listener = Listener(round.arrive, round.show if shown else None, self._shows_logprobs)
            try:
                await source.upstream.sample(self._body | seeded, round.size, self.lease, listener)
            except UnprmError as raised:
                error = raised
            return True

        try:
            async with asyncio.timeout_at(now + (until - now) / (1 + len(waiting))):
                complete = await first_of(request(), until_final(round)) if until_final else await request()
        except TimeoutError:
            if not (waiting or before or round.arrived):
                raise
            late, missing = True, "they were not waited for: time ran out"
        round.end()
        try:
            await self._read(round.samples)
        except UnprmError as raised:
            if not before:
                raise
            round.samples.completions = []
            complete, error = True, raised
        received, lost = len(round.samples), round.size - len(round.samples)
        source.sampled.completions += round.samples.completions
        source.failing = 0 if received or not complete else source.failing + 1
        if late or (source.failing and not before):
            source.give_up()
        if source.given_up and any(each.goes_on for each in self.sources):
            lost = source.left
        if complete and lost > 0:
            named = "" if len(self.sources) == 1 else f"{source.name}: "
            self.failures.append(UpstreamFailure(candidates=lost, detail=f"{named}{error or missing}"))
            source.failed += lost
        if not before + received:
            if self.failing:
                raise error or UpstreamFailed(missing)
            await self.sample(min(wanted, self.budget - self.attempted), until, observe, until_final)

    def check_confidences(self) -> None:
        """Raises `UpstreamFailed` if log-probabilities are needed and no source gives any."""
        has_confidence = any(completion.confidence is not None for completion in self.completions)
        if self.plan.signal == "confidence" and not has_confidence and all(source.requested for source in self.sources):
            why = "the upstream sends no log-probabilities of tokens, which votes by confidence need"
            raise UpstreamFailed(f"{why}: name another vote, as majority")

    def choice(self, index: int) -> Completion:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for. Raises
        `UpstreamFailed` if these are no JSON."""
        completion = self.completions[index]
        if self._shows_logprobs and not is_json(completion.raw.get("logprobs")):
            raise UpstreamFailed("the upstream's log-probabilities have numbers that JSON can't represent")
        return completion

    async def _read(self, samples: Samples) -> None:
        """Finds the confidences of a round's candidates. Raises `UpstreamFailed` if their texts are too long, and
        `Overloaded`."""
        length = sum(completion.length for completion in samples.completions)
        if length > self._room:
            limit = self.service.settings.max_body_bytes
            raise UpstreamFailed(f"the texts of the candidates are together longer than {limit} characters")
        await self.lease.read(partial(self._digest, samples), samples.size)
        self.lease.memory.take(samples.size)
        self.lease.size += samples.size
        self._room -= length

    def _digest(self, samples: Samples) -> None:
        """Reads log-probabilities; those that the caller did not ask for are dropped."""
        by_confidence = self.plan.signal == "confidence"
        for index, each in enumerate(samples.completions):
            confidence = _confidence(each) if by_confidence else None
            dropped = {} if self._shows_logprobs or not each.raw.get("logprobs") else {"logprobs": None}
            if confidence is not None or dropped:
                samples.completions[index] = replace(each, raw=each.raw | dropped, confidence=confidence)
        if by_confidence and not self._shows_logprobs:
            samples.size = sum(each.length for each in samples.completions)


def _confidence(completion: Completion) -> float | None:
    """None if the completion has no log-probabilities that can be read."""
    try:
        return confidence_of(None, completion.logprobs.sampled or None)
    except APIResponseError:
        return None


class Round:
    """The candidates of one round, each at a place. An early completion is held back until all before it have arrived;
    `arrived` has all in the order in which they came. `first`: the number of the first candidate among all; `shown`:
    whether texts are shown piece by piece."""

    def __init__(self, source: Source, size: int, first: int, observe: Notice | None, *, shown: bool) -> None:
        self.size, self._source, self._first, self._observe, self._shows = size, source, first, observe, shown
        self.samples, self.arrived = Samples(), list[Completion]()
        self.came = asyncio.Event()
        self._early: dict[int, list[Completion]] = {}
        self._shown: dict[int, int] = {}

    def arrive(self, place: int, part: Samples) -> None:
        self._source.sampled.count(part)
        self.samples.count(part)
        if part.completions:
            text = part.completions[0].text
            if self._shows and self._shown.get(place, 0) != len(text):
                self._take_back(place)  # it was asked for again, or was not streamed
                self.show(place, text)
            self._early.setdefault(place, []).extend(part.completions)
            self.arrived += part.completions
            self.came.set()
        while (due := self._early.pop(len(self.samples), None)) is not None:
            self._add(due)

    def show(self, place: int, text: str) -> None:
        self._shown[place] = self._shown.get(place, 0) + len(text)
        if self._observe is not None:
            self._observe(TextPiece(candidate=self._first + place, text=text))

    def end(self) -> None:
        """Takes what has come although those before it have failed."""
        for place in range(len(self.samples), self.size):
            self._take_back(place)
        for _, completions in sorted(self._early.items()):
            self._add(completions)

    def _take_back(self, place: int) -> None:
        if self._shown.pop(place, 0) > 0:
            self.show(place, "")

    def _add(self, completions: list[Completion]) -> None:
        if self._observe is not None:
            for written in map(WrittenCandidate.of, count(self._first + len(self.samples)), completions):
                self._observe(written)
        self.samples.completions += completions
