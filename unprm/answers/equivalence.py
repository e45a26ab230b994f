"""Classes of equal answers.

Each answer has a key that depends only on the answer, and two answers are equal if their keys are (or if one lacks the
unit of the other, see below): so the relation is reflexive, symmetric and transitive by construction, and the classes
don't depend on earlier calls, and on the order of the answers only among equally large classes. What it costs to
compute a key is bounded; what would cost more is compared as it is written.

docs/answers.md lists the conventions, where mathematics leaves a choice: when in doubt, answers are different.
"""

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from unprm.answers.canonical import canonical
from unprm.answers.mathtext.keys import AnswerKey, answer_key, text_key
from unprm.answers.tables import pattern


@dataclass(frozen=True, slots=True)
class EquivalenceStats:
    """Counts of answers since the start."""

    compared: int = 0  # distinct texts per call, summed over all calls
    cached: int = 0  # keys found in the cache
    late: int = 0  # not done by the deadline, so compared as text in that call
    failures: int = 0  # comparing them raised an error, so they were compared as text


class Comparison(NamedTuple):
    """`classes[i]`: the class of answer i, numbered from 0 by first appearance. `as_text`: indices of the answers that
    could not be compared as mathematics, because of an error or for lack of time."""

    classes: list[int]
    as_text: tuple[int, ...] = ()


class Pair(NamedTuple):
    """An answer, and the right ones, at least one."""

    answer: str
    gold: Sequence[str]


class Match(NamedTuple):
    """Whether an answer equals a right one. `as_text`: whether that could not be compared as mathematics, because of an
    error or for lack of time."""

    correct: bool
    as_text: bool


@dataclass(slots=True)
class Begun:
    """A comparison of answers: the `keys` known so far, and the answers whose keys are `wanted`, the next one last.
    `left`: seconds of processor time that it may still take; `scope`: whose cached keys it shares."""

    answers: Sequence[str]
    keys: dict[str, AnswerKey]
    wanted: list[str]
    left: float
    scope: str


class Equivalence:
    """Groups answers into classes of equal ones. Thread-safe.

    `deadline` is in seconds of processor time of one call: answers whose turn comes later are compared as text in that
    call. One answer costs tens of milliseconds at most, whatever it says. `cache_size` is in answers. `clock` tells the
    thread's processor time.
    """

    def __init__(
        self, *, deadline: float = 2.0, cache_size: int = 65536, clock: Callable[[], float] = time.thread_time
    ) -> None:
        if deadline <= 0 or cache_size < 0:
            raise ValueError(f"{deadline=}, {cache_size=}")
        self.deadline, self._clock = deadline, clock
        self._cache = KeyCache(cache_size)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def classes(self, answers: Sequence[str]) -> list[int]:
        """The class of each answer, numbered from 0 by first appearance."""
        return self.compare(answers).classes

    def equal(self, left: str, right: str) -> bool:
        """Whether two answers are in one class when no others are compared with them."""
        return self.classes([left, right]) == [0, 0]

    def compare(self, answers: Sequence[str]) -> Comparison:
        begun = self.begin(answers)
        self.advance(begun, self.deadline)
        return self.finish(begun)

    def match(self, pairs: Sequence[Pair]) -> list[Match]:
        """Whether each pair's answer is right, as `equal` says of it and one of the right ones."""
        begun = self.begin(texts(pairs))
        self.advance(begun, self.deadline)
        return self.matched(begun, pairs)

    def begin(self, answers: Sequence[str], scope: str = "") -> Begun:
        """Looks up known keys. Short answers are computed first, so a deadline always cuts off the same ones. What is
        cached in a scope, of at most 64 bytes, is found in that scope alone."""
        distinct = sorted(set(answers), key=lambda answer: (-len(answer), answer))
        keys = {answer: key for answer in distinct if (key := self._cache.get(answer, scope))}
        self._count(compared=len(distinct), cached=len(keys))
        return Begun(answers, keys, [answer for answer in distinct if answer not in keys], self.deadline, scope)

    def advance(self, begun: Begun, seconds: float) -> None:
        """Computes keys for about that many seconds of processor time; at least one, if any is wanted."""
        start, spent = self._clock(), 0.0
        while begun.wanted:
            answer = begun.wanted.pop()
            begun.keys[answer] = self._cache.put(answer, self._key(answer), begun.scope)
            spent = self._clock() - start
            if spent >= min(seconds, begun.left):
                break
        begun.left -= spent
        if begun.left <= 0:
            self._count(late=len(begun.wanted))
            begun.keys |= {answer: text_key(answer) for answer in begun.wanted}
            begun.wanted.clear()

    def finish(self, begun: Begun) -> Comparison:
        """The classes of the answers, all of whose keys are known."""
        numbers: dict[str, int] = {}
        return Comparison(
            [numbers.setdefault(name, len(numbers)) for name in _joined([begun.keys[each] for each in begun.answers])],
            tuple(index for index, answer in enumerate(begun.answers) if begun.keys[answer].as_text),
        )

    def matched(self, begun: Begun, pairs: Sequence[Pair]) -> list[Match]:
        """As `match`, of pairs all of whose keys are known."""
        return [_match(begun.keys[answer], [begun.keys[each] for each in gold]) for answer, gold in pairs]

    @property
    def stats(self) -> EquivalenceStats:
        with self._lock:
            return EquivalenceStats(**self._counts)

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def _key(self, answer: str) -> AnswerKey:
        if is_integer(answer):  # the key of every spelling of it
            return AnswerKey(answer)
        try:
            key = answer_key(canonical(answer))
            if other := other_reading(answer):
                key = key._replace(otherwise=answer_key(canonical(other)).key)
        except Exception:  # an error on one answer must not affect the others
            self._count(failures=1)
            return text_key(answer)
        return key


