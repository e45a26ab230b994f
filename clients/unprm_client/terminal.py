"""Scores and votes for a terminal: coloured steps and tables. Hostile text can't control the terminal."""

import re
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from unprm.steps import THRESHOLD, first_error
from unprm.wire import (
    CompareResponse,
    ScoredSolution,
    ScoreResponse,
    Voted,
    VotedSolution,
    VoteOut,
    VoteResponse,
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal would obey: controls, escapes, and changes of the writing direction."""
_BAR = 20
"""Characters of a full bar."""


def scored(response: ScoreResponse, threshold: float | None) -> RenderableType:
    """Every solution, its steps coloured by their scores; the first below the threshold is marked. Scores that mean
    nothing, those of a demonstration outside its domain, are shown as they are."""
    parts: list[RenderableType] = [*_warning(response)]
    for number, solution in enumerate(response.solutions):
        parts += [_heading(number, solution), _steps(solution.steps, solution, threshold, _meant(response))]
    return Group(*parts, _footer(response))


def voted(response: VoteResponse, steps: Sequence[Sequence[str]], threshold: float | None) -> RenderableType:
    """The vote, and the solution that represents the winner; `steps` are those of the request's solutions."""
    elected = response.solutions[response.solution_index]
    best = _steps(steps[response.solution_index], elected, threshold, _meant(response))
    return Group(
        *_warning(response),
        _outcome(response),
        *_notes(response),
        _classes(response),
        _heading(response.solution_index, elected),
        best,
        _footer(response),
    )


def compared(response: CompareResponse) -> RenderableType:
    table = Table(title="all votes agree" if response.agree else "the votes disagree")
    judged = any(vote.accept is not None for vote in response.strategies.values())
    for name in ("vote", "answer", "decided by", "margin", "solution", *(["accepted"] if judged else [])):
        table.add_column(name, justify="right" if name == "margin" else "left")
    for strategy, vote in response.strategies.items():
        tie = " (tie)" if vote.tie else ""
        margin = "" if vote.margin is None else f"{vote.margin:.3f}"
        accepted = [{True: "yes", False: "no", None: ""}[vote.accept]] if judged else []
        cells = (strategy, Text(_plain(vote.answer)), vote.decided_by + tie, margin, str(vote.solution_index))
        table.add_row(*cells, *accepted)
    return Group(*_warning(response), table, *_notes(response), _footer(response))


def _warning(response: ScoreResponse | Voted) -> Iterator[Text]:
    if response.demonstration is not None:
        yield Text(_plain(response.demonstration.detail), "yellow")


def _meant(response: ScoreResponse | Voted) -> bool:
    """Whether its scores mean anything."""
    return response.demonstration is None or response.demonstration.in_domain


def _outcome(vote: VoteOut) -> Text:
    line = Text.assemble((f"{vote.strategy} elects ", "bold"), (_plain(vote.answer), "bold green"))
    line.append(f"  decided by: {vote.decided_by}")
    if vote.margin is not None:
        line.append(f", margin {vote.margin:.3f}")
    if vote.tie:
        line.append(f", a tie of {', '.join(map(_plain, vote.tied_answers))}", "yellow")
    if vote.accept is not None and vote.calibration is not None:
        said, colour = ("accepted", "green") if vote.accept else ("not accepted", "yellow")
        line.append(f", {said} at a risk of {100 * vote.calibration.risk:g} %", colour)
        if vote.calibration.outside:
            line.append(f" (beyond the calibration: {', '.join(map(_plain, vote.calibration.outside))})", colour)
    return line


def _notes(voted: Voted) -> Iterator[Text]:
    """What to know of a vote: why it is by majority, and which candidates did not fully count."""
    if isinstance(voted, VoteResponse) and voted.why_majority is not None:
        yield Text(f"by majority, as no vote was named: {_plain(voted.why_majority)}", "yellow")
    if voted.unscored_count:
        yield Text(f"{voted.unscored_count} of {len(voted.solutions)} candidates could not be scored", "yellow")
    if silent := voted.without_answer_count:
        read = f"{len(voted.solutions) - silent} of {len(voted.solutions)} candidates readable"
        yield Text(f"{read}, {silent} {'states' if silent == 1 else 'state'} no answer", "yellow")
    if voted.compared_as_text:
        numbers = ", ".join(map(str, voted.compared_as_text))
        yield Text(f"compared as text, for lack of time: the answers of {numbers}", "yellow")


def _classes(vote: VoteOut) -> Table:
    table = Table()
    for name in ("answer", "count", "mean reward", "best", "score", ""):
        table.add_column(name, justify="left" if name in ("answer", "") else "right")
    top = max((candidate.score or 0.0 for candidate in vote.candidates), default=0.0)
    for candidate in vote.candidates:
        share = (candidate.score or 0.0) / top if top else 0.0
        figures = (_number(candidate.mean_reward), _number(candidate.max_reward), _number(candidate.score))
        bar = Text("█" * round(_BAR * share), "cyan")
        table.add_row(Text(_plain(candidate.answer)), str(candidate.count), *figures, bar)
    return table


def _steps(
    steps: Sequence[str], solution: ScoredSolution | VotedSolution, threshold: float | None, marked: bool
) -> Text:
    """The steps; if `marked`, coloured, and judged by the request's threshold."""
    taken = THRESHOLD if threshold is None else threshold
    scores: Sequence[float | None] = solution.step_scores or [None] * len(steps)
    first = first_error(scores, taken)
    lines = []
    for index, (step, score) in enumerate(zip(steps, scores, strict=True)):
        if score is None:
            lines.append(Text(f"    –    {_plain(step)}"))
        elif not marked:
            lines.append(Text(f"  {score:.3f}   {_plain(step)}", "dim"))
        else:
            mark, colour = ("✗", "red") if score < taken else ("✓", "")
            line = Text.assemble((f"  {score:.3f} {mark} ", _colour(score)), (_plain(step), colour))
            lines.append(line.append("  ← first error", "bold red") if index == first else line)
    return Text("\n").join(lines)


def _heading(number: int, solution: ScoredSolution | VotedSolution) -> Text:
    name, answer = solution.id, solution.answer
    line = Text(f"\nsolution {number}" + ("" if name is None else f" ({_plain(name)})"), "bold")
    line.append(f": answer {_plain(answer) if answer is not None else '–'}, reward {_number(solution.reward)}")
    if solution.unscored is not None:
        line.append(f" ({_plain(solution.unscored.detail)})", "yellow")
    return line


def _footer(response: ScoreResponse | Voted) -> Text:
    usage = response.usage
    return Text(f"\n{response.model}: {usage.computed_tokens} tokens computed, {usage.cached_tokens} from cache", "dim")


def _colour(score: float) -> str:
    return "green" if score >= 0.75 else "yellow" if score >= 0.5 else "red"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _plain(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).replace("\n", " ⏎ ")
