"""Comparing answers for many callers at once."""

import asyncio

import pytest

from server import service
from server.admission import Claims, Context
from server.observe import Metrics
from server.settings import Settings
from unprm.answers.equivalence import Begun, Equivalence
from unprm.types import Solution


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
    much = [Solution((), f"\\sin({number}x)") for number in range(20)]
    little = [Solution((), answer) for answer in ("1/2", "0.5", None)]
    verbatim = [Solution((), answer, verbatim=True) for answer in ("0.5", "1/2", "0.5")]
    recorded = Recorded()

    async def compare() -> tuple[list[int | None], list[int | None]]:
        made = service.Service(Settings(), {}, lambda: None, Metrics())
        made._equivalence = recorded
        try:
            (many, _), (few, _) = await asyncio.gather(
                made.classes(much, Context("1", 0.0, Claims(made.admission, "a"))),
                made.classes([*little, *verbatim], Context("2", 0.0, Claims(made.admission, "b"))),
            )
        finally:
            await made.stop()
        return many, few

    assert asyncio.run(compare()) == (list(range(20)), [0, 0, None, 9, 10, 9])
    assert recorded.slices.count("1/2") == 2
    assert max(at for at, first in enumerate(recorded.slices) if first == "1/2") < 6
