"""A cache of answer keys."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection

from unprm.answers.mathtext.keys import AnswerKey


class KeyCache:
    """Keys by the digests of their scopes and answers, at most `size`, the least recently used evicted first. A scope
    has at most 64 bytes. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: OrderedDict[bytes, AnswerKey] = OrderedDict()
        self._lock = threading.Lock()

    def get_all(self, answers: Collection[str], scope: str) -> dict[str, AnswerKey]:
        """The cached keys of these answers."""
        digests = {answer: _digest(answer, scope) for answer in answers}
        with self._lock:
            found = {answer: self._keys[digest] for answer, digest in digests.items() if digest in self._keys}
            for answer in found:
                self._keys.move_to_end(digests[answer])
        return found

    def put(self, answer: str, key: AnswerKey, scope: str) -> AnswerKey:
        """Stores a key and returns it."""
        digest = _digest(answer, scope)
        with self._lock:
            self._keys[digest] = key
            while len(self._keys) > self._size:
                self._keys.popitem(last=False)
        return key


def _digest(answer: str, scope: str) -> bytes:
    return hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=16, key=scope.encode()).digest()
