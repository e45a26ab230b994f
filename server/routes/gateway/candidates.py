"""The candidates of one election: those sampled and those that failed."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pydantic import ValidationError

from unprm import steps as step_text
from unprm.concurrent import all_of, first_of
from unprm.errors import UnprmError, UpstreamFailed
from unprm.openai.models import Json, LogProbs, is_json
from unprm.types import Extraction
from unprm.wire import AnySolution, SolutionIn, confidence_of

from ...admission import Context
from ...service import Service
from .completion import calls_of, is_cut, length_of, text_of
from .replies import SampledCompletions
from .report import TextPiece, UpstreamFailure, WrittenCandidate
from .solutions import solutions_to_vote_on
from .terms import CandidateSource, ElectionTerms

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_WITH_TEXTS = ("token", "bytes", "logprob")
"""Fields of a token by which its step is found."""


class SampledCandidates:
    """The candidates of one election, sampled in rounds from the sources, in their order; with log-probabilities for a
    vote by confidence, or where rewards are made of them.

    Their texts together are at most as long as a request's body may be; they count in its size and its memory.
    """

    def __init__(
        self, service: Service, sources: Sequence[CandidateSource], terms: ElectionTerms, context: Context
    ) -> None:
        self.service, self.sources, self.terms, self.context = service, sources, terms, context
        self.budget = sum(source.budget for source in sources)
        request = terms.request
        self._body, self._seed = request.for_upstream(), request.seed
        self._shows_logprobs, self._has_logprobs = bool(self._body.get("logprobs")), False
        if terms.by_confidence or terms.by_logprobs:
            self._body["logprobs"] = True
        if self.budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self._room = service.settings.max_body_bytes
        self.sampled, self._solutions, self.origins = SampledCompletions(), list[AnySolution](), list[CandidateSource]()
        self.failures: list[UpstreamFailure] = []
        self.rounds = self._requested = 0

    @property
    def attempted(self) -> int:
        return len(self.sampled.choices) + sum(failure.candidates for failure in self.failures)

    @property
    def failing(self) -> bool:
        """Whether what keeps failing is all that is left, so that no more is worth requesting."""
        return any(each.given_up for each in self.sources) and not any(each.goes_on for each in self.sources)

    @property
    def cut(self) -> int:
        return sum(map(is_cut, self.sampled.choices))

    @property
    def token_limit(self) -> str | None:
        """The limit to the tokens of a candidate, as `max_tokens=220`; None if the request's is not a number."""
        for name in ("max_completion_tokens", "max_tokens"):
            if name in self._body:
                return f"{name}={limit}" if type(limit := self._body[name]) is int else None
        return f"the gateway's limit of {self.service.settings.gateway_max_tokens} tokens"

    @property
    def first_whole(self) -> int:
        """Index of the first candidate with a text or calls that is not truncated; without one, of the first with
        either, or the first."""
        ranks = [(not (text_of(choice).strip() or calls_of(choice)), is_cut(choice)) for choice in self.sampled.choices]
        return ranks.index(min(ranks))

    @property
    def written(self) -> list[WrittenCandidate]:
        return [_written(index, choice) for index, choice in enumerate(self.sampled.choices)]

    async def sample(
        self,
        count: int,
        until: float,
        observe: Callable[[WrittenCandidate | TextPiece], None],
        enough: Callable[[Sequence[Json]], Coroutine[Any, Any, bool]],
    ) -> None:
        """Samples one more round, until a time of the event loop's clock, or until `enough` says of all completions so
        far that no more are needed; `observe` is called with each candidate as soon as it and those before it have
        arrived; if the request shows candidates, first with the pieces of its text as they are written. Failures are
        recorded, and tokens are charged as they come; a source that keeps failing, or whose first candidates all fail,
        is given up, as one that takes more than its share of the time while others wait. Raises `UpstreamRefused`,
        `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far, and no other source."""
        self.rounds += 1
        before, first, places = self.sampled.choices, self._requested, list[CandidateSource]()
        for source in self.sources:
            places += [source] * min(source.left, count - len(places))
        self._requested += count
        waiting = [source for source in self.sources if source.goes_on and source not in places]
        now = asyncio.get_running_loop().time()
        round = _Round(places, len(before), observe)
        errors: dict[CandidateSource, UnprmError] = {}
        complete, late, missing = True, False, "the upstream returned fewer candidates than requested"
        # together they would arrive together
        apart = self.terms.request.stream and self.terms.settings.candidates

        async def request_from(source: CandidateSource) -> None:
            source.requested, start = True, places.index(source)
            # different in every round
            seeded = {} if self._seed is None else {"seed": self._seed + first + start}
            kept = None if self._shows_logprobs else _WITH_TEXTS if self.terms.by_logprobs else ("logprob",)

            def arrived(number: int, part: SampledCompletions) -> None:
                source.sampled.add(replace(part, choices=[]))
                self.context.claims.charge(part.tokens)
                round.arrive(start + number, part, shown=apart)

            written = (lambda number, text: round.show(start + number, text)) if apart else None
            request = self._body | seeded, places.count(source), self.context, kept
            try:
                await source.upstream.sample(*request, arrived, written)
            except UnprmError as error:
                errors[source] = error

        async def wait_for_enough() -> None:
            so_far = before
            while len(so_far) in (len(before), len(before) + count) or not await enough(so_far):
                await round.came.wait()
                round.came.clear()
                so_far = [*before, *round.choices]

        try:
            async with asyncio.timeout_at(now + (until - now) / (1 + len(waiting))):
                complete = await first_of(all_of(map(request_from, dict.fromkeys(places))), wait_for_enough())
        except TimeoutError:
            if not (waiting or before or round.choices):
                raise
            late, missing = True, "they were not waited for: time ran out"
        round.end()
        try:
            solutions = await self._read(round.sampled)
        except UnprmError as error:
            if not before:
                raise
            round.sampled.choices, round.sampled.size, round.origins = [], 0, []
            solutions, complete, missing = [], True, str(error)
        self.sampled.add(round.sampled)
        self._solutions += solutions
        self.origins += round.origins
        for source in dict.fromkeys(places):
            lost = places.count(source) - (received := round.origins.count(source))
            source.received += received
            if received or not complete:
                source.failing = 0
            elif self.sampled.choices:
                source.failing += 1
            else:
                source.give_up()
            if late:
                source.give_up()
            if source.given_up and any(each.goes_on for each in self.sources):
                lost = source.left
            if complete and lost > 0:
                named = "" if len(self.sources) == 1 else f"{source.name}: "
                self.failures.append(UpstreamFailure(candidates=lost, detail=f"{named}{errors.get(source, missing)}"))
                source.failed += lost
        if late and not waiting:
            for source in self.sources:
                source.give_up()
        if not self.sampled.choices:
            if self.failing:
                raise next(iter(errors.values()), UpstreamFailed(missing))
            await self.sample(min(count, self.budget - self.attempted), until, observe, enough)

    def solutions(self, extraction: Extraction) -> list[AnySolution]:
        """All candidates so far, in sampling order. Raises `UpstreamFailed` if log-probabilities are needed and no
        source gives any."""
        terms = self.terms
        needed = terms.by_confidence or terms.by_logprobs
        if needed and not self._has_logprobs and all(source.requested for source in self.sources):
            need = "votes by confidence need" if terms.by_confidence else "rewards are made of here"
            why = f"the upstream sends no log-probabilities of tokens, which {need}: name another vote, as majority"
            raise UpstreamFailed(why)
        return solutions_to_vote_on(self.sampled.choices, self._solutions, terms.request, extraction)

    def provisional(self, choices: Sequence[Json], extraction: Extraction) -> list[AnySolution]:
        """These completions as `solutions` will have them, without confidences."""
        return solutions_to_vote_on(choices, list(map(text_of, choices)), self.terms.request, extraction)

    def choice(self, index: int) -> Json:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for. Raises
        `UpstreamFailed` if these are no JSON."""
        choice = self.sampled.choices[index]
        if self._shows_logprobs and not is_json(choice.get("logprobs")):
            raise UpstreamFailed("the upstream's log-probabilities have numbers that JSON can't represent")
        return choice

    async def _read(self, sampled: SampledCompletions) -> list[AnySolution]:
        """The candidates of a round as a vote takes them. Raises `UpstreamFailed` if their texts are too long, and
        `Overloaded`."""
        length = sum(map(length_of, sampled.choices))
        if length > self._room:
            limit = self.service.settings.max_body_bytes
            raise UpstreamFailed(f"the texts of the candidates are together longer than {limit} characters")
        solutions = await self.service.read(self.context, partial(self._digest, sampled), sampled.size)
        self.context.claims.memory.take(sampled.size)
        self.context.size += sampled.size
        self._room -= length
        return solutions

    def _digest(self, sampled: SampledCompletions) -> list[AnySolution]:
        """Reads log-probabilities; those that the caller did not ask for are dropped."""
        solutions = list(map(self._solution, sampled.choices))
        if not self._shows_logprobs:
            for choice in sampled.choices:
                if choice.get("logprobs"):
                    choice["logprobs"] = None
            if self.terms.by_confidence:
                sampled.size = sum(map(length_of, sampled.choices))
        return solutions

    def _solution(self, choice: Json) -> AnySolution:
        """A completion with its confidence, if it is voted on by that, or with its steps' log-probabilities, if rewards
        are made of these; without either if it comes without log-probabilities of its tokens."""
        text, terms = text_of(choice), self.terms
        if not (terms.by_confidence or terms.by_logprobs):
            return text
        try:
            logprobs = LogProbs.model_validate(choice.get("logprobs"))
        except ValidationError:
            logprobs = LogProbs()
        sampled = logprobs.sampled or ()
        self._has_logprobs |= len(sampled) > 0
        if terms.by_confidence:
            return SolutionIn.model_validate({"text": text, "confidence": confidence_of(None, sampled or None)})
        if calls_of(choice):  # one step
            of_steps = [sampled]
        else:
            steps = step_text.split(text, terms.settings.split, self.service.settings.max_steps)
            of_steps = step_text.logprobs_of(steps, [(token.raw, token.bounded) for token in logprobs.content or ()])
        fits = of_steps and all(of_steps)
        return SolutionIn.model_validate({"text": text, "token_logprobs": list(map(list, of_steps)) if fits else None})


class _Round:
    """The candidates of one round, each at a place, whose source `places` has; they are taken in this order, so that
    one that comes early waits for those before it. `first`: the number of the first among all."""

    def __init__(
        self, places: Sequence[CandidateSource], first: int, observe: Callable[[WrittenCandidate | TextPiece], None]
    ) -> None:
        self._places, self._first, self._observe = places, first, observe
        self.sampled, self.origins = SampledCompletions(), list[CandidateSource]()
        self.came = asyncio.Event()
        self._early: dict[int, list[Json]] = {}
        self._shown: dict[int, int] = {}

    @property
    def choices(self) -> list[Json]:
        return [*self.sampled.choices, *chain.from_iterable(choices for _, choices in sorted(self._early.items()))]

    def arrive(self, place: int, part: SampledCompletions, *, shown: bool) -> None:
        """`shown`: its text is, piece by piece."""
        self.sampled.add(replace(part, choices=[]))
        if part.choices:
            text = text_of(part.choices[0])
            if shown and self._shown.get(place, 0) != len(text):
                self._take_back(place)  # it was asked for again, or was not streamed
                self.show(place, text)
            self._early[place] = self._early.get(place, []) + part.choices
            self.came.set()
        while (due := self._early.pop(len(self.sampled.choices), None)) is not None:
            self._add(len(self.sampled.choices), due)

    def show(self, place: int, text: str) -> None:
        self._shown[place] = self._shown.get(place, 0) + len(text)
        self._observe(TextPiece(candidate=self._first + place, text=text))

    def end(self) -> None:
        """Takes what has come although those before it have failed."""
        for place in range(len(self.sampled.choices), len(self._places)):
            self._take_back(place)
        for place, choices in sorted(self._early.items()):
            self._add(place, choices)

    def _take_back(self, place: int) -> None:
        if self._shown.pop(place, 0) > 0:
            self.show(place, "")

    def _add(self, place: int, choices: list[Json]) -> None:
        for index, choice in enumerate(choices, self._first + len(self.sampled.choices)):
            self._observe(_written(index, choice))
        self.sampled.choices += choices
        self.origins += [self._places[place]] * len(choices)


def _written(index: int, choice: Json) -> WrittenCandidate:
    reason = choice.get("finish_reason")
    return WrittenCandidate(
        index=index, text=text_of(choice), tool_calls=calls_of(choice) or None, finish_reason=reason
    )
