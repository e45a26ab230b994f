"""A cache of an engine's step scores, keyed by their scope and all tokens that they depend on."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

from unprm.types import Encoded


class ScoreCache:
    """Scores of one model, at most `entries`, the least recently used evicted first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._scores: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._scores)

    def find(self, item: Encoded) -> list[float | None]:
        """The score of each position, None where it is not known."""
        keys = _keys(item)
        for key in filter(self._scores.__contains__, keys):
            self._scores.move_to_end(key)
        return list(map(self._scores.get, keys))

    def keep(self, item: Encoded, scores: Sequence[float]) -> None:
        for key, score in zip(_keys(item), scores, strict=True):
            self._scores[key] = score
            self._scores.move_to_end(key)
        while len(self._scores) > self._entries:
            self._scores.popitem(last=False)


def _keys(item: Encoded) -> list[bytes]:
    """A digest of the scope and the tokens up to each position; SHA-256, so that collisions can't be constructed."""
    digest, done, keys = hashlib.sha256(hashlib.sha256(item.scope.encode()).digest()), 0, []
    for position in item.positions:
        digest.update(array("q", item.ids[done : position + 1]).tobytes())
        done = position + 1
        keys.append(digest.digest())
    return keys
