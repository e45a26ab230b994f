"""An engine whose weights another program runs, compared with itself."""

import pytest

from tests.fake_engine import FakeEngine, hashed
from unprm.engines.consistency import check_consistency
from unprm.types import StepScores


def test_an_engine_that_runs_elsewhere_is_held_against_itself():
    found = check_consistency(FakeEngine())
    assert (found.difference, found.cached) == (0, False)

    class Mixing(FakeEngine):
        """Gives the scores of a batch in another order."""

        def score(self, batch):
            return super().score(batch)[::-1]

    found = check_consistency(Mixing())
    assert found.difference > found.tolerance

    class Forgetful(FakeEngine):
        """Scores a step by its own text, and runs what it has not seen."""

        def score(self, batch):
            return [StepScores(tuple(item.ids[start] / 256 for start in item.positions), 1) for item in batch]

    assert check_consistency(Forgetful()).cached
    with pytest.raises(ValueError, match=r"solutions of \[3, 2, 3\] steps have \[2, 1, 2\] scores"):
        check_consistency(FakeEngine(scores=lambda item: hashed(item)[1:]))
