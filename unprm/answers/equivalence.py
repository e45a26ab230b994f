"""Classes of equal answers.

Each answer has a key that depends only on the answer, and two answers are equal if their keys are (or if one lacks the
unit of the other, see below): so the relation is reflexive, symmetric and transitive by construction, and the classes
don't depend on the order of the answers or on earlier calls. Keys of numbers with roots, fractions and pi, and of
expressions with such values, are computed in the calling process. Other functions, large numbers and finite sums are
computed in worker processes that can be killed.

Conventions, where mathematics leaves a choice (when in doubt, answers are different):

- The unknown's name is dropped: ``x = 5``, ``f(x) = 5`` and ``5`` are equal, as are ``x \\in [0,1]`` and
  ``[0,1]``, ``0 < x < 1`` and ``(0,1)``, and ``y = 2x+1``, ``2x+1`` and ``2x-y+1 = 0``. Other equations and
  inequalities are equal up to a constant factor. ``Y \\in [0,1]`` keeps its name, since Y is not an unknown number.
- Values with units, degrees, currency or the percent sign are compared after conversion: ``1 hour 30 minutes`` is
  ``90 minutes``, ``5 cents`` is not ``5 dollars``. Months aren't converted to days, nor degrees Celsius to Fahrenheit.
  A number without a unit joins the class with units that has a member written with that number, if there is just one:
  in a call with ``10 cm``, ``10`` equals it; in a call with ``10 cm`` and ``10 m``, it equals neither (and 10 % is not
  0.1). So classes depend on the set of the answers of a call. ``10cm`` and ``10m`` are products of variables.
- The name of what is counted is dropped: ``5 apples`` is ``5``; but not from an answer that counts several things
  (``3 boys and 5 girls``). Words that change the meaning ("or more", "p.m.", "older", "pairs", "each") are kept.
- Literal numbers separated only by minus signs (``10-12``, ``2020-03-04``), and three separated by slashes, are taken
  as ranges, scores, dates or telephone numbers, and compared as written.
- ``1,234`` outside of brackets is a number, ``1, 234`` and ``(1,234)`` are pairs.
- A list of numbers or expressions has no order, and is the same as a set in braces; ``±`` stands for such a
  list. A list of words or capital letters is ordered, as are tuples and values given to different names
  (``x=1, y=2`` is ``(1,2)``). Repeated numbers count in a list; repeated tuples don't.
- ``(0,1)`` may be a pair or an interval: the key is the same. ``(0,1)`` and ``[0,1]`` are different.
- A decimal is exact: 0.33 is not 1/3. But a decimal of 9 or more significant digits that is the rounding of a simple
  fraction, multiple of pi or square root equals that number.
- ``1 1/2`` and ``1\\frac12`` are mixed numbers. ``\\log`` has base 10, ``e`` and ``i`` are the constants.
  The odd root of a negative number is real. Expressions with unknowns are compared over the reals, so
  ``\\sqrt{x^2}`` is ``|x|`` and not x. A calculation followed by its result is the result: ``2+3 = 5`` is 5.
- Plain words are compared without regard to case. Ratios, times, numbers with a base, and what can't be read
  with certainty are compared as they are written.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from unprm.answers.canonical import canonical
from unprm.answers.key_cache import KeyCache
from unprm.answers.mathtext.evaluation import NeedsWorker
from unprm.answers.mathtext.keys import AnswerKey, answer_key, text_key
from unprm.answers.mathtext.scalars import Scalars
from unprm.answers.worker import worker_command
from unprm.answers.worker_pool import START_SECONDS, OutOfTime, WorkerDied, WorkerPool
from unprm.errors import ShuttingDown

_ATTEMPTS = 2  # a worker may also be killed for reasons unrelated to the answer
_SHARE = 0.25  # fraction of the deadline that one answer may take, as CPU time


@dataclass(frozen=True, slots=True)
class EquivalenceStats:
    """Counts of answers since the start.

    compared    distinct texts per call, summed over all calls
    cached      keys found in the cache
    in_process  keys computed without a worker
    in_worker   keys computed by a worker
    refused     of the latter: too large or ill-conditioned to compute, so compared as written
    timeouts    not done by the deadline, or over one answer's share of it: compared as text
    crashes     workers lost on them; an answer that loses two is compared as text
    failures    comparing them raised an error, so they were compared as text
    """

    compared: int = 0
    cached: int = 0
    in_process: int = 0
    in_worker: int = 0
    refused: int = 0
    timeouts: int = 0
    crashes: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """Answers and the `keys` known so far. `spelled`: answers without a key, by canonical spelling; `seconds`: what is
    left of the deadline, after which they are compared as text. `scope`: whose cached keys they share."""

    answers: Sequence[str]
    keys: dict[str, AnswerKey]
    spelled: dict[str, list[str]]
    seconds: float
    scope: str

    @property
    def settled(self) -> bool:
        """Whether no worker is needed."""
        return not self.spelled


class Comparison(NamedTuple):
    """`classes[i]`: the class of answer i, numbered from 0 by first appearance. `as_text`: indices of the answers that
    could not be compared as mathematics, because of an error or for lack of time."""

    classes: list[int]
    as_text: tuple[int, ...] = ()


class Equivalence:
    """Groups answers into classes of equal ones; owns killable worker processes (POSIX). Thread-safe.

    `deadline` is in seconds of work on one call: answers without a key by then are compared as text in that call, which
    is not cached. One answer may take a quarter of it as CPU time: beyond that it is compared as text permanently.
    `memory_mb` limits each of the `workers`; `cache_size` is in answers. Create it after any fork of the server.
    """

    def __init__(
        self,
        *,
        deadline: float = 2.0,
        workers: int = 1,
        memory_mb: int = 1024,
        cache_size: int = 65536,
        command: Sequence[str] | None = None,
    ) -> None:
        if deadline <= 0 or workers < 1 or memory_mb < 256 or cache_size < 0:
            raise ValueError(f"{deadline=}, {workers=}, {memory_mb=} (at least 256), {cache_size=}")
        self.deadline = deadline
        self._pool = WorkerPool(command or worker_command(deadline * _SHARE, memory_mb), workers)
        self._scalars = Scalars()
        self._cache = KeyCache(cache_size)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def classes(self, answers: Sequence[str]) -> list[int]:
        """The class of each answer, numbered from 0 by first appearance.

        Takes little more than the deadline at most. Raises `ShuttingDown` after `close` if a worker is needed."""
        return self.finish(self.begin(answers)).classes

    def begin(self, answers: Sequence[str], scope: str = "") -> Begun:
        """Does what needs no worker; takes milliseconds for answers of common size. What is cached in a scope, of at
        most 64 bytes, is found in that scope alone."""
        start = time.monotonic()
        wanted = set(answers)
        keys = self._cache.get_all(wanted, scope)
        self._count(compared=len(wanted), cached=len(keys))
        spelled: dict[str, list[str]] = {}
        # The order depends only on the answers, so that a deadline always cuts off the same ones.
        for answer in sorted(sorted(wanted - keys.keys()), key=len):
            if time.monotonic() > start + self.deadline:
                self._count(timeouts=1)
                keys[answer] = text_key(answer)
                continue
            try:
                form, key = self._in_process(answer)
            except Exception:  # an error on one answer must not affect the others
                self._count(failures=1)
                form, key = answer, text_key(answer)
            if key is None:
                spelled.setdefault(form, []).append(answer)
            else:
                keys[answer] = self._cache.put(answer, key, scope)
        return Begun(answers, keys, spelled, max(0.0, self.deadline - (time.monotonic() - start)), scope)

    def finish(self, begun: Begun) -> Comparison:
        """The classes of the answers; waits for a worker unless settled. The rest of the deadline starts now."""
        until = time.monotonic() + begun.seconds
        for form in sorted(sorted(begun.spelled), key=len):
            key, final = self._key_in_worker(form, until, begun.scope)
            for answer in begun.spelled[form]:
                begun.keys[answer] = self._cache.put(answer, key, begun.scope) if final else key
        joined = _joined(set(begun.keys.values()))
        numbers: dict[str, int] = {}
        return Comparison(
            [numbers.setdefault(joined[begun.keys[answer]], len(numbers)) for answer in begun.answers],
            tuple(index for index, answer in enumerate(begun.answers) if begun.keys[answer].as_text),
        )

    def equal(self, left: str, right: str) -> bool:
        """Whether two answers are in one class when no others are compared with them."""
        return self.classes([left, right]) == [0, 0]

    @property
    def stats(self) -> EquivalenceStats:
        """The counts so far."""
        with self._lock:
            return EquivalenceStats(**self._counts)

    def start(self) -> None:
        """Spawns one worker and waits until it is ready; otherwise the first call that needs one does.

        Raises `WorkerDied` if it doesn't start."""
        self._pool.start(time.monotonic() + START_SECONDS)

    def close(self) -> None:
        """Ends the workers. Idempotent."""
        self._pool.close()

    def __enter__(self) -> "Equivalence":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def _in_process(self, answer: str) -> tuple[str, AnswerKey | None]:
        """The canonical spelling, and the key unless a worker has to compute it."""
        form = canonical(answer)
        try:
            key = answer_key(form, self._scalars)
        except NeedsWorker:
            return form, None
        self._count(in_process=1)
        return form, key

    def _key_in_worker(self, form: str, until: float, scope: str) -> tuple[AnswerKey, bool]:
        """The key, and whether it is final; otherwise it holds for this call only."""
        known = self._cache.get_all([form], scope)
        if known:
            return known[form], True
        for attempt in range(_ATTEMPTS):
            try:
                reply = self._pool.ask(form, until)
            except OutOfTime:
                self._count(timeouts=1)
                return text_key(form), False
            except WorkerDied as death:
                if death.signal == signal.SIGPROF:
                    self._count(timeouts=1)
                    return self._remembered(form, text_key(form), scope)
                self._count(crashes=1)
            except ShuttingDown:
                if attempt == 0:
                    raise
                break  # the call has begun: fall back to text
            else:
                failed = reply.as_text and not reply.refused
                self._count(in_worker=1, refused=int(reply.refused), failures=int(failed))
                return self._remembered(form, reply, scope)
        return text_key(form), False

    def _remembered(self, form: str, key: AnswerKey, scope: str) -> tuple[AnswerKey, bool]:
        return self._cache.put(form, key, scope), True


def _joined(keys: Collection[AnswerKey]) -> dict[AnswerKey, str]:
    """The class of each key, given all of them: a number without a unit joins the class of values with units that has
    a member written with that number, if there is just one."""
    with_units: dict[str, set[str]] = {}
    for key in keys:
        if key.unitless:
            with_units.setdefault(key.unitless, set()).add(key.key)
    joined: dict[AnswerKey, str] = {}
    for key in keys:
        candidates = set() if key.unitless else with_units.get(key.key, set())
        joined[key] = candidates.pop() if len(candidates) == 1 else key.key
    return joined
