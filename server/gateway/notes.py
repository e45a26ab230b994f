"""What a caller should know about an election, in sentences."""

from collections.abc import Iterator

from unprm.votes.registry import VOTES

from .schema import Report


def notes(report: Report, token_limit: str | None, *, by_letters: bool, by_frequency: bool) -> list[str]:
    """The most important of a report.

    `token_limit`: the request's limit to a candidate, as `max_tokens=220`. `by_letters`: answers were read as letters
    of the question's options. `by_frequency`: no candidate with an answer had what the vote needs.
    """
    found = [*_missing(report, token_limit), *_outcome(report)]
    if by_frequency:
        signal = VOTES[report.strategy].signal
        found.append(f"no candidate with an answer has the {signal} that {report.strategy} needs: frequency decided")
    if by_letters:
        found.append("the question lists options, so answers are read as their letters")
    return found


def _missing(report: Report, token_limit: str | None) -> Iterator[str]:
    """What candidates lack."""
    cut, silent = report.cut, report.without_answer_count
    if cut:
        limit = token_limit or "the upstream's limit of tokens"
        yield f"{cut} of {report.sampled} candidates {'was' if cut == 1 else 'were'} cut at {limit}"
    if silent and report.answer is not None:
        yield f"{silent} of {report.sampled} candidates {'states' if silent == 1 else 'state'} no answer"


def _outcome(report: Report) -> Iterator[str]:
    """How many candidates agree, and how many on the next answer."""
    if report.answer is None:
        first = "the first" if report.solution_index == 0 else "the first whole one"
        returned = f"the one with the highest {report.decided_by}" if report.decided_by else first
        yield f"no candidate states an answer; {returned} is returned as the upstream wrote it"
    elif (stated := report.sampled - report.without_answer_count) > 1:
        elected, *others = report.candidates
        has = "has" if elected.count == 1 else "have"
        those = f"candidates {has} the elected answer"
        if report.without_answer_count:
            those = f"candidates with an answer {has} the elected one"
        said = f"{elected.count} of {stated} {those}"
        if others:
            next_one = others[0].count
            relation = ", a tie" if report.tie else ", but a lower score" if next_one > elected.count else ""
            said += f"; the next answer has {next_one}{relation}"
        yield said
