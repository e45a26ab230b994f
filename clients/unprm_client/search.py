"""Solutions grown step by step under the eyes of the PRM: beam search and DVTS.

A reasoner proposes next steps, the server scores the paths that grew (what was scored before is in its prefix cache),
the best go on, and a vote elects among those that came to an end. Beam search lets all paths compete; DVTS (Beeching
et al., 2024, "Scaling test-time compute") keeps independent subtrees, of which each follows its own best, for variety.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any, Protocol

import httpx

from unprm.types import Strategy
from unprm.wire import VoteResponse
from unprm_client.aio import AsyncClient
from unprm_client.errors import ClientError, ConnectionFailed, UnexpectedResponse


@dataclass(frozen=True, slots=True)
class Proposal:
    """A next step; `ends`: the solution ends with it. `tokens`: what it took."""

    text: str
    ends: bool
    tokens: int


class Reasoner(Protocol):
    """Continues solutions: a language model."""

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        """`count` next steps after these."""
        ...


@dataclass(frozen=True, slots=True)
class Path:
    """A solution or its beginning; `rewards` are the PRM's scores of its steps."""

    steps: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    ended: bool = False

    @property
    def reward(self) -> float:
        """The lowest score of a step; 1 before the first."""
        return min(self.rewards, default=1.0)


@dataclass(slots=True)
class Found:
    """What a search came to: the vote on the paths, `paths` that it was taken on (those that ended, else those that did
    not), `tokens` that the reasoner wrote, and `computed_tokens` of the PRM."""

    vote: VoteResponse
    paths: list[Path] = field(default_factory=list)
    tokens: int = 0
    computed_tokens: int = 0

    @property
    def solution(self) -> Path:
        """That stands for the elected answer."""
        return self.paths[self.vote.solution_index]


async def beam_search(
    client: AsyncClient,
    reasoner: Reasoner,
    problem: str,
    *,
    width: int = 4,
    expand: int = 4,
    max_steps: int = 32,
    strategy: Strategy = "wrf",
    seed: int = 0,
) -> Found:
    """Of `width` × `expand` continuations the best `width` go on, until as many have ended.

    Raises a `ClientError`; `NoAnswer` where no path has an answer.
    """
    return await _search(client, reasoner, problem, 1, width, expand, max_steps, strategy, seed)


async def dvts(
    client: AsyncClient,
    reasoner: Reasoner,
    problem: str,
    *,
    subtrees: int = 4,
    expand: int = 4,
    max_steps: int = 32,
    strategy: Strategy = "wrf",
    seed: int = 0,
) -> Found:
    """In each of `subtrees` the best of `expand` continuations goes on until it ends. Raises as `beam_search`."""
    return await _search(client, reasoner, problem, subtrees, 1, expand, max_steps, strategy, seed)


async def _search(
    client: AsyncClient,
    reasoner: Reasoner,
    problem: str,
    groups: int,
    width: int,
    expand: int,
    max_steps: int,
    strategy: Strategy,
    seed: int,
) -> Found:
    """Groups of `width` paths; those of a group compete with one another alone."""
    alive = [[Path()] * width for _ in range(groups)]
    ended: list[list[Path]] = [[] for _ in range(groups)]
    tokens = computed = 0
    numbers = counting()  # no two calls have the same seeds
    for _ in range(max_steps):
        growing = [(group, path) for group, paths in enumerate(alive) for path in paths]
        if not growing:
            break
        proposed = await asyncio.gather(
            *(reasoner.propose(problem, path.steps, expand, seed + 1000 * next(numbers)) for _, path in growing)
        )
        tokens += sum(proposal.tokens for proposals in proposed for proposal in proposals)
        grown = [
            (group, path, proposal)
            for (group, path), proposals in zip(growing, proposed, strict=True)
            for proposal in proposals
            if proposal.text.strip()
        ]
        if not grown:
            break
        scored = await client.score_steps(problem, [[*path.steps, proposal.text] for _, path, proposal in grown])
        computed += scored.usage.computed_tokens
        alive = [[] for _ in range(groups)]
        for (group, path, proposal), solution in zip(grown, scored.solutions, strict=True):
            if solution.step_scores is not None:  # what has grown too long for the PRM goes no further
                steps = (*path.steps, proposal.text)
                alive[group].append(Path(steps, tuple(solution.step_scores), proposal.ends))
        for group, paths in enumerate(alive):
            # equal paths go on once: they would fill the beam with one idea
            distinct = {path.steps: path for path in paths}.values()
            best = sorted(distinct, key=lambda path: path.reward, reverse=True)[: width - len(ended[group])]
            ended[group] += [path for path in best if path.ended]
            alive[group] = [path for path in best if not path.ended]
    paths = [path for group in ended for path in group]
    paths = paths or [path for group in alive for path in group if path.steps]
    if not paths:
        raise UnexpectedResponse(200, "the reasoner proposed no step")
    solutions = [{"steps": path.steps, "step_scores": path.rewards} for path in paths]
    vote = await client.vote(strategy, problem, solutions)
    return Found(vote, paths, tokens, computed)


class ChatReasoner:
    """A reasoner behind OpenAI's chat API that can continue a message, as vLLM's can; `/v1` of its address may be left
    out. `separator` ends a step: a blank line, or for models that write a step a line, a line break. `options` go along
    with each request (temperature and the like); `instruction` stands before the problem."""

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
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        address = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._http = httpx.AsyncClient(base_url=address, headers=headers, timeout=timeout)

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
            response = await self._http.post("/chat/completions", json=body)
        except httpx.HTTPError as error:
            raise ConnectionFailed(f"the reasoner: {type(error).__name__}") from error
        if response.status_code != 200:
            raise UnexpectedResponse(response.status_code, "the reasoner refused to go on")
        return _proposals(response)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


def _proposals(response: httpx.Response) -> list[Proposal]:
    try:
        completion = response.json()
        choices, usage = completion["choices"], completion["usage"]["completion_tokens"]
        each, more = divmod(usage, len(choices))
        return [
            # a completion that stopped for another reason than the separator ends the solution
            Proposal(choice["message"]["content"] or "", choice.get("stop_reason") is None, each + (number < more))
            for number, choice in enumerate(choices)
        ]
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise _unlike() from None


def _unlike() -> ClientError:
    return UnexpectedResponse(200, "the reasoner's answer is no chat completion with usage")
