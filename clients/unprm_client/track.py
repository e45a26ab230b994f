"""A solution that grows step by step, with a score and advice after each step.

All of it is sent each time, and the server's prefix cache knows the earlier steps. So the server holds no session that
could expire, and any replica can go on where another one was lost.
"""

from collections.abc import Sequence
from typing import Literal, Unpack

from pydantic import BaseModel, ConfigDict

from unprm.wire import Demonstration, ScoreResponse
from unprm_client._calls import ScoreOptions
from unprm_client.aio import AsyncClient
from unprm_client.errors import UnexpectedResponse

Advice = Literal["go_on", "back_up", "stop"]


class Progress(BaseModel):
    """Where a solution stands.

    `advice`: `back_up` if a step is below the threshold: keep the `keep` steps before it and try another; `stop` if all
    are above it and the solution states its `answer`; else `go_on`. None, and all steps kept, where the scores mean
    nothing: those of a `demonstration` outside its domain. `score`: the last step's, in [0, 1]; `lowest`: the lowest of
    `scores`. `computed_tokens`: tokens that were not in the server's cache.
    """

    model_config = ConfigDict(frozen=True)

    advice: Advice | None
    keep: int
    score: float
    lowest: float
    scores: tuple[float, ...]
    answer: str | None
    computed_tokens: int
    demonstration: Demonstration | None


def progress(response: ScoreResponse) -> Progress:
    """The progress of the only solution of a response; raises `UnexpectedResponse` if it has no scores."""
    (solution,) = response.solutions
    if not solution.step_scores:
        raise UnexpectedResponse(200, "the solution has no step scores")
    scores, demonstration = tuple(solution.step_scores), response.demonstration
    keep = len(scores)
    advice: Advice | None = None
    if demonstration is None or demonstration.in_domain:
        keep = keep if solution.first_error is None else solution.first_error
        advice = "back_up" if keep < len(scores) else "go_on" if solution.answer is None else "stop"
    return Progress(
        advice=advice,
        keep=keep,
        score=scores[-1],
        lowest=min(scores),
        scores=scores,
        answer=solution.answer,
        computed_tokens=response.usage.computed_tokens,
        demonstration=demonstration,
    )


class Track:
    """A solution of a problem; `steps` are those so far. `options` are those of `AsyncClient.score_steps`; its
    `threshold` says below which score a step counts as wrong."""

    def __init__(self, client: AsyncClient, problem: str, **options: Unpack[ScoreOptions]) -> None:
        self._client, self._problem = client, problem
        self._options: ScoreOptions = {**options, "on_invalid": "refuse"}
        self.steps: tuple[str, ...] = ()

    async def append(self, *steps: str) -> Progress:
        """Appends steps, one or more, which must not be blank. Raises a `ClientError`, and then appends nothing."""
        grown: Sequence[str] = (*self.steps, *steps)
        found = progress(await self._client.score_steps(self._problem, [grown], **self._options))
        self.steps = tuple(grown)
        return found

    def back_up(self, keep: int) -> None:
        """Drops all but the first `keep` steps."""
        self.steps = self.steps[:keep]
