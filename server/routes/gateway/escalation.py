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
    or not.

    Raises as `RunningElection`; but where a further upstream fails, the answer so far stands.
    """
    attempts: list[Attempt] = []
    settings, request = candidates.terms.settings, candidates.terms.request

    def observe_progress(update: ElectionUpdate) -> None:
        if isinstance(update, Progress):  # the numbers of candidates begin anew
            observe(update)

    with candidates.service.models.chosen(settings.model) as models:
        election = RunningElection(models, candidates, observe)
        result = await _attempt(election, attempts)
        more = settings.on_reject in ("sample_more", "escalate")
        if more and not result.report.accept and election.stopped == "stable":
            election.exhaust()
            result = await _attempt(election, attempts)
        for later in further:
            if result.report.accept:
                break
            try:
                result = await _attempt(RunningElection(models, later, observe_progress), attempts)
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                result.report.notes.append(f"the upstream {_names(later)} gave no answer: {error}")
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
