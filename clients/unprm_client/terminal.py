"""Responses as tables for a terminal. Hostile text can't control the terminal."""

import re
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from unprm.wire import CompareResponse, Election, Score, ScoredSolution, ScoreResponse, VoteResponse

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal would obey: controls, escapes, and changes of the writing direction."""
Response = ScoreResponse | VoteResponse | CompareResponse
Row = tuple[object, ...]


def shown(response: Response) -> Group:
    """A table with a row for each step, answer or vote, between its title and what to know of the response."""
    columns: tuple[str, ...]
    match response:
        case ScoreResponse():
            title, rows = response.model, _steps(response)
            columns = "solution", "answer", "reward", "step", "score", "first error"
        case VoteResponse():
            title = _outcome(response)
            columns = "answer", "count", "mean reward", "best", "score"
            rows = (
                (group.answer, group.count, group.mean_reward, group.max_reward, group.score)
                for group in response.candidates
            )
        case CompareResponse():
            title, columns = f"the votes {'agree' if response.agree else 'disagree'}", ("vote", "margin", "solution")
            rows = ((_outcome(vote), vote.margin, vote.solution_index) for vote in response.strategies.values())
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(_plain, row))
    return Group(_plain(title), table, *map(_plain, _notes(response)))


def _steps(response: ScoreResponse) -> Iterator[Row]:
    for number, solution in enumerate(response.solutions):
        about: Row = (solution.id or number, solution.answer, solution.reward)
        for index, step in enumerate(solution.steps):
            score = solution.step_scores[index] if solution.step_scores else None
            yield *about, step, score, "←" if index == solution.first_error else None
            about = (None,) * len(about)


def _outcome(vote: Election) -> str:
    accepted = {True: ", accepted", False: ", not accepted", None: ""}[vote.accept]
    unsupported = ", with an error in each solution" * (vote.supported is False)
    tie = ", a tie" * vote.tie
    return f"{vote.strategy} elects {vote.answer}, decided by {vote.decided_by}{tie}{unsupported}{accepted}"


def _notes(response: Response) -> Iterator[str]:
    if response.demonstration is not None:
        yield response.demonstration.detail
    if isinstance(response, VoteResponse) and response.why_majority is not None:
        yield f"by majority: {response.why_majority}"
    if isinstance(response, VoteResponse):
        yield from response.notes
    solutions: Sequence[ScoredSolution | Score] = response.solutions
    for number, solution in enumerate(solutions):
        if solution.unscored is not None:
            yield f"solution {number} has no scores: {solution.unscored.detail}"
    if not isinstance(response, ScoreResponse) and response.without_answer_count:
        yield f"{response.without_answer_count} of {len(response.solutions)} candidates state no answer"


def _plain(value: object) -> Text:
    said = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return Text(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", said))
