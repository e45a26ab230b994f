"""Classes of equal answers.

Each answer has a key that depends only on the answer, and two answers are equal if their keys are (or if one lacks the
unit of the other, see below): so the relation is reflexive, symmetric and transitive by construction, and the classes
don't depend on the order of the answers or on earlier calls. What it costs to compute a key is bounded; what would cost
more is compared as it is written.

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

import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unprm.answers.canonical import canonical
from unprm.answers.key_cache import KeyCache
from unprm.answers.mathtext.keys import AnswerKey, answer_key, text_key
from unprm.answers.mathtext.notations import other_reading


@dataclass(frozen=True, slots=True)
class EquivalenceStats:
    """Counts of answers since the start.

    compared  distinct texts per call, summed over all calls
    cached    keys found in the cache
    refused   too large or ill-conditioned to compute, so compared as written
    late      not done by the deadline, so compared as text in that call
    failures  comparing them raised an error, so they were compared as text
    """

    compared: int = 0
    cached: int = 0
    refused: int = 0
    late: int = 0
    failures: int = 0


class Comparison(NamedTuple):
    """`classes[i]`: the class of answer i, numbered from 0 by first appearance. `as_text`: indices of the answers that
    could not be compared as mathematics, because of an error or for lack of time."""

    classes: list[int]
    as_text: tuple[int, ...] = ()


class Equivalence:
    """Groups answers into classes of equal ones. Thread-safe.

    `deadline` is in seconds of one call: answers whose turn comes later are compared as text in that call. One answer
    costs tenths of a second at most, whatever it says. `cache_size` is in answers.
    """

    def __init__(self, *, deadline: float = 2.0, cache_size: int = 65536) -> None:
        if deadline <= 0 or cache_size < 0:
            raise ValueError(f"{deadline=}, {cache_size=}")
        self.deadline = deadline
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
        """The classes of the answers; takes milliseconds for answers of common size, and little more than the deadline
        for any."""
        until = time.monotonic() + self.deadline
        wanted = set(answers)
        keys = self._cache.get_all(wanted)
        self._count(compared=len(wanted), cached=len(keys))
        # The order depends only on the answers, so that a deadline always cuts off the same ones.
        for answer in sorted(sorted(wanted - keys.keys()), key=len):
            if time.monotonic() > until:
                self._count(late=1)
                keys[answer] = text_key(answer)
            else:
                keys[answer] = self._cache.put(answer, self._key(answer))
        joined = _joined(set(keys.values()))
        numbers: dict[str, int] = {}
        return Comparison(
            [numbers.setdefault(joined[keys[answer]], len(numbers)) for answer in answers],
            tuple(index for index, answer in enumerate(answers) if keys[answer].as_text),
        )

    @property
    def stats(self) -> EquivalenceStats:
        """The counts so far."""
        with self._lock:
            return EquivalenceStats(**self._counts)

    def __enter__(self) -> "Equivalence":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def _key(self, answer: str) -> AnswerKey:
        try:
            key = answer_key(canonical(answer))
            if other := other_reading(answer):
                key = key._replace(otherwise=answer_key(canonical(other)).key)
        except Exception:  # an error on one answer must not affect the others
            self._count(failures=1)
            return text_key(answer)
        self._count(refused=int(key.refused))
        return key


def _joined(keys: Collection[AnswerKey]) -> dict[AnswerKey, str]:
    """The class of each key, given all of them. A key joins the one class that says more than it (a unit, a name), if
    there is just one; and the number that it may mean otherwise, if some answer has that and none the first reading
    alone."""
    fuller: dict[str, set[str]] = {}
    for key in keys:
        for barer in key.barer:
            fuller.setdefault(barer, set()).add(key.key)
    classes: dict[str, str] = {}
    depths = {key.key: len(key.barer) for key in sorted(keys, key=lambda key: len(key.barer))}
    for key in sorted(depths, key=depths.__getitem__, reverse=True):
        above = {classes[more] for more in fuller.get(key, ())}
        classes[key] = above.pop() if len(above) == 1 else key
    certain = {key.key for key in keys if not key.otherwise}
    return {
        key: classes[key.otherwise if key.key not in certain and key.otherwise in certain else key.key] for key in keys
    }
