"""The candidates of one election: those sampled and those that failed."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pydantic import ValidationError

from unprm import steps as step_text
from unprm.answers.extraction import extract
from unprm.answers.kinds import json_answer
from unprm.concurrent import first_of
from unprm.errors import UnprmError, UpstreamFailed
from unprm.openai.models import Json, LogProbs, is_json
from unprm.types import Extraction
from unprm.votes.registry import VOTES, Strategy
from unprm.wire import AnySolution, SolutionIn, confidence_of

from ...admission import Context
from ...service import Service
from .completion import NO_ANSWER, NO_CALL, JsonAnswer, Verbatim, action, calls_of, length_of, text_of
from .replies import Sampled
from .report import Sample, UpstreamFailure
from .schema import ChatRequest
from .upstream import Upstream

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_WITH_TEXTS = ("token", "bytes", "logprob")
"""Fields of a token by which its step is found."""
_FAILED = 2
"""Consecutive rounds without a candidate after which sampling stops."""


class SampledCandidates:
    """The candidates of one request, sampled in rounds; with log-probabilities for a vote by confidence, or where
    rewards are made of them (`by_logprobs`).

    Their texts together are at most as long as a request's body may be; they count in its size and its memory.
    """

    def __init__(
        self,
        service: Service,
        upstream: Upstream,
        request: ChatRequest,
        budget: int,
        strategy: Strategy,
        by_logprobs: bool,
        context: Context,
    ) -> None:
        self._service, self._upstream, self._context = service, upstream, context
        self._confident, self._by_logprobs = VOTES[strategy].signal == "confidence", by_logprobs
        self._has_logprobs, self._split = False, request.unprm.split
        self._body, self.model = request.for_upstream(), request.model
        self._shows_logprobs = bool(self._body.get("logprobs"))
        if self._confident or by_logprobs:
            self._body["logprobs"] = True
        self._exclude_args, self._vote_on = request.unprm.exclude_args, request.unprm.vote_on
        self._wants_json, self._schema = request.wants_json, request.schema_of_answer
        self._apart = request.stream and request.unprm.candidates  # together they would arrive together
        self._seed = request.seed
        if budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self.sampled = Sampled()
        self._solutions: list[AnySolution] = []
        self._room = service.settings.max_body_bytes
        self.rounds = self._requested = 0
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
        """Index of the first candidate with a text or calls that is not cut; without one, of the first with either, or
        the first."""
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
        observe: Callable[[Sample], None],
        enough: Callable[[Sequence[Json]], Coroutine[Any, Any, bool]],
    ) -> None:
        """Samples one more round, until a time of the event loop's clock, or until `enough` says of all completions so
        far that no more are needed; `observe` is called with each candidate as soon as it and those before it have
        arrived. Failures are recorded, and tokens are charged as they come; raises `UpstreamRefused`, `UpstreamFailed`,
        `Overloaded` or `TimeoutError` if there is no candidate so far."""
        self.rounds += 1
        seeded = {} if self._seed is None else {"seed": self._seed + self._requested}  # different in every round
        self._requested += count
        sampled, early = Sampled(), dict[int, list[Json]]()
        came, whole = asyncio.Event(), True
        late, missing = False, "the upstream returned fewer candidates than requested"

        def add(choices: list[Json]) -> None:
            for index, choice in enumerate(choices, len(self.sampled.choices) + len(sampled.choices)):
                observe(_sample(index, choice))
            sampled.choices += choices

        def arrived(number: int, part: Sampled) -> None:
            sampled.add(replace(part, choices=[]))
            self._context.claims.charge(part.tokens)
            if part.choices:
                early[number] = early.get(number, []) + part.choices
                came.set()
            while (due := early.pop(len(sampled.choices), None)) is not None:
                add(due)

        async def wait_for_enough() -> None:
            before = so_far = self.sampled.choices
            while len(so_far) in (len(before), len(before) + count) or not await enough(so_far):
                await came.wait()
                came.clear()
                later = chain.from_iterable(choices for _, choices in sorted(early.items()))
                so_far = [*self.sampled.choices, *sampled.choices, *later]

        try:
            async with asyncio.timeout_at(until):
                kept = None if self._shows_logprobs else _WITH_TEXTS if self._by_logprobs else ("logprob",)
                body = self._body | seeded
                sampling = self._upstream.sample(body, count, self._context, kept, self._apart, arrived)
                whole = await first_of(sampling, wait_for_enough())
        except (UnprmError, TimeoutError) as error:
            if not (self.sampled.choices or sampled.choices or early):
                raise
            late = isinstance(error, TimeoutError)
            missing = "they were not waited for: time ran out" if late else str(error)
        for _, choices in sorted(early.items()):  # those before them failed
            add(choices)
        try:
            solutions = await self._read(sampled)
        except UnprmError as error:
            if not self.sampled.choices:
                raise
            sampled.choices, sampled.size = [], 0
            solutions, whole, missing = [], True, str(error)
        if whole and (lacking := count - len(sampled.choices)) > 0:
            self.failures.append(UpstreamFailure(candidates=lacking, detail=missing))
        self._failed = _FAILED if late else 0 if sampled.choices else self._failed + 1
        self.sampled.add(sampled)
        self._solutions += solutions

    def solutions(self, extraction: Extraction) -> list[AnySolution]:
        """All candidates so far, in sampling order, with what they vote for where that is not the answer that a whole
        text states. Raises `UpstreamFailed` if log-probabilities were asked for and none of them has any."""
        if (self._confident or self._by_logprobs) and not self._has_logprobs:
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
