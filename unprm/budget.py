"""Capacity that callers share, so that none takes so much that others get nothing."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unprm.errors import Overloaded


class Budget:
    """Capacity of `limit` units, called `noun` in errors. A caller may take more only if it then holds at most as much
    as stays free: one caller alone gets half, the next half of the rest, and there is always some for another.

    An amount counts as half of the limit at most, so that any is taken when nothing is held. `wait`: seconds until this
    many units may be free again. The rule is that of dynamic thresholds in switches (Choudhury and Hahne, 1998).
    """

    def __init__(self, limit: int, noun: str, wait: Callable[[int], float] = lambda missing: 1.0) -> None:
        self._limit = limit
        self._noun = noun
        self._wait = wait
        self._held: Counter[str] = Counter()
        self.taken = 0

    def check(self, caller: str, amount: int) -> None:
        """Raises `Overloaded` if the caller can't take this much more."""
        amount, held = self.counted(amount), self._held[caller]
        left = self._limit - self.taken - amount
        if held + amount > left:
            demand = f"{held} {self._noun} of this caller wait or are worked on, and {amount} more"
            detail = f"{demand} would be more than what is left for others, {max(left, 0)} of {self._limit}"
            raise Overloaded(detail, self._wait(held + amount - left))

    @contextmanager
    def holding(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Yields a function that takes capacity for a caller until the end of the block, or raises `Overloaded`."""
        held = Held(self, caller)
        try:
            yield held.take
        finally:
            held.set(0)

    def counted(self, amount: int) -> int:
        """What an amount counts as."""
        return min(amount, self._limit // 2)

    def add(self, caller: str, amount: int) -> None:
        """Adds to what a caller holds, whether there is room or not; a negative amount gives it back."""
        self.taken += amount
        self._held[caller] += amount
        if not self._held[caller]:
            del self._held[caller]


class Held:
    """The `amount` that is held of a budget for a caller's request."""

    def __init__(self, budget: Budget, caller: str) -> None:
        self._budget, self._caller = budget, caller
        self.amount = 0

    def take(self, amount: int) -> None:
        """Takes more; raises `Overloaded`."""
        self._budget.check(self._caller, amount)
        self.set(self.amount + self._budget.counted(amount))

    def set(self, amount: int) -> None:
        """Holds this much from now on, without a check: what was let in may turn out larger, and becomes less."""
        amount = self._budget.counted(amount)
        self._budget.add(self._caller, amount - self.amount)
        self.amount = amount
