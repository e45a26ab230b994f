"""Everything that is kept, by name."""

from tests.golden.document import document
from tests.golden.families import inputs
from tests.golden.formats import formats
from tests.golden.kept import Maker
from tests.golden.trained import trained
from tests.golden.usage import usage
from tests.golden.verdicts import verdicts
from tests.golden.votes import votes

GOLDENS: dict[str, Maker] = {
    "document": document,
    "families": inputs,
    "formats": formats,
    "trained": trained,
    "usage": usage,
    "verdicts": verdicts,
    "votes": votes,
}
