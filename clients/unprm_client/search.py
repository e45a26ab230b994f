"""Step-by-step search guided by the PRM: beam search, DVTS, and backing up from wrong steps.

A reasoner proposes next steps, the server scores the extended paths (earlier steps are in its prefix cache), the best
go on, and a vote elects among those that ended. In beam search all paths compete; DVTS (Beeching et al., 2024,
"Scaling test-time compute") keeps independent subtrees, each following its own best path, for variety.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

from unprm.openai_api import APIConnectionError, APIError, APIStatusError, OpenAIClient
from unprm.types import DEFAULT_STRATEGY, Strategy
from unprm.wire import VoteResponse
from unprm_client.aio import AsyncClient
from unprm_client.errors import ConnectionFailed, UnexpectedResponse
from unprm_client.track import Track


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed next step; `ends`: the solution ends with it; `tokens`: tokens it took."""

    text: str
    ends: bool
    tokens: int


class Reasoner(Protocol):
    """A language model that continues solutions."""

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        """`count` proposals for the step after these."""
        ...


@dataclass(frozen=True, slots=True)
class Path:
    """A complete or partial solution; `rewards` are the PRM's scores of its steps."""

    steps: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    ended: bool = False

    @property
    def reward(self) -> float:
        """The lowest step score; 1 without steps."""
        return min(self.rewards, default=1.0)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: the vote, the `paths` it was taken on (those that ended; if none did, the unfinished
    ones), `tokens` that the reasoner wrote, and `computed_tokens` of the PRM."""

    vote: VoteResponse
    paths: list[Path]
    tokens: int
    computed_tokens: int

    @property
    def solution(self) -> Path:
        """The path that represents the elected answer."""
        return self.paths[self.vote.solution_index]


class SearchOptions(TypedDict, total=False):
    """Of both searches.

    `expand`: continuations that are proposed for each path. `max_steps`: most steps of a path. `strategy`: the final
    vote. `seed`: of the reasoner; no two of its calls get the same one.
    """

    expand: int
    max_steps: int
    strategy: Strategy
    seed: int


async def beam_search(
    client: AsyncClient, reasoner: Reasoner, problem: str, *, width: int = 4, **options: Unpack[SearchOptions]
) -> Found:
    """Continues the best `width` of `width` × `expand` continuations at each step, until `width` paths have ended.

    Raises a `ClientError`; `NoAnswer` if no path has an answer.
    """
    return await _search(client, reasoner, problem, groups=1, width=width, **options)


async def dvts(
    client: AsyncClient, reasoner: Reasoner, problem: str, *, subtrees: int = 4, **options: Unpack[SearchOptions]
) -> Found:
    """Follows the best of `expand` continuations in each of `subtrees`, until it ends. Raises as `beam_search`."""
    return await _search(client, reasoner, problem, groups=subtrees, width=1, **options)


async def backtrack(
    client: AsyncClient,
    reasoner: Reasoner,
    problem: str,
    *,
    solutions: int = 4,
    retries: int = 8,
    max_steps: int = 32,
    strategy: Strategy = DEFAULT_STRATEGY,
    seed: int = 0,
) -> Found:
    """Writes several solutions that don't compete, each step by step: a step below the threshold is written again, at
    most `retries` times in a solution, which then goes on whatever its scores. Other arguments as in `SearchOptions`;
    raises as `beam_search`."""
    seeds = itertools.count(seed, 1000)

    async def write() -> tuple[Path, int, int]:
        track, path, left, tokens, computed = Track(client, problem), Path(), retries, 0, 0
        while not path.ended and len(track.steps) < max_steps:
            (proposal,) = await reasoner.propose(problem, track.steps, 1, next(seeds))
            tokens += proposal.tokens
            if not proposal.text.strip():
                break
            found = await track.append(proposal.text)
            computed += found.computed_tokens
            if found.advice == "back_up" and left:
                left -= 1
                track.back_up(found.keep)
            else:
                path = Path(track.steps, found.scores, proposal.ends)
        return path, tokens, computed

    written = await asyncio.gather(*(write() for _ in range(solutions)))
    paths = [path for path, _, _ in written if path.ended] or [path for path, _, _ in written if path.steps]
    tokens, computed = sum(count for _, count, _ in written), sum(count for _, _, count in written)
    return await _elect(client, strategy, problem, paths, tokens, computed)


async def _search(
    client: AsyncClient,
    reasoner: Reasoner,
    problem: str,
    *,
    groups: int,
    width: int,
    expand: int = 4,
    max_steps: int = 32,
    strategy: Strategy = DEFAULT_STRATEGY,
    seed: int = 0,
) -> Found:
    """Searches with groups of `width` paths; paths compete only within their group."""
    alive = [[Path()] * width for _ in range(groups)]
    ended: list[list[Path]] = [[] for _ in range(groups)]
    tokens = computed = 0
    seeds = itertools.count(seed, 1000)
    for _ in range(max_steps):
        growing = [(group, path) for group, paths in enumerate(alive) for path in paths]
        proposed = await asyncio.gather(
            *(reasoner.propose(problem, path.steps, expand, next(seeds)) for _, path in growing)
        )
        tokens += sum(proposal.tokens for proposals in proposed for proposal in proposals)
        grown = [
            (group, (*path.steps, proposal.text), proposal.ends)
            for (group, path), proposals in zip(growing, proposed, strict=True)
            for proposal in proposals
            if proposal.text.strip()
        ]
        if not grown:
            break
        scored = await client.score_steps(problem, [steps for _, steps, _ in grown])
        computed += scored.usage.computed_tokens
        alive = [[] for _ in range(groups)]
        for (group, steps, ends), solution in zip(grown, scored.solutions, strict=True):
            if solution.step_scores is not None:  # a path that is too long for the PRM is dropped
                alive[group].append(Path(steps, tuple(solution.step_scores), ends))
        for group, paths in enumerate(alive):
            best = _best(paths, width - len(ended[group]))
            ended[group] += [path for path in best if path.ended]
            alive[group] = [path for path in best if not path.ended]
    paths = list(itertools.chain(*ended)) or [path for path in itertools.chain(*alive) if path.steps]
    return await _elect(client, strategy, problem, paths, tokens, computed)


async def _elect(
    client: AsyncClient, strategy: Strategy, problem: str, paths: list[Path], tokens: int, computed: int
) -> Found:
    if not paths:
        raise UnexpectedResponse(200, "the reasoner proposed no step")
    solutions = [{"steps": path.steps, "step_scores": path.rewards} for path in paths]
    vote = await client.vote(strategy, problem, solutions)
    return Found(vote, paths, tokens, computed)


def _best(paths: Sequence[Path], count: int) -> list[Path]:
    """Those with the highest rewards. Equal paths count once: otherwise they would fill the beam."""
    distinct = {path.steps: path for path in paths}.values()
    return sorted(distinct, key=lambda path: path.reward, reverse=True)[:count]


class ChatReasoner:
    """A reasoner behind an OpenAI chat API that can continue a message, as vLLM's can; `/v1` in its address may be left
    out. `separator` ends a step: a blank line, or a line break for models that write one step per line. `options` are
    sent with each request (temperature and the like); `instruction` precedes the problem."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        separator: str = "\n\n",
        instruction: str = "",
        options: Mapping[str, Any] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self._model, self._separator, self._instruction = model, separator, instruction
        self._options = {"temperature": 0.8, "max_tokens": 512, **(options or {})}
        self._client = OpenAIClient([url], api_key, timeout=timeout)

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        """Raises `ConnectionFailed` or `UnexpectedResponse`."""
        content = f"{self._instruction}\n\n{problem}" if self._instruction else problem
        messages = [{"role": "user", "content": content}]
        body: dict[str, Any] = {**self._options, "model": self._model, "messages": messages, "n": count, "seed": seed}
        body["stop"] = [self._separator]
        if steps:
            written = self._separator.join(steps) + self._separator
            messages.append({"role": "assistant", "content": written})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        try:
            return _proposals(await self._client.post("/chat/completions", body))
        except APIConnectionError as error:
            raise ConnectionFailed(f"the reasoner: {error.reason}") from error
        except APIStatusError as error:
            raise UnexpectedResponse(error.status, "the reasoner refused to go on") from error
        except (APIError, ValueError, KeyError, TypeError, ArithmeticError):
            raise UnexpectedResponse(200, "the reasoner's answer is no chat completion with usage") from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


def _proposals(completion: Any) -> list[Proposal]:
    """The choices of a chat completion, which share its tokens evenly."""
    choices, usage = completion["choices"], completion["usage"]["completion_tokens"]
    each, more = divmod(int(usage), len(choices))
    return [
        # a completion that stopped for a reason other than the separator ends the solution
        Proposal(choice["message"]["content"] or "", choice.get("stop_reason") is None, each + (number < more))
        for number, choice in enumerate(choices)
    ]
