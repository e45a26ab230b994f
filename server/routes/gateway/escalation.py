"""How far an election goes whose answer is not accepted at the request's risk."""

from collections.abc import Sequence

from unprm.errors import DeadlineExceeded, Overloaded, UpstreamFailed, UpstreamRefused

from ...tracing import annotate_generation
from .candidates import SampledCandidates
from .election import ElectionResult, ElectionUpdate, Observer, RunningElection, ignore
from .report import Attempt, Progress


async def elect(
    candidates: SampledCandidates, further: Sequence[SampledCandidates], observe: Observer = ignore
) -> ElectionResult:
    """The elected completion. If it is not accepted, `on_reject` says how far to go: to the rest of the budget, and
    from there to the `further` candidates, which are given for `escalate`, until one is. The last one stands, accepted
    or not; an upstream that fails, or takes more than its share of the time, has none.

    Raises as `RunningElection`, if all fail the last one's error.
    """
    attempts: list[Attempt] = []
    result: ElectionResult | None = None
    failures: list[str] = []
    settings, request = candidates.terms.settings, candidates.terms.request

    def observe_progress(update: ElectionUpdate) -> None:
        if isinstance(update, Progress):  # the numbers of candidates begin anew
            observe(update)

    with candidates.service.models.chosen(settings.model) as models:
        for waiting, each in zip(range(len(further), -1, -1), (candidates, *further), strict=True):
            is_first = each is candidates
            election = RunningElection(models, each, observe if is_first else observe_progress, waiting)
            try:
                result = await _attempt(election, attempts)
                more = is_first and settings.on_reject in ("sample_more", "escalate")
                if more and not result.report.accept and election.stopped == "stable":
                    election.exhaust()
                    result = await _attempt(election, attempts)
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                if result is None and not waiting:
                    raise
                failures.append(f"the upstream {_names(each)} gave no answer: {error}")
            if result is not None and result.report.accept:
                break
    assert result is not None, "else the last one's error was raised"
    result.report.notes += failures
    if settings.on_reject is not None:
        result.report.attempts = attempts
    sampled, id = result.sampled, candidates.context.response_id
    annotate_generation(request.model, sampled.model, id, sampled.prompt_tokens, sampled.completion_tokens)
    return result


async def _attempt(election: RunningElection, attempts: list[Attempt]) -> ElectionResult:
    sampled = election.candidates.sampled
    count, before = len(sampled), sampled.token_counts
    result = await election.run()
    tokens = {name: value - before.get(name, 0) for name, value in sampled.token_counts.items()}
    fields = {
        "upstream": _names(election.candidates),
        "model": result.sampled.model,
        "sampled": len(sampled) - count,
        "answer": result.report.answer,
        "accept": bool(result.report.accept),
    }
    attempts.append(Attempt.model_validate(fields | tokens))
    return result


def _names(candidates: SampledCandidates) -> str:
    return "+".join(source.name for source in candidates.sources)
