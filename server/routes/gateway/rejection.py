"""What becomes of an elected answer that is not accepted at the request's risk: more candidates, a second upstream."""

from dataclasses import replace
from typing import Literal

from unprm.errors import DeadlineExceeded, Overloaded

from ...admission import Context
from ...service import Service
from .candidates import Candidates
from .election import Elected, Observer, Progress, Rounds, Terms, unobserved
from .report import Attempt, Sample
from .upstream import Sampled, UpstreamFailed, UpstreamRefused


async def elect(
    service: Service,
    candidates: Candidates,
    second: Candidates | None,
    terms: Terms,
    context: Context,
    observe: Observer = unobserved,
) -> Elected:
    """The elected completion. If it is not accepted, `on_reject` says how far to go: to the rest of the budget, and
    from there to the `second` upstream's candidates, given for `escalate`. The last one stands, accepted or not.

    Raises as `Rounds`; but where the second upstream fails, the first one's answer stands.
    """
    attempts: list[Attempt] = []
    with service.models.chosen(terms.request.model) as models:
        rounds = Rounds(service, models, candidates, terms, context, observe)
        elected = await _attempt(rounds, "first", attempts)
        further = terms.request.on_reject in ("sample_more", "escalate")
        if further and not elected.report.accept and rounds.stopped == "stable":
            rounds.exhaust()
            elected = await _attempt(rounds, "first", attempts)
        if second is not None and not elected.report.accept:

            def follow(step: Sample | Progress) -> None:
                if isinstance(step, Progress):  # the numbers of candidates begin anew
                    observe(step)

            try:
                later = await _attempt(Rounds(service, models, second, terms, context, follow), "second", attempts)
            except (UpstreamFailed, UpstreamRefused, Overloaded, DeadlineExceeded) as error:
                elected.report.notes.append(f"the second upstream gave no answer: {error}")
            else:
                elected = replace(later, sampled=_together(elected.sampled, later.sampled))
    if terms.request.on_reject is not None:
        elected.report.attempts = attempts
    return elected


async def _attempt(rounds: Rounds, upstream: Literal["first", "second"], attempts: list[Attempt]) -> Elected:
    """Samples until the election stops; adds what that took."""
    sampled = rounds.candidates.sampled
    count, before = len(sampled), sampled.usage
    elected = await rounds.run()
    after = sampled.usage
    attempts.append(
        Attempt(
            upstream=upstream,
            model=sampled.model,
            sampled=len(sampled) - count,
            prompt_tokens=after["prompt_tokens"] - before["prompt_tokens"],
            completion_tokens=after["completion_tokens"] - before["completion_tokens"],
            answer=elected.report.answer,
            accept=bool(elected.report.accept),
        )
    )
    return elected


def _together(first: Sampled, second: Sampled) -> Sampled:
    """The second's completions, with the tokens of both."""
    return replace(
        second,
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        completion_tokens=first.completion_tokens + second.completion_tokens,
    )