def texts(pairs: Sequence[Pair]) -> list[str]:
    """The answers of pairs, candidates' and right ones."""
    return [text for answer, gold in pairs for text in (answer, *gold)]


def _match(answer: AnswerKey, gold: Sequence[AnswerKey]) -> Match:
    equal = [key for key in gold if len(set(_joined([answer, key]))) == 1]
    return Match(bool(equal), any(key.as_text for key in (answer, *(equal or gold))))


def _joined(keys: Sequence[AnswerKey]) -> list[str]:
    """The class of each answer: of the full keys that it may mean (those that no other says more than), the one that
    most answers may mean, among equals the first. So one more answer makes no class the largest without being in it."""
    counts = Counter(keys)
    fuller: dict[str, set[str]] = {}
    for key in counts:
        for barer in key.barer:
            fuller.setdefault(barer, set()).add(key.key)
    order = {name: place for place, name in enumerate(dict.fromkeys(key.key for key in counts))}
    fullest = {name: _fullest(name, fuller) for name in order}
    meanings = {key: fullest[key.key] | fullest.get(key.otherwise, set()) for key in counts}
    support = Counter[str]()
    for key, count in counts.items():
        for name in sorted(meanings[key], key=order.__getitem__):
            support[name] += count
    rank = {name: place for place, (name, _) in enumerate(support.most_common())}  # equals in order of appearance
    chosen = {key: min(names, key=rank.__getitem__) for key, names in meanings.items()}
    return [chosen[key] for key in keys]


def _fullest(name: str, fuller: Mapping[str, Set[str]]) -> set[str]:
    """The full keys that `name` may mean. `fuller`: the keys that say more, by each that says less."""
    reached, waiting = {name}, [name]
    for each in waiting:  # which grows
        further = fuller.get(each, set()) - reached
        reached |= further
        waiting += further
    return {each for each in reached if each not in fuller} or {name}


def other_reading(answer: str) -> str:
    """Another number that an answer may mean: 3.5 for ``3,5`` (or a list), 5000 for ``5k`` (or a product)."""
    if pattern("pair_or_decimal").fullmatch(answer):
        return answer.replace(",", ".", 1)
    return f"{answer[:-1]}*1000" if pattern("times_k").fullmatch(answer) else ""


def is_integer(answer: str) -> bool:
    """Whether an answer is a whole number in its canonical spelling."""
    return pattern("integer").fullmatch(answer) is not None


class KeyCache:
    """At most `size` keys, by scope and answer; the least recently used goes first. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys: OrderedDict[bytes, AnswerKey] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, answer: str, scope: str) -> AnswerKey | None:
        digest = _digest(answer, scope)
        with self._lock:
            if key := self._keys.get(digest):
                self._keys.move_to_end(digest)
        return key

    def put(self, answer: str, key: AnswerKey, scope: str) -> AnswerKey:
        digest = _digest(answer, scope)
        with self._lock:
            self._keys[digest] = key
            while len(self._keys) > self._size:
                self._keys.popitem(last=False)
        return key


def _digest(answer: str, scope: str) -> bytes:
    return hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=16, key=scope.encode()).digest()
