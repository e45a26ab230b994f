"""Rewards for programs that train with RL: a solution's lowest step score, or what a right answer makes of the
scores."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from unprm.wire import ScoredSolution, ScoreResponse
from unprm_client._client import AsyncClient, Client
from unprm_client.errors import BlankSolution, ClientError, NoVerdict, SolutionTooLong, TooManySteps

AT_A_TIME = 64
"""Solutions in a request, few enough for its time limit; the server reads a problem once for all its solutions."""
UNSCORABLE = (BlankSolution, SolutionTooLong, TooManySteps, NoVerdict)


shared_client = cache(Client)
"""A client for all threads; the same at each call."""


@cache
def _client_of(loop: asyncio.AbstractEventLoop) -> AsyncClient:
    return AsyncClient()


def loop_client() -> AsyncClient:
    """A client for the running event loop, to which its connections belong; the same at each call."""
    return _client_of(asyncio.get_running_loop())


class Rewarded(NamedTuple):
    """What a solution is worth. `correct`: None without a right answer; `step_rewards`: in [0, 1], none if unscored."""

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
    return [solution.reward for solution in rewarded(client, problems, solutions, golds, **terms)]


def rewarded(
    client: Client,
    problems: Sequence[str],
    solutions: Sequence[str | Sequence[str]],
    golds: Sequence[str | Sequence[str]] | None = None,
    **terms: Any,
) -> list[Rewarded]:
    """As `rewards`, with what they are made of. `terms`: other fields of the requests."""
    # a blank text, or blank steps, are a blank text
    written = [solution if "".join(solution).strip() else "" for solution in solutions]
    lists: dict[str, list[Any]] = {"problems": list(problems), "solutions": written}
    if golds is not None:
        lists["golds"] = list(golds)
    if len(set(map(len, lists.values()))) > 1:
        raise ValueError(f"expected equal lengths, got {', '.join(f'{len(v)} {name}' for name, v in lists.items())}")
    requests = [{name: v[part] for name, v in lists.items()} | terms for part in _parts(lists["problems"])]
    outcomes = client.score_all(requests, concurrency=2)
    return [
        solution
        for request, outcome in zip(requests, outcomes, strict=True)
        for solution in _rewarded(outcome, len(request["solutions"]))
    ]


def _parts(problems: list[str]) -> Iterator[slice]:
    """Parts of at most `AT_A_TIME`. Of a problem's solutions that follow each other all are in one, if they fit."""
    start = 0
    while start < len(problems):
        most = min(start + AT_A_TIME, len(problems))
        whole = (end for end in range(most, start, -1) if problems[end - 1 : end] != problems[end : end + 1])
        end = next(whole, most)
        yield slice(start, end)
        start = end


def token_offsets(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[tuple[int, int]]:
    """The place of each token in the text of `ids`, for `offsets`, by a call of `decode` for each token."""
    ends = [len(decode(ids[:count])) for count in range(len(ids) + 1)]
    # part of a character may decode to more than the whole
    return list(pairwise([*accumulate(reversed(ends), min)][::-1]))


def solution_of_tokens(ids: Sequence[int], tokenizer: Any) -> dict[str, Any]:
    """A solution for a request, with `offsets`, from its token ids. `tokenizer`: transformers'."""

    def decode(some: Sequence[int]) -> str:
        return str(tokenizer.decode(some, skip_special_tokens=True))

    return {"text": decode(ids), "offsets": token_offsets(ids, decode)}


def per_token(solution: ScoredSolution, tokens: int, *, differences: bool = False) -> list[float]:
    """Rewards of the policy's tokens: at each step's last token its score, 0 elsewhere, and without scores.

    `solution`: scored with `offsets` of this many tokens, else raises `ValueError`. `differences`: each score less the
    one before, so that rewards sum to the last score.
    """
    if solution.last_tokens is None:
        raise ValueError("the solution has no last_tokens: it was scored without `offsets`")
    made, before = [0.0] * tokens, 0.0
    for place, score in zip(solution.last_tokens, solution.step_scores or (), strict=False):  # if unscored, none
        if score is not None:
            made[place] += score - before
            before = score if differences else 0.0
    return made


def process_advantages(group: Sequence[ScoredSolution], tokens: int) -> list[list[float]]:
    """GRPO's advantages with process supervision (DeepSeekMath, arXiv:2402.03300, section 4.1.3): for each token the
    sum of the scores, normalized over the group, of steps that end there or later; [solutions, tokens]."""
    scores = [score for solution in group for score in solution.step_scores or () if score is not None]
    mean, spread = (fmean(scores), pstdev(scores)) if scores else (0.0, 0.0)
    made = []
    for solution in group:
        steps = solution.step_scores or ()
        normalized = [None if score is None else (score - mean) / (spread + 1e-4) for score in steps]
        rewards = per_token(solution.model_copy(update={"step_scores": normalized}), tokens)
        made.append([*accumulate(reversed(rewards))][::-1])
    return made


def problem_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of a chat's last message of a user. Raises `ValueError` if there is none."""
    problems = [str(message["content"]) for message in messages if message["role"] == "user"]
    if not problems:
        raise ValueError("the prompt has no message of a user, which would be the problem")
    return problems[-1].strip()


async def step_scores(client: AsyncClient, problem: str, solution: str) -> list[float]:
    """The score of each step, in [0, 1]; empty if the solution can't be scored. Raises `ClientError`."""
    try:
        return _rewarded(await client.score_steps(problem, [solution]), 1)[0].step_rewards
    except UNSCORABLE:
        return []


def _rewarded(outcome: ScoreResponse | ClientError, count: int) -> list[Rewarded]:
    if isinstance(outcome, UNSCORABLE):  # none of them can be scored
        return [Rewarded(None, 0.0, [])] * count
    if isinstance(outcome, ClientError):
        raise outcome
    made = list[Rewarded]()
    for solution in outcome.solutions:
        checked = solution.reward is None  # then there are marks of equations at most
        steps = [] if checked else [score for score in solution.step_scores or () if score is not None]
        reward = min(steps, default=0.0) if solution.correct is None else solution.combined_reward or 0.0
        made.append(Rewarded(solution.correct, reward, steps))
    return made
