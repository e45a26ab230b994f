"""What the gateway reports about an election, in fields and in sentences."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from unprm.election.acceptance import fewest
from unprm.openai.completion import Completion, Known, TokenUsage, UsageDetails
from unprm.openai.models import Json
from unprm.types import AnswerGroup, DecidedBy, Usage
from unprm.wire import ComparedAsField, DemonstrationField, Election, Unscored

from .plan import ElectionPlan

Stopped = Literal["stable", "budget", "failures", "no_answer"]
"""Why an election sampled no more candidates, see `Report`."""


class UnscoredCandidate(Unscored):
    """Why a candidate has no reward; `index` is in sampling order."""

    index: int


class UpstreamFailure(BaseModel):
    """Candidates that were requested and not received."""

    candidates: int
    detail: str


class WrittenCandidate(BaseModel):
    """A candidate as the upstream wrote it; `index` is in sampling order."""

    index: int
    text: str
    tool_calls: Known[Sequence[Json]] = None
    finish_reason: str | None

    @classmethod
    def of(cls, index: int, written: Completion) -> Self:
        return cls(index=index, text=written.text, tool_calls=written.calls or None, finish_reason=written.finish)


class TextPiece(BaseModel):
    """The next text of the candidate of this index; an empty text takes back all before it."""

    candidate: int
    text: str


class Progress(BaseModel):
    """The candidates so far, and the answer that led after the latest vote, None if there is none."""

    sampled: int
    budget: int
    answer: str | None


class SamplingCost(TokenUsage):
    """Candidates that were sampled, and the tokens they took."""

    model: str
    sampled: int

    @classmethod
    def of(cls, model: str, sampled: int, usage: TokenUsage, **more: Any) -> Self:
        return cls(model=model, sampled=sampled, **usage.model_dump(), **more)


class Attempt(SamplingCost):
    """An election whose answer could be accepted, and the upstream of its candidates."""

    upstream: str
    answer: str | None
    accept: bool


@dataclass(frozen=True, slots=True)
class ElectionUsage(Usage):
    """Of the PRM, and of the upstreams what they tell."""

    upstream: Known[UsageDetails] = None


class Report(Election):
    """How the answer was elected: `unprm` of a chat response.

    `notes` sums it up in sentences. `sampled` of `budget` candidates in `rounds`; `saved` were not needed, and `cut`
    reached their token limit. `stable` is the probability that the vote would not change if the whole budget was
    sampled, so 1 when it is. `stopped`: the vote was stable enough (`stable`), all were sampled (`budget`), the
    upstream failed (`failures`), or the first candidates have no answers and nothing else can elect one (`no_answer`).

    `answer`: the elected candidates' answer, in at most 1,000 characters; of tool calls a line for each, with name and
    arguments in canonical JSON; `no call` of texts without an answer if other candidates call tools; None if no
    candidate has an answer. Then the highest reward or confidence is elected if the vote is by these; else there is no
    vote, `decided_by` is None, and the first complete candidate is returned. `decided_by` is `majority`, whatever the
    strategy, if no candidate with an answer has the reward or confidence that it needs. `share`: the fraction of the
    candidates with an answer that have the elected one. Indices of candidates are in sampling order. `solutions` has
    all candidates if the request asks for them, and is missing otherwise, and in a stream. `breaches`: how candidates
    break the request's terms, by their index; if another keeps them, such candidates have no vote.

    With `risk`, `accept` says whether the answer is accepted, and `calibration` by what; with `on_reject`, `attempts`
    has all elections, the last one being reported. Of several upstreams, `upstream` gave the elected candidate, and
    `models` has what was sampled from each that was asked.
    """

    answer: str | None = None  # type: ignore[assignment]
    decided_by: DecidedBy | None = None  # type: ignore[assignment]
    compared_as: ComparedAsField = "none"
    tie: bool = False
    tied_answers: list[str] = Field(default=[])
    margin: float | None = None
    candidates: list[AnswerGroup] = Field(default=[])
    share: float | None = None
    reward: float | None = None
    unscored: list[UnscoredCandidate] = Field(default=[])
    without_answer_count: int
    compared_as_text: list[int] = Field(default=[])
    demonstration: DemonstrationField = None
    notes: list[str] = Field(default_factory=list)
    budget: int
    sampled: int
    saved: int
    cut: int
    rounds: int
    stopped: Stopped
    stable: float
    failures: list[UpstreamFailure]
    breaches: Known[dict[int, str]] = None
    model: str
    usage: ElectionUsage
    upstream: Known[str] = None
    models: Known[dict[str, SamplingCost]] = None
    attempts: Known[list[Attempt]] = None
    solutions: Known[list[WrittenCandidate]] = None


def notes(report: Report, plan: ElectionPlan, token_limit: str | None, *, by_frequency: bool) -> list[str]:
    """What a caller should know about an election, in lines.

    `token_limit`: the request's limit of a candidate, as `max_tokens=220`. `by_frequency`: no candidate with an answer
    had what the vote needs.
    """
    outcome = _outcome(report, by_pointers=bool(plan.settings.vote_on))
    lines = [*_missing(report, token_limit), *outcome, *report.notes]
    if plan.why_majority:
        lines.append(f"the vote is by majority, as none was named: {plan.why_majority}")
    if by_frequency:
        lines.append(f"no candidate with an answer has the {plan.signal} that {plan.strategy} needs: frequency decided")
    if plan.by_letters:
        lines.append("the question lists options, so answers are read as option letters")
    if report.accept is False:
        lines.append(f"the server is not sure of this answer: {_why_rejected(report)}")
    return lines


def _why_rejected(report: Report) -> str:
    if (applied := report.calibration) is None:
        return "the candidates allow no vote of the kind that was calibrated"
    if applied.outside:
        return f"the candidates lie outside those of {applied.pool} in {', '.join(applied.outside)}"
    if applied.threshold is None:
        needed = fewest(applied.risk, applied.confidence)
        few = f": it has {applied.problems} questions, {needed} are needed" if applied.problems < needed else ""
        return f"{applied.pool} supports accepting no answer at a risk of {applied.risk:g}{few}"
    return f"a risk of {applied.risk:g} takes a certainty of {applied.threshold:.3f}, it has {applied.certainty:.3f}"


def _missing(report: Report, token_limit: str | None) -> Iterator[str]:
    for failure in report.failures:
        yield f"{failure.candidates} of {report.budget} candidates are missing: {failure.detail}"
    of, silent, broken = f"of {report.sampled} candidates", report.without_answer_count, report.breaches or {}
    if report.cut:
        limit = token_limit or "the upstream's limit of tokens"
        yield f"{report.cut} {of} {_verb(report.cut, 'was', 'were')} truncated at {limit}"
    for reason, number in Counter(broken.values()).items():
        yield f"{number} {of} {_verb(number, 'breaks', 'break')} the request's terms: {reason}"
    if report.solution_index in broken:
        yield "no whole candidate keeps the request's terms"
    if silent and report.answer is not None:
        yield f"{silent} {of} {_verb(silent, 'states', 'state')} no answer"


def _verb(count: int, one: str, several: str) -> str:
    return one if count == 1 else several


def _outcome(report: Report, by_pointers: bool) -> Iterator[str]:
    if report.answer is None:
        first = "the first" if report.solution_index == 0 else f"candidate {report.solution_index}"
        returned = f"the one with the highest {report.decided_by}" if report.decided_by else first
        lacking = "is JSON with all that vote_on points to" if by_pointers else "states an answer"
        yield f"no candidate {lacking}; {returned} is returned as the upstream wrote it"
        if report.stopped == "no_answer":
            yield f"no more than {report.sampled} of {report.budget} candidates were sampled: no reward can elect one"
    elif (stated := report.sampled - report.without_answer_count) > 1:
        elected, *others = report.candidates
        has, silent = _verb(elected.count, "has", "have"), report.without_answer_count
        those = f"with an answer {has} the elected one" if silent else f"{has} the elected answer"
        sentence = f"{elected.count} of {stated} candidates {those}"
        if others:
            next_one = others[0].count
            tied = ", a tie" if next_one == elected.count else ", but an equal score"
            relation = tied if report.tie else ", but a lower score" if next_one > elected.count else ""
            sentence += f"; the next answer has {next_one}{relation}"
        yield sentence
