"""PRM-guided search over steps, against best-of-N with the same number of generated tokens."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import httpx

from benchmarks import servers
from benchmarks.gateway import SEED, Answers, correct, gain
from benchmarks.timing import Comparison
from training.data.questions import Question, make_mini
from unprm import mini
from unprm.steps import join
from unprm_client import AsyncClient
from unprm_client.search import ChatReasoner, Found, backtrack, beam_search, dvts

QUESTIONS, WIDTH, EXPAND, MOST, CONCURRENCY = 100, 4, 4, 20, 24
"""`MOST` candidates are sampled; best-of-N uses as many of them as the search's tokens would pay for."""
LINE = "\n"
"""Separator between the embedded reasoner's steps."""
Search = Callable[[AsyncClient, ChatReasoner, str], Awaitable[Found]]


async def _beams(client: AsyncClient, reasoner: ChatReasoner, problem: str) -> Found:
    return await beam_search(client, reasoner, problem, width=WIDTH, expand=EXPAND)


async def _trees(client: AsyncClient, reasoner: ChatReasoner, problem: str) -> Found:
    return await dvts(client, reasoner, problem, subtrees=WIDTH, expand=EXPAND)


async def _retries(client: AsyncClient, reasoner: ChatReasoner, problem: str) -> Found:
    return await backtrack(client, reasoner, problem, solutions=WIDTH)


SEARCHES: dict[str, Search] = {
    f"beam search, {WIDTH} × {EXPAND}": _beams,
    f"DVTS, {WIDTH} subtrees × {EXPAND}": _trees,
    f"{WIDTH} solutions with backing up": _retries,
}


def run() -> list[Comparison]:
    """Runs held-out questions of the embedded model's domain; best-of-N votes by WRF."""
    os.environ["OMP_NUM_THREADS"] = "1"  # otherwise the threads of the two models would block each other
    questions = make_mini(QUESTIONS, SEED)
    with (
        servers.python("/health", "-m", "benchmarks.reasoner") as (upstream, _),
        servers.unprm() as (url, _),
    ):
        return asyncio.run(_run(questions, upstream, url))


async def _run(questions: Sequence[Question], upstream: str, url: str) -> list[Comparison]:
    rows = []
    places = asyncio.Semaphore(CONCURRENCY)
    reasoner = ChatReasoner(upstream, mini.NAME, separator=LINE, options={"max_tokens": 256})
    async with AsyncClient(url) as client, httpx.AsyncClient(base_url=upstream, timeout=600) as http:

        async def sampled(question: Question) -> tuple[list[str], int]:
            async with places:
                return await _candidates(http, question.problem)

        candidates = await asyncio.gather(*map(sampled, questions))
        each = sum(tokens for _, tokens in candidates) / (MOST * len(questions))
        for name, search in SEARCHES.items():

            async def searched(question: Question, search: Search = search) -> Found:
                async with places:
                    return await search(client, reasoner, question.problem)

            found = await asyncio.gather(*map(searched, questions))
            tokens = sum(result.tokens for result in found)
            ours = Answers(correct([join(result.solution.steps) for result in found], questions), tokens)
            count = max(1, min(MOST, round(tokens / len(questions) / each)))
            best = [
                await _best(client, question, texts[:count])
                for question, (texts, _) in zip(questions, candidates, strict=True)
            ]
            theirs = Answers(correct(best, questions), round(count * each * len(questions)))
            description = f"{name}, {tokens / len(questions):.0f} tokens a question"
            rows.append(gain(description, ours, f"WRF among {count} whole solutions", theirs))
    await reasoner.close()
    return rows


async def _candidates(http: httpx.AsyncClient, problem: str) -> tuple[list[str], int]:
    body = {"model": mini.NAME, "messages": [{"role": "user", "content": problem}], "n": MOST, "seed": 0}
    reply = (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()
    return [choice["message"]["content"] for choice in reply["choices"]], reply["usage"]["completion_tokens"]


async def _best(client: AsyncClient, question: Question, texts: Sequence[str]) -> str:
    vote = await client.vote("wrf", question.problem, texts)
    return texts[vote.solution_index]
