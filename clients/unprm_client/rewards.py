"""Rewards for programs that train with RL: of each solution the lowest step score, or with a right answer what the two
make."""

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from unprm.wire import ScoredSolution, ScoreResponse
from unprm_client._client import AsyncClient, Client
from unprm_client.errors import BlankSolution, ClientError, NoVerdict, SolutionTooLong, TooManySteps

AT_A_TIME = 32
"""Concurrent requests; the server batches them together, and reads a problem once for all its solutions."""
UNSCORABLE = (BlankSolution, SolutionTooLong, TooManySteps, NoVerdict)
"""Errors of a solution that can't be scored."""


@cache
def _client_of(loop: asyncio.AbstractEventLoop) -> AsyncClient:
    return AsyncClient()


def loop_client() -> AsyncClient:
    """A client for the running event loop, to which its connections belong; the same at each call."""
    return _client_of(asyncio.get_running_loop())


class Rewarded(NamedTuple):
    """What a solution is worth. `correct`: None if no right answer was given; `step_rewards`: its step scores, in
    [0, 1], none if it can't be scored."""

    correct: bool | None
    reward: float
    step_rewards: list[float]


def rewards(
    client: Client,
    problems: Sequence[str],
    solutions: Sequence[str | Sequence[str]],
    golds: Sequence[str | Sequence[str]] | None = None,
    **terms: Any,
) -> list[float]:
    """The lowest step score of each solution, a text or its steps, to the problem at its place, in [0, 1]; 0 for one
    that can't be scored (blank, too long, too many steps, not judged).

    `golds`: the right answer to each problem, or several. The reward is then 1 for a right answer and 0 for another, or
    what the request's `combination` among the `terms` makes of that and the step scores. Raises the first other
    `ClientError`, and `ValueError` for unequal lengths.
    """
    return [each.reward for each in rewarded(client, problems, solutions, golds, **terms)]


def rewarded(
    client: Client,
    problems: Sequence[str],
    solutions: Sequence[str | Sequence[str]],
    golds: Sequence[str | Sequence[str]] | None = None,
    **terms: Any,
) -> list[Rewarded]:
    """As `rewards`, with what they are made of. `terms`: other fields of the requests."""
    requests = [
        {"problem": problem, "solutions": [solution], **terms}
        for problem, solution in zip(problems, solutions, strict=True)
    ]
    if golds is not None:
        requests = [{**request, "gold": gold} for request, gold in zip(requests, golds, strict=True)]
    return [_rewarded(outcome) for outcome in client.score_all(requests, concurrency=AT_A_TIME)]


def per_token(solution: ScoredSolution, tokens: int, *, differences: bool = False) -> list[float]:
    """Rewards of the policy's tokens: at each step's last one its score, 0 elsewhere; nothing but 0 for a solution that
    can't be scored.

    `solution`: as scored with `offsets`, those of this many tokens. `differences`: each score less the one before, so
    that the rewards sum to the last score. Raises `ValueError` for a solution that was scored without offsets.
    """
    if solution.last_tokens is None:
        raise ValueError("the solution has no last_tokens: it was scored without `offsets`")
    made, before = [0.0] * tokens, 0.0
    for place, score in zip(solution.last_tokens, solution.step_scores or (), strict=False):  # if unscored, none
        made[place] += score - before
        before = score if differences else 0.0
    return made


async def step_scores(client: AsyncClient, problem: str, solution: str) -> list[float]:
    """The score of each step, in [0, 1]; empty if the solution can't be scored. Raises `ClientError`."""
    try:
        return _rewarded(await client.score_steps(problem, [solution])).step_rewards
    except UNSCORABLE:
        return []


def _rewarded(outcome: ScoreResponse | ClientError) -> Rewarded:
    if isinstance(outcome, UNSCORABLE):
        return Rewarded(None, 0.0, [])
    if isinstance(outcome, ClientError):
        raise outcome
    (solution,) = outcome.solutions
    steps = solution.step_scores or []
    reward = min(steps, default=0.0) if solution.correct is None else solution.combined_reward or 0.0
    return Rewarded(solution.correct, reward, steps)
