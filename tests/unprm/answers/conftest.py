"""One comparison for all tests that only compare answers."""

import pytest

from unprm.answers.equivalence import Equivalence


@pytest.fixture(scope="session")
def answers():
    equivalence = Equivalence(deadline=30)
    yield equivalence
    assert equivalence.stats.failures == 0  # what an error settles is settled by chance
