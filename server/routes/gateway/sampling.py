"""The candidates of one election: sampled in rounds, each with its vote."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, zip_longest
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import from_json

from unprm.answers.extraction import extract
from unprm.answers.kinds import canonical_json, json_answer
from unprm.errors import UnprmError, UpstreamFailed
from unprm.openai.completion import Completion, Samples, is_json
from unprm.openai.errors import APIResponseError
from unprm.task_groups import all_of, first_of
from unprm.trajectories import Function, Message, Reading, render
from unprm.types import ComparedAs, Evidence
from unprm.wire import AnySolution, SolutionIn, confidence_of

from ...lease import Lease
from ...service import Service
from .plan import ElectionPlan, Source
from .report import TextPiece, UpstreamFailure, WrittenCandidate
from .upstream import Listener

WARM = 0.7
"""Temperature if the request asks for 0: equal candidates would leave nothing to vote on."""
_NO_ANSWER = " "
"""As the answer of a solution: it states none, wherever one would be looked for."""
_NO_CALL = "no call"
"""What texts that state no answer vote for where other candidates call tools."""


class Sampling:
    """The candidates of one election, sampled in rounds from the sources, in their order; with log-probabilities for a
    vote by confidence.

    Their texts together are at most as long as a request's body may be; they count in its size and its memory.
    """

    def __init__(self, service: Service, plan: ElectionPlan, context: Lease, sources: Sequence[Source]) -> None:
        self.service, self.sources, self.plan, self.context = service, sources, plan, context
        self.budget = sum(source.budget for source in sources)
        request = plan.request
        self._body, self._seed = request.for_upstream(), request.seed
        self._shows_logprobs, self._has_logprobs = bool(self._body.get("logprobs")), False
        if plan.signal == "confidence":
            self._body["logprobs"] = True
        if self.budget > 1 and request.temperature == 0:
            self._body["temperature"] = WARM
            self._seed = request.seed or 0  # a repeated request stays deterministic
        self._room = service.settings.max_body_bytes
        self.samples, self._confidences, self.origins = Samples(), list[float | None](), list[Source]()
        self.failures: list[UpstreamFailure] = []
        self.rounds = self._requested = 0

    @property
    def attempted(self) -> int:
        return len(self.samples) + sum(failure.candidates for failure in self.failures)

    @property
    def failing(self) -> bool:
        """Whether no source is left but failing ones."""
        return any(each.given_up for each in self.sources) and not any(each.goes_on for each in self.sources)

    @property
    def cut(self) -> int:
        return sum(each.is_cut for each in self.samples.completions)

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
        ranks = [(not (each.text.strip() or each.calls), each.is_cut) for each in self.samples.completions]
        return ranks.index(min(ranks))

    @property
    def written(self) -> list[WrittenCandidate]:
        return list(map(WrittenCandidate.of, count(), self.samples.completions))

    async def sample(
        self,
        wanted: int,
        until: float,
        observe: Callable[[WrittenCandidate | TextPiece], None] | None,
        enough: Callable[[Sequence[Completion]], Coroutine[Any, Any, bool]],
    ) -> None:
        """Samples one more round of `wanted` candidates, until a time of the event loop's clock, or until `enough` says
        that the completions so far decide.

        `observe`, if there is one, gets candidates in order, an early one once all before it have arrived; if the
        request shows samples, first the pieces of a text while it is written. Failures are recorded, and tokens charged
        as they are told. A source is given up if it keeps failing, if its first candidates all fail, or if it takes
        more than its share of the time while others wait.

        Raises `UpstreamRefused`, `UpstreamFailed`, `Overloaded` or `TimeoutError` if there is no candidate so far, and
        no other source.
        """
        self.rounds += 1
        before, first, places = self.samples.completions, self._requested, list[Source]()
        for source in self.sources:
            places += [source] * min(source.left, wanted - len(places))
        self._requested += wanted
        waiting = [source for source in self.sources if source.goes_on and source not in places]
        now = asyncio.get_running_loop().time()
        round = _Round(places, len(before), observe)
        errors: dict[Source, UnprmError] = {}
        complete, late, missing = True, False, "the upstream returned fewer candidates than requested"
        # together they would arrive together
        apart = observe is not None and self.plan.settings.show_samples

        async def request_from(source: Source) -> None:
            source.requested, start = True, places.index(source)
            # different in every round
            seeded = {} if self._seed is None else {"seed": self._seed + first + start}

            def arrive(number: int, part: Samples) -> None:
                source.sampled.count(part)
                round.arrive(start + number, part, shown=apart)

            show = (lambda number, text: round.show(start + number, text)) if apart else None
            listener = Listener(arrive, show, self._shows_logprobs)
            try:
                await source.upstream.sample(self._body | seeded, places.count(source), self.context, listener)
            except UnprmError as error:
                errors[source] = error

        async def wait_for_enough() -> None:
            so_far = before
            while len(so_far) in (len(before), len(before) + wanted) or not await enough(so_far):
                await round.came.wait()
                round.came.clear()
                so_far = [*before, *round.completions]

        try:
            async with asyncio.timeout_at(now + (until - now) / (1 + len(waiting))):
                complete = await first_of(all_of(map(request_from, dict.fromkeys(places))), wait_for_enough())
        except TimeoutError:
            if not (waiting or before or round.completions):
                raise
            late, missing = True, "they were not waited for: time ran out"
        round.end()
        try:
            confidences = await self._read(round.samples)
        except UnprmError as error:
            if not before:
                raise
            round.samples.completions, round.samples.size, round.origins = [], 0, []
            confidences, complete, missing = [], True, str(error)
        self.samples.add(round.samples)
        self._confidences += confidences
        self.origins += round.origins
        for source in dict.fromkeys(places):
            lost = places.count(source) - (received := round.origins.count(source))
            source.received += received
            if received or not complete:
                source.failing = 0
            elif self.samples.completions:
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
        if not self.samples.completions:
            if self.failing:
                raise next(iter(errors.values()), UpstreamFailed(missing))
            await self.sample(min(wanted, self.budget - self.attempted), until, observe, enough)

    def solutions(self) -> list[AnySolution]:
        """All candidates so far as a vote takes them, in sampling order. Raises `UpstreamFailed` if log-probabilities
        are needed and no source gives any."""
        if (
            self.plan.signal == "confidence"
            and not self._has_logprobs
            and all(source.requested for source in self.sources)
        ):
            why = "the upstream sends no log-probabilities of tokens, which votes by confidence need"
            raise UpstreamFailed(f"{why}: name another vote, as majority")
        return self.provisional(self.samples.completions, self._confidences)

    def provisional(
        self, completions: Sequence[Completion], confidences: Sequence[float | None] = ()
    ) -> list[AnySolution]:
        """Completions as a vote takes them."""
        acting = any(completion.calls for completion in completions)
        return [
            self._solution(completion, confidence, acting)
            for completion, confidence in zip_longest(completions, confidences)
        ]

    def choice(self, index: int) -> Completion:
        """A candidate as the upstream sent it, without log-probabilities that the caller did not ask for. Raises
        `UpstreamFailed` if these are no JSON."""
        completion = self.samples.completions[index]
        if self._shows_logprobs and not is_json(completion.raw.get("logprobs")):
            raise UpstreamFailed("the upstream's log-probabilities have numbers that JSON can't represent")
        return completion

    async def _read(self, samples: Samples) -> list[float | None]:
        """The confidences of a round's candidates. Raises `UpstreamFailed` if their texts are too long, and
        `Overloaded`."""
        length = sum(completion.length for completion in samples.completions)
        if length > self._room:
            limit = self.service.settings.max_body_bytes
            raise UpstreamFailed(f"the texts of the candidates are together longer than {limit} characters")
        confidences = await self.context.read(partial(self._digest, samples), samples.size)
        self.context.memory.take(samples.size)
        self.context.size += samples.size
        self._room -= length
        return confidences

    def _digest(self, samples: Samples) -> list[float | None]:
        """Reads log-probabilities; those that the caller did not ask for are dropped."""
        by_confidence = self.plan.signal == "confidence"
        confidences = [self._confidence(each) if by_confidence else None for each in samples.completions]
        if not self._shows_logprobs:
            samples.completions = [
                replace(each, raw=each.raw | {"logprobs": None}) if each.raw.get("logprobs") else each
                for each in samples.completions
            ]
            if by_confidence:
                samples.size = sum(each.length for each in samples.completions)
        return confidences

    def _confidence(self, completion: Completion) -> float | None:
        """None if the completion has no log-probabilities that can be read."""
        try:
            logprobs = completion.logprobs.sampled
        except APIResponseError:
            return None
        self._has_logprobs |= bool(logprobs)
        return confidence_of(None, logprobs or None)

    def _solution(self, completion: Completion, confidence: float | None, acting: bool) -> AnySolution:
        """A completion as a vote takes it, with the answer if the text alone does not state it. `acting`: whether any
        candidate calls a tool."""
        request, extraction, text = self.plan.request, self.plan.extraction, completion.text
        if completion.calls:
            return self._action(completion, confidence)
        stated = {"text": text, "confidence": confidence}
        if completion.is_cut:
            return SolutionIn.model_validate(stated | {"answer": extract(text, extraction, cut=True) or _NO_ANSWER})
        vote_on = request.unprm.vote_on
        if request.wants_json and (vote_on or extract(text, extraction) is None):
            value = json_answer(text, request.schema_of_answer, vote_on)
            if value is not None or vote_on:
                return JsonSolution.model_validate(stated | {"answer": value or _NO_ANSWER})
        if acting and text.strip() and extract(text, extraction) is None:
            return ActionSolution.model_validate(stated | {"answer": _NO_CALL})
        return text if confidence is None else SolutionIn.model_validate(stated)

    def _action(self, completion: Completion, confidence: float | None) -> "ActionSolution":
        """A completion with tool calls as a solution of one step: its text, then its calls.

        It votes for the set of its calls, by name and arguments in canonical JSON: in any order, without white space,
        1.0 as 1, without `exclude_args`. If it is truncated, or the arguments of a call are no JSON object, nobody
        could make the calls, and it votes for nothing.
        """
        answer = _NO_ANSWER
        try:
            message = Message.model_validate(
                {"role": "assistant", "content": completion.text, "tool_calls": completion.calls}
            )
            (step,) = render([message], Reading()).steps
            if not completion.is_cut:
                called = {self._describe(call.function) for call in message.tool_calls or ()}
                answer = "\n".join(sorted(called)) or _NO_ANSWER
        except ValidationError:  # calls of another kind than functions
            step = json.dumps(completion.calls)
        except ValueError:
            pass
        return ActionSolution.model_validate({"steps": [step], "answer": answer, "confidence": confidence})

    def _describe(self, function: Function) -> str:
        """Raises `ValueError` for arguments that are no JSON object."""
        sent: Any = from_json(function.arguments, allow_inf_nan=False)
        if not isinstance(sent, dict):
            raise ValueError("arguments are an object")
        excluded = self.plan.settings.exclude_args
        arguments = canonical_json({name: value for name, value in sent.items() if name not in excluded})
        return f"{function.name}({arguments})"


class JsonSolution(SolutionIn):
    """A candidate whose answer is JSON, in canonical form."""

    compared_as: ClassVar[ComparedAs] = "json"


class ActionSolution(SolutionIn):
    """A candidate whose answer is an action, whose result nobody knows yet: it is compared as text."""

    compared_as: ClassVar[ComparedAs] = "tool_call"
    evidence: ClassVar[Evidence | None] = "before"


class _Round:
    """The candidates of one round, each at a place, whose source `places` has. An early completion is held back until
    all before it have arrived. `first`: the number of the first candidate among all."""

    def __init__(
        self, places: Sequence[Source], first: int, observe: Callable[[WrittenCandidate | TextPiece], None] | None
    ) -> None:
        self._places, self._first, self._observe = places, first, observe
        self.samples, self.origins = Samples(), list[Source]()
        self.came = asyncio.Event()
        self._early: dict[int, list[Completion]] = {}
        self._shown: dict[int, int] = {}

    @property
    def completions(self) -> list[Completion]:
        return [*self.samples.completions, *chain.from_iterable(early for _, early in sorted(self._early.items()))]

    def arrive(self, place: int, part: Samples, *, shown: bool) -> None:
        """`shown`: its text is, piece by piece."""
        self.samples.count(part)
        if part.completions:
            text = part.completions[0].text
            if shown and self._shown.get(place, 0) != len(text):
                self._take_back(place)  # it was asked for again, or was not streamed
                self.show(place, text)
            self._early.setdefault(place, []).extend(part.completions)
            self.came.set()
        while (due := self._early.pop(len(self.samples), None)) is not None:
            self._add(len(self.samples), due)

    def show(self, place: int, text: str) -> None:
        self._shown[place] = self._shown.get(place, 0) + len(text)
        if self._observe is not None:
            self._observe(TextPiece(candidate=self._first + place, text=text))

    def end(self) -> None:
        """Takes what has come although those before it have failed."""
        for place in range(len(self.samples), len(self._places)):
            self._take_back(place)
        for place, completions in sorted(self._early.items()):
            self._add(place, completions)

    def _take_back(self, place: int) -> None:
        if self._shown.pop(place, 0) > 0:
            self.show(place, "")

    def _add(self, place: int, completions: list[Completion]) -> None:
        if self._observe is not None:
            for written in map(WrittenCandidate.of, count(self._first + len(self.samples)), completions):
                self._observe(written)
        self.samples.completions += completions
        self.origins += [self._places[place]] * len(completions)
