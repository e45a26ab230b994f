"""Comparing answers for many callers at once."""

import asyncio

import pytest

from server import service
from server.admission import Claims, Context
from server.observe import Metrics
from server.settings import Settings
from unprm.answers.equivalence import Begun, Equivalence


class Recorded(Equivalence):
    """Remembers whose answers were compared, slice by slice."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[str] = []

    def advance(self, begun: Begun, seconds: float) -> None:
        super().advance(begun, seconds)
        self.slices.append(begun.answers[0])


def test_callers_answers_are_compared_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_THREADS", 1)
    monkeypatch.setattr(service, "_SLICE", 0.0)
    much = [f"\\sin({number}x)" for number in range(20)]
    recorded = Recorded()

    async def compare() -> tuple[list[int], list[int]]:
        made = service.Service(Settings(), {}, lambda: None, Metrics())
        made._equivalence = recorded
        try:
            many, few = await asyncio.gather(
                made.compare(Context("1", 0.0, Claims(made.admission, "a")), much),
                made.compare(Context("2", 0.0, Claims(made.admission, "b")), ["1/2", "0.5"]),
            )
        finally:
            await made.stop()
        return many.classes, few.classes

    assert asyncio.run(compare()) == (list(range(20)), [0, 0])
    assert recorded.slices.count("1/2") == 2
    assert max(at for at, first in enumerate(recorded.slices) if first == "1/2") < 6
