"""Reading texts and comparing answers for many callers at once."""

import asyncio
import time

from server.lease import Admission, Lease
from server.observe import Metrics
from server.scoring import RequestScorer
from server.service import Service
from server.settings import Settings
from unprm.answers.equivalence import Begun, Comparison, Equivalence
from unprm.pipeline import Compare, Work


class Recorded(Equivalence):
    """Compares in the shortest slices, and remembers whose answers were compared in each."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[str] = []

    def advance(self, begun: Begun, seconds: float) -> None:
        super().advance(begun, 0.0)
        self.slices.append(begun.answers[0])


def test_callers_answers_are_compared_in_turn() -> None:
    much = [f"\\sin({number}x)" for number in range(20)]
    recorded = Recorded()

    async def compare() -> tuple[list[int], list[int]]:
        service = Service(Settings(), {}, lambda: None, Metrics())
        service.admission, service.equivalence = Admission(1, threads=1), recorded
        try:
            many, few = await asyncio.gather(
                _scorer(service, "a").finish(_compare(much)),
                _scorer(service, "b").finish(_compare(["1/2", "0.5"])),
            )
        finally:
            await service.stop()
        return many.classes, few.classes

    assert asyncio.run(compare()) == (list(range(20)), [0, 0])
    assert recorded.slices.count("1/2") == 2
    assert max(at for at, first in enumerate(recorded.slices) if first == "1/2") < 6


def test_texts_are_read_in_turns_until_their_caller_leaves() -> None:
    read: list[str] = []

    def reading(caller: str, texts: int) -> Work[int]:
        for _ in range(texts):
            end = time.thread_time() + 0.03
            while time.thread_time() < end:
                pass
            read.append(caller)
            yield None
        return texts

    async def run() -> None:
        service = Service(Settings(), {}, lambda: None, Metrics())
        service.admission = Admission(1, threads=1)
        scorers = {name: _scorer(service, name) for name in ("much", "little")}
        for scorer in scorers.values():
            scorer.lease.size = 10**6
        try:
            much = asyncio.ensure_future(scorers["much"].finish(reading("much", 500)))
            assert await scorers["little"].finish(reading("little", 3)) == 3
            much.cancel()
            await asyncio.wait([much])
            left = len(read)
            await asyncio.sleep(0.2)
            assert len(read) <= left + 1, "nobody waits for it"
        finally:
            await service.stop()

    asyncio.run(run())
    assert read.count("little") == 3
    assert read.count("much") < 12


def _compare(answers: list[str]) -> Work[Comparison]:
    comparison: Comparison = yield Compare(answers)
    return comparison


def _scorer(service: Service, caller: str) -> RequestScorer:
    return RequestScorer(service, (), Lease(service.admission, share=caller))
