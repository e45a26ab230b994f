"""The candidates of one election: those sampled and those that failed."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from pydantic import ValidationError

from unprm import steps as step_text
from unprm.answers.extraction import extract
from unprm.answers.kinds import json_answer
from unprm.concurrent import all_of, first_of
from unprm.errors import UnprmError, UpstreamFailed
from unprm.openai.models import Json, LogProbs, is_json
from unprm.types import Extraction
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import AnySolution, SolutionIn, VoteOut, confidence_of

from ...admission import Context
from ...service import Service
from .completion import NO_ANSWER, NO_CALL, JsonAnswer, Verbatim, action, calls_of, length_of, text_of
from .parts import Parts, by_parts
from .replies import Sampled
from .report import Piece, Sample, Spent, UpstreamFailure
from .schema import ChatRequest
from .upstream import Upstream

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_WITH_TEXTS = ("token", "bytes", "logprob")
"""Fields of a token by which its step is found."""
_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""


@dataclass(slots=True, eq=False)
class Source:
    """An upstream that candidates are sampled from, at most `budget` of them; what came of it, without the completions.
    `asked`: whether any was requested; `failed`: candidates that did not come; `failing`: consecutive rounds without
    any."""

    name: str
    upstream: Upstream
    budget: int
    asked: bool = False
    received: int = 0
    failed: int = 0
    failing: int = 0
    sampled: Sampled = field(default_factory=Sampled)

    @property
    def left(self) -> int:
        """Candidates that may still be requested."""
        return self.budget - self.received - self.failed

    @property
    def goes_on(self) -> bool:
        """Whether more is worth requesting."""
        return self.left > 0 and self.failing < _FAILED

    @property
    def spent(self) -> Spent:
        """As reported."""
        return Spent.model_validate({"model": self.sampled.model, "sampled": self.received, **self.sampled.spent})


class SampledCandidates:
    """The candidates of one election, sampled in rounds from the sources, in their order; with log-probabilities for a
    vote by confidence, or where rewards are made of them (`by_logprobs`).

    Their texts together are at most as long as a request's body may be; they count in its size and its memory.
    """

    def __init__(
        self,
        service: Service,
        sources: Sequence[Source],
        request: ChatRequest,
        strategy: Strategy,
        by_logprobs: bool,
        context: Context,
    ) -> None:
        self._service, self.sources, self._context = service, sources, context
        self.budget = sum(source.budget for source in sources)
        self._confident, self._by_logprobs = VOTES[strategy].signal == "confidence", by_logprobs
        self._has_logprobs, self._split = False, request.unprm.split
        self._body, self.model = request.for_upstream(), request.model
        self._shows_logprobs = bool(self._body.get("logprobs"))
        if self._confident or by_logprobs:
            self._body["logprobs"] = True
        self._request = request
        self._exclude_args, self._vote_on = request.unprm.exclude_args, request.unprm.vote_on
        self._wants_json, self._schema = request.wants_json, request.schema_of_answer
        self._apart = request.stream and request.unprm.candidates  # together they would arrive together
        self._seed = request.seed
        if self.budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self.sampled = Sampled()
        self._solutions: list[AnySolution] = []
        self._room = service.settings.max_body_bytes
        self.rounds = self._requested = 0
        self.failures: list[UpstreamFailure] = []
        self._origins: list[Source] = []

    @property
    def attempted(self) -> int:
        """Number of candidates that were sampled or failed."""
        return len(self.sampled.choices) + sum(failure.candidates for failure in self.failures)

    @property
    def failing(self) -> bool:
        """Whether what keeps failing is all that is left, so that no more is worth requesting."""
        return any(each.failing >= _FAILED for each in self.sources) and not any(each.goes_on for each in self.sources)

    @property
    def cut(self) -> int:
        """Number of candidates that reached their token limit."""
        return sum(map(_is_cut, self.sampled.choices))

    @property
    def token_limit(self) -> str | None:
        """The limit to the tokens of a candidate, as `max_tokens=220`; None if the request's is not a number."""
        for name in ("max_completion_tokens", "max_tokens"):
            if name in self._body:
                return f"{name}={limit}" if type(limit := self._body[name]) is int else None
        return f"the gateway's limit of {self._service.settings.gateway_max_tokens} tokens"

    @property
    def first_whole(self) -> int:
        """Index of the first candidate with a text or calls that is not truncated; without one, of the first with
        either, or the first."""
        ranks = [
            (not (text_of(choice).strip() or calls_of(choice)), _is_cut(choice)) for choice in self.sampled.choices
        ]
        return ranks.index(min(ranks))

    @property
    def samples(self) -> list[Sample]:
        """All candidates so far, in sampling order."""
        return list(map(_sample, range(len(self.sampled.choices)), self.sampled.choices))

    async def sample(
        self,
        count: int,
        until: float,
        observe: Callable[[Sample | Piece], None],
        enough: Callable[[Sequence[Json]], Coroutine[Any, Any, bool]],
    ) -> None:
        """Samples one more round, until a time of the event loop's clock, or until `enough` says of all completions so
        far that no more are needed; `observe` is called with each candidate as soon as it and those before it have
        arrived; if the request shows candidates, first with the pieces of its text as they are written. Failures are
        recorded, and tokens are charged as they come; a source that keeps failing, or whose first candidates all fail,
        is given up, as one that takes more than its share of the time while others wait. Raises `UpstreamRefused`,
        `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far, and no other source."""
        self.rounds += 1
        first, places = self._requested, list[Source]()
        for source in self.sources:
            places += [source] * min(source.left, count - len(places))
        self._requested += count
        waiting = [source for source in self.sources if source.goes_on and source not in places]
        now = asyncio.get_running_loop().time()
        sampled, early, origins, told = Sampled(), dict[int, list[Json]](), list[Source](), dict[int, int]()
        came, whole = asyncio.Event(), True
        late, missing = False, "the upstream returned fewer candidates than requested"
        errors: dict[Source, UnprmError] = {}

        def add(number: int, choices: list[Json]) -> None:
            for index, choice in enumerate(choices, len(self.sampled.choices) + len(sampled.choices)):
                observe(_sample(index, choice))
            sampled.choices += choices
            origins.extend([places[number]] * len(choices))

        async def ask(source: Source) -> None:
            """The candidates at the places of a source."""
            source.asked, start = True, places.index(source)
            # different in every round
            seeded = {} if self._seed is None else {"seed": self._seed + first + start}
            kept = None if self._shows_logprobs else _WITH_TEXTS if self._by_logprobs else ("logprob",)
            request = self._body | seeded, places.count(source), self._context, kept
            pieces = (lambda number, text: tell(start + number, text)) if self._apart else None
            try:
                await source.upstream.sample(*request, lambda number, part: arrived(start + number, part), pieces)
            except UnprmError as error:
                errors[source] = error

        def tell(number: int, text: str) -> None:
            told[number] = told.get(number, 0) + len(text)
            observe(Piece(candidate=len(self.sampled.choices) + number, text=text))

        def take_back(number: int) -> None:
            if told.pop(number, 0) > 0:
                tell(number, "")

        def arrived(number: int, part: Sampled) -> None:
            for each in (sampled, places[number].sampled):
                each.add(replace(part, choices=[]))
            self._context.claims.charge(part.tokens)
            if self._apart and part.choices and told.get(number, 0) != len(text := text_of(part.choices[0])):
                take_back(number)  # it was asked for again, or was not streamed
                tell(number, text)
            if part.choices:
                early[number] = early.get(number, []) + part.choices
                came.set()
            while (due := early.pop(len(sampled.choices), None)) is not None:
                add(len(sampled.choices), due)

        async def wait_for_enough() -> None:
            before = so_far = self.sampled.choices
            while len(so_far) in (len(before), len(before) + count) or not await enough(so_far):
                await came.wait()
                came.clear()
                later = chain.from_iterable(choices for _, choices in sorted(early.items()))
                so_far = [*self.sampled.choices, *sampled.choices, *later]

        try:
            async with asyncio.timeout_at(now + (until - now) / (1 + len(waiting))):
                whole = await first_of(all_of(map(ask, dict.fromkeys(places))), wait_for_enough())
        except TimeoutError:
            if not (waiting or self.sampled.choices or sampled.choices or early):
                raise
            late, missing = True, "they were not waited for: time ran out"
        for number in range(len(sampled.choices), len(places)):
            take_back(number)
        for number, choices in sorted(early.items()):  # those before them failed
            add(number, choices)
        try:
            solutions = await self._read(sampled)
        except UnprmError as error:
            if not self.sampled.choices:
                raise
            sampled.choices, sampled.size, origins = [], 0, []
            solutions, whole, missing = [], True, str(error)
        self.sampled.add(sampled)
        self._solutions += solutions
        self._origins += origins
        for source in dict.fromkeys(places):
            lost = places.count(source) - (received := origins.count(source))
            source.received += received
            source.failing = 0 if received or not whole else source.failing + 1 if self.sampled.choices else _FAILED
            if late:
                source.failing = _FAILED
            if source.failing >= _FAILED and any(each.goes_on for each in self.sources):
                lost = source.left
            if whole and lost > 0:
                named = "" if len(self.sources) == 1 else f"{source.name}: "
                self.failures.append(UpstreamFailure(candidates=lost, detail=f"{named}{errors.get(source, missing)}"))
                source.failed += lost
        if late and not waiting:
            for source in self.sources:
                source.failing = _FAILED
        if not self.sampled.choices:
            if self.failing:
                raise next(iter(errors.values()), UpstreamFailed(missing))
            await self.sample(min(count, self.budget - self.attempted), until, observe, enough)

    def solutions(self, extraction: Extraction) -> list[AnySolution]:
        """All candidates so far, in sampling order, with what they vote for where that is not the answer that a whole
        text states. Raises `UpstreamFailed` if log-probabilities were asked for and no source gives any."""
        needed = self._confident or self._by_logprobs
        if needed and not self._has_logprobs and all(source.asked for source in self.sources):
            need = "votes by confidence need" if self._confident else "rewards are made of here"
            raise UpstreamFailed(f"the upstream sends no log-probabilities of tokens, which {need}")
        return self._ballots(self.sampled.choices, self._solutions, extraction)

    def provisional(self, choices: Sequence[Json], extraction: Extraction) -> list[AnySolution]:
        """These completions as `solutions` will have them, without confidences."""
        return self._ballots(choices, list(map(text_of, choices)), extraction)

    def _ballots(
        self, choices: Sequence[Json], solutions: Sequence[AnySolution], extraction: Extraction
    ) -> list[AnySolution]:
        acting = any(map(calls_of, choices))
        pairs = zip(choices, solutions, strict=True)
        return [self._ballot(choice, solution, extraction, acting) for choice, solution in pairs]

    def _ballot(self, choice: Json, solution: AnySolution, extraction: Extraction, acting: bool) -> AnySolution:
        """A candidate with what it votes for; `acting`: whether any candidate calls a tool."""
        cut, text = _is_cut(choice), text_of(choice)
        sure = {name: getattr(solution, name, None) for name in ("confidence", "token_logprobs")}
        if calls_of(choice):
            return action(choice, self._exclude_args, sure, cut=cut)
        if cut:
            answer = extract(text, extraction, cut=True) or NO_ANSWER
            return SolutionIn.model_validate({"text": text, "answer": answer, **sure})
        if self._wants_json and (self._vote_on or extract(text, extraction) is None):
            value = json_answer(text, self._schema, self._vote_on)
            if value is not None or self._vote_on:
                return JsonAnswer.model_validate({"text": text, "answer": value or NO_ANSWER, **sure})
        if acting and text.strip() and extract(text, extraction) is None:
            return Verbatim.model_validate({"text": text, "answer": NO_CALL, **sure})
        return solution

    def origin(self, index: int) -> Source:
        """Where a candidate comes from."""
        return self._origins[index]

    def by_parts(self, vote: VoteOut) -> Parts | None:
        """As the function `by_parts`, of the candidates so far."""
        return by_parts(self._request, vote, self.sampled.choices)

    def choice(self, index: int) -> Json:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for. Raises
        `UpstreamFailed` if these are no JSON."""
        choice = self.sampled.choices[index]
        if self._shows_logprobs and not is_json(choice.get("logprobs")):
            raise UpstreamFailed("the upstream's log-probabilities have numbers that JSON can't represent")
        return choice

    async def _read(self, sampled: Sampled) -> list[AnySolution]:
        """The candidates of a round as a vote takes them. Raises `UpstreamFailed` if their texts are too long, and
        `Overloaded`."""
        length = sum(map(length_of, sampled.choices))
        if length > self._room:
            raise UpstreamFailed(
                f"the texts of the candidates are together longer than {self._service.settings.max_body_bytes} "
                "characters"
            )
        solutions = await self._service.read(self._context, partial(self._digested, sampled), sampled.size)
        self._context.claims.hold(sampled.size)
        self._context.size += sampled.size
        self._room -= length
        return solutions

    def _digested(self, sampled: Sampled) -> list[AnySolution]:
        """The candidates as a vote takes them. Log-probabilities that the caller did not ask for are dropped."""
        solutions: list[AnySolution] = []
        for choice in sampled.choices:
            solutions.append(self._candidate(choice))
            if choice.get("logprobs") and not self._shows_logprobs:
                choice["logprobs"] = None
        if self._confident and not self._shows_logprobs:
            sampled.size = sum(map(length_of, sampled.choices))
        return solutions

    def _candidate(self, choice: Json) -> AnySolution:
        """A completion with its confidence, if it is voted on by that, or with its steps' log-probabilities, if rewards
        are made of these; without either if it comes without log-probabilities of its tokens."""
        text = text_of(choice)
        if not (self._confident or self._by_logprobs):
            return text
        try:
            logprobs = LogProbs.model_validate(choice.get("logprobs"))
        except ValidationError:
            logprobs = LogProbs()
        sampled = logprobs.sampled or ()
        self._has_logprobs |= len(sampled) > 0
        if self._confident:
            return SolutionIn.model_validate({"text": text, "confidence": confidence_of(None, sampled or None)})
        if calls_of(choice):  # one step
            found = [sampled]
        else:
            steps = step_text.split(text, self._split, self._service.settings.max_steps)
            found = step_text.logprobs_of(steps, [(token.raw, token.bounded) for token in logprobs.content or ()])
        fits = found and all(found)
        return SolutionIn.model_validate({"text": text, "token_logprobs": list(map(list, found)) if fits else None})


def _is_cut(choice: Json) -> bool:
    return choice.get("finish_reason") == "length"


def _sample(index: int, choice: Json) -> Sample:
    return Sample(
        index=index,
        text=text_of(choice),
        tool_calls=calls_of(choice) or None,
        finish_reason=choice.get("finish_reason"),
    )
