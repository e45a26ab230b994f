"""Rewards for programs that train with RL: the lowest step score of each solution."""

import asyncio
from collections.abc import Sequence
from functools import cache

from unprm.wire import ScoreResponse
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


def rewards(client: Client, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]) -> list[float]:
    """The lowest step score of each solution, a text or its steps, to the problem at its place, in [0, 1]; 0 for one
    that can't be scored (blank, too long, too many steps, not judged). Raises the first other `ClientError`, and
    `ValueError` for unequal lengths."""
    requests = [
        {"problem": problem, "solutions": [solution]} for problem, solution in zip(problems, solutions, strict=True)
    ]
    return [min(_scores(outcome), default=0.0) for outcome in client.score_all(requests, concurrency=AT_A_TIME)]


async def step_scores(client: AsyncClient, problem: str, solution: str) -> list[float]:
    """The score of each step, in [0, 1]; empty if the solution can't be scored. Raises `ClientError`."""
    try:
        return _scores(await client.score_steps(problem, [solution]))
    except UNSCORABLE:
        return []


def _scores(outcome: ScoreResponse | ClientError) -> list[float]:
    if isinstance(outcome, UNSCORABLE):
        return []
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome.solutions[0].step_scores or []
