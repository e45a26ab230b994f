"""Everything that is kept, by name."""

from tests.golden.kept import Maker
from tests.golden.verdicts import verdicts

GOLDENS: dict[str, Maker] = {
    "verdicts": verdicts,
}
