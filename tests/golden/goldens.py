"""Everything that is kept, by name."""

from tests.golden.kept import Maker
from tests.golden.verdicts import verdicts
from tests.golden.votes import votes

GOLDENS: dict[str, Maker] = {
    "verdicts": verdicts,
    "votes": votes,
}
