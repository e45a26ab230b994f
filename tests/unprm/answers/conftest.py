"""One set of workers for all tests that only compare answers."""

import pytest

from unprm.answers.equivalence import Equivalence


@pytest.fixture(scope="session")
def answers():
    with Equivalence(deadline=30) as equivalence:
        equivalence.start()
        yield equivalence
        assert equivalence.stats.failures == 0  # what an error settles is settled by chance
