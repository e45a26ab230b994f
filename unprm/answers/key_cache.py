"""A cache of answer keys."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection

from unprm.answers.mathtext.keys import AnswerKey


class KeyCache:
    """Keys by the digests of their answers, at most `size`, the least recently used evicted first. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: OrderedDict[bytes, AnswerKey] = OrderedDict()
        self._lock = threading.Lock()

    def get_all(self, answers: Collection[str]) -> dict[str, AnswerKey]:
        """The cached keys of these answers."""
        digests = {answer: _digest(answer) for answer in answers}
        with self._lock:
            found = {answer: self._keys[digest] for answer, digest in digests.items() if digest in self._keys}
            for answer in found:
                self._keys.move_to_end(digests[answer])
        return found

    def put(self, answer: str, key: AnswerKey) -> AnswerKey:
        """Stores a key and returns it."""
        digest = _digest(answer)
        with self._lock:
            self._keys[digest] = key
            while len(self._keys) > self._size:
                self._keys.popitem(last=False)
        return key


def _digest(answer: str) -> bytes:
    return hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=16).digest()
