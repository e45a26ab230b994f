"""Solutions that grow step by step: which go on, which are elected, and what is counted."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.openai_server import Request, openai_server
from tests.server.harness import PROBLEM, Running, serving
from unprm.engines.byte_format import TAG
from unprm.engines.fake import FakeEngine
from unprm.types import Encoded
from unprm_client import AsyncClient, errors
from unprm_client.search import ChatReasoner, Found, Proposal, backtrack, beam_search, dvts
from unprm_client.track import Track


def step_scores(item: Encoded) -> list[float]:
    """The score that each step names at its end."""
    ids = item.ids[len(PROBLEM.encode()) + 1 :]
    steps, start = [], 0
    for place, token in enumerate(ids):
        if token == TAG:
            steps.append(bytes(ids[start:place]).decode())
            start = place + 1
    return [float(step.rpartition("@")[2]) for step in steps]


@pytest.fixture(scope="module")
def scoring() -> Iterator[Running]:
    with serving(FakeEngine(scores=step_scores)) as running:
        yield running


class Script:
    """Proposes from a table, by the steps so far; what ends a solution is boxed. `calls`: their prefixes, counts
    and seeds."""

    def __init__(self, table: dict[tuple[str, ...], list[str]]) -> None:
        self._table = table
        self.calls: list[tuple[tuple[str, ...], int, int]] = []

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        self.calls.append((tuple(steps), count, seed))
        texts = self._table.get(tuple(steps), [])
        return [Proposal(text, "boxed" in text, len(text)) for text in texts[:count]]


def search(running: Running, kind: Any, reasoner: Any, **options: Any) -> Found:
    async def run() -> Found:
        async with AsyncClient(running.url) as client:
            found: Found = await kind(client, reasoner, PROBLEM, **options)
            return found

    return asyncio.run(run())


A, B, C = "a @0.9", "b @0.8", "c @0.1"


def box(answer: int, score: float) -> str:
    return f"\\boxed{{{answer}}} @{score}"


TREE = {(): [A, C, B], (A,): [box(1, 0.2), box(2, 0.3)], (B,): [box(3, 0.7), box(4, 0.6)], (C,): [box(5, 1.0)]}


def test_the_best_of_all_go_on(scoring: Running) -> None:
    """By their lowest score: what begins best need not end best. Equal ones go on once."""
    script = Script(TREE)
    found = search(scoring, beam_search, script, width=2, expand=3, strategy="prm")
    assert [steps for steps, _, _ in script.calls] == [(), (), (A,), (B,)]
    assert [path.steps for path in found.paths] == [(B, box(3, 0.7)), (B, box(4, 0.6))]
    assert (found.solution.reward, found.vote.answer) == (0.7, "3")


def test_a_narrow_beam_misses_what_ends_better(scoring: Running) -> None:
    found = search(scoring, beam_search, Script(TREE), width=1, expand=3, strategy="prm")
    assert [path.steps for path in found.paths] == [(A, box(2, 0.3))]


def test_what_ended_keeps_its_place(scoring: Running) -> None:
    """One of three ends at once: two go on, and no more than two take their places."""
    script = Script({(): [box(1, 0.9), A, C], (A,): [box(2, 0.5), box(3, 0.4)], (C,): [B, A]})
    found = search(scoring, beam_search, script, width=3, expand=3, strategy="prm")
    assert [steps for steps, _, _ in script.calls] == [(), (), (), (A,), (C,)]
    assert [path.steps for path in found.paths] == [(box(1, 0.9),), (A, box(2, 0.5)), (A, box(3, 0.4))]


class Seeded:
    """Proposes by the seed alone: subtrees differ."""

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        if steps:
            return [Proposal(box(int(steps[0][1]), 0.5), True, 2)] * count
        good = Proposal(f"s{seed // 1000} @0.{seed // 1000 + 1}", False, 3)
        return [good, *[Proposal("bad @0.01", False, 3)] * (count - 1)]


def test_subtrees_do_not_compete(scoring: Running) -> None:
    found = search(scoring, dvts, Seeded(), subtrees=3, expand=2, strategy="majority")
    assert [path.steps[0] for path in found.paths] == ["s0 @0.1", "s1 @0.2", "s2 @0.3"]
    assert [path.rewards for path in found.paths] == [(0.1, 0.5), (0.2, 0.5), (0.3, 0.5)]
    assert found.tokens == 3 * 2 * 3 + 3 * 2 * 2


class Improving:
    """Proposes, after the same steps, one text after the other. `calls`: the steps of each call."""

    def __init__(self, *texts: str) -> None:
        self._texts = iter(texts)
        self.calls: list[tuple[str, ...]] = []

    async def propose(self, problem: str, steps: Sequence[str], count: int, seed: int) -> list[Proposal]:
        self.calls.append(tuple(steps))
        text = next(self._texts)
        return [Proposal(text, "boxed" in text, 10)] * count


def test_a_wrong_step_is_written_again(scoring: Running) -> None:
    reasoner = Improving(A, C, "c @0.2", B, box(1, 0.3), box(2, 0.6))
    found = search(scoring, backtrack, reasoner, solutions=1)
    assert reasoner.calls == [(), (A,), (A,), (A,), (A, B), (A, B)]
    assert [path.steps for path in found.paths] == [(A, B, box(2, 0.6))]
    assert (found.solution.rewards, found.vote.answer, found.tokens) == ((0.9, 0.8, 0.6), "2", 60)


def test_without_retries_left_a_solution_goes_on(scoring: Running) -> None:
    reasoner = Improving(C, "c @0.2", "c @0.3", box(1, 0.9))
    found = search(scoring, backtrack, reasoner, solutions=1, retries=2)
    assert found.solution.steps == ("c @0.3", box(1, 0.9))
    assert found.solution.rewards == (0.3, 0.9)
    voted = search(scoring, backtrack, Improving(A, box(1, 0.7)), solutions=2, max_steps=1)
    assert [path.steps for path in voted.paths] == [(box(1, 0.7),)]  # what ended goes before what did not


def test_a_track_gives_advice_and_keeps_its_steps_when_a_call_fails(scoring: Running) -> None:
    async def run() -> None:
        async with AsyncClient(scoring.url) as client:
            track = Track(client, PROBLEM, threshold=0.5)
            first = await track.append(A)
            assert (first.advice, first.keep, first.score, first.lowest, first.answer) == ("go_on", 1, 0.9, 0.9, None)
            wrong = await track.append(B, C)
            assert (wrong.advice, wrong.keep, wrong.score, wrong.lowest) == ("back_up", 2, 0.1, 0.1)
            track.back_up(wrong.keep)
            assert track.steps == (A, B)
            with pytest.raises(errors.ClientError, match="blank"):
                await track.append(" ")
            assert track.steps == (A, B)
            done = await track.append(box(7, 0.6))
            assert (done.advice, done.answer, done.scores) == ("stop", "7", (0.9, 0.8, 0.6))

    asyncio.run(run())


def test_seeds_are_all_different(scoring: Running) -> None:
    script = Script(TREE)
    search(scoring, beam_search, script, width=4, expand=3, strategy="prm", seed=7)
    seeds = [seed for _, _, seed in script.calls]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) == 7


def test_without_an_end_the_vote_is_on_what_there_is(scoring: Running) -> None:
    endless = {(A,) * k: [A] for k in range(9)}
    with pytest.raises(errors.NoAnswer):
        search(scoring, beam_search, Script(endless), width=1, expand=1, max_steps=3)
    boxed = {(): ["it is \\boxed{3} so far @0.9"]}

    class Undecided(Script):
        async def propose(self, *arguments: Any) -> list[Proposal]:
            return [Proposal(proposal.text, False, proposal.tokens) for proposal in await super().propose(*arguments)]

    found = search(scoring, beam_search, Undecided(boxed), width=1, expand=1, max_steps=1)
    assert (found.vote.answer, found.paths[0].ended) == ("3", False)


def test_a_reasoner_without_proposals_ends_the_search(scoring: Running) -> None:
    with pytest.raises(errors.UnexpectedResponse, match="proposed no step"):
        search(scoring, beam_search, Script({}), width=1, expand=1)


def chat(answer: Any, statuses: Sequence[int] = (), **options: Any) -> tuple[list[Request], list[list[Proposal]]]:
    async def run(url: str) -> list[list[Proposal]]:
        reasoner = ChatReasoner(f"{url}/v1/", "m", **options)
        try:
            return [await reasoner.propose("P?", steps, 2, 5) for steps in ((), ("one", "two"))]
        finally:
            await reasoner.close()

    with openai_server(lambda body: answer, statuses) as (url, requests):
        return requests, asyncio.run(run(url))


def completion(*choices: tuple[str, str | None], tokens: int = 7) -> dict[str, Any]:
    listed = [
        {"index": k, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "stop_reason": stop}
        for k, (text, stop) in enumerate(choices)
    ]
    return {"choices": listed, "usage": {"completion_tokens": tokens}}


def test_a_chat_is_continued() -> None:
    requests, proposed = chat(
        completion(("three", "\n"), ("four", None)),
        separator="\n",
        instruction="Think.",
        options={"temperature": 0.5, "top_p": 0.9},
        api_key="secret",
    )
    assert proposed == [[Proposal("three", False, 4), Proposal("four", True, 3)]] * 2
    user = {"role": "user", "content": "Think.\n\nP?"}
    common = {"model": "m", "n": 2, "seed": 5, "stop": ["\n"], "top_p": 0.9, "temperature": 0.5, "max_tokens": 512}
    begun = {"role": "assistant", "content": "one\ntwo\n"}
    more = {"add_generation_prompt": False, "continue_final_message": True}
    assert [request.body for request in requests] == [
        common | {"messages": [user]},
        common | more | {"messages": [user, begun]},
    ]
    assert {request.path for request in requests} == {"/v1/chat/completions"}
    assert {request.authorization for request in requests} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("answer", "statuses", "status"),
    [
        ({}, [400], 400),
        (b"<html>", [], 200),
        ({"choices": []}, [], 200),
        (completion(), [], 200),
        (b'{"choices": [{"message": {"content": "x"}}], "usage": {"completion_tokens": 1e999}}', [], 200),
        (rb'{"choices": [{"message": {"content": "\ud800"}}], "usage": {"completion_tokens": 1}}', [], 200),
    ],
)
def test_a_reasoner_that_fails_is_told(answer: Any, statuses: Sequence[int], status: int) -> None:
    with pytest.raises(errors.UnexpectedResponse, match="the reasoner") as caught:
        chat(answer, statuses)
    assert caught.value.status == status


def test_a_reasoner_that_can_t_be_reached_is_told() -> None:
    async def run() -> None:
        reasoner = ChatReasoner("http://127.0.0.1:9", "m")
        try:
            await reasoner.propose("P?", (), 1, 0)
        finally:
            await reasoner.close()

    with pytest.raises(errors.ConnectionFailed, match="the reasoner: ConnectError"):
        asyncio.run(run())
