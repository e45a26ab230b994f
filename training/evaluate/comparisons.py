"""Families of differences between two methods, with jointly corrected p-values."""

from collections.abc import Mapping
from dataclasses import dataclass

from .bootstrap import Estimate, Key, holm
from .metrics import Share


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of a first method from a second, in shares. `p`: against no difference, corrected within the
    family."""

    difference: Estimate
    p: float

    @property
    def figures(self) -> str:
        """The difference in points, with 95 % interval and corrected p: `+1.2 [+0.3, +2.1], p = 0.012`."""
        return f"{points(self.difference.interval())}, {shown(self.p)}"


def compare(differences: Mapping[Key, Estimate]) -> dict[Key, Comparison]:
    """Compares a family of differences, with p-values corrected over all of them (Holm); it must hold every difference
    about which something is said."""
    p = holm({key: difference.p for key, difference in differences.items()})
    return {key: Comparison(difference, p[key]) for key, difference in differences.items()}


def points(difference: Share) -> str:
    """A difference of shares in points, with its interval: `+1.2 [+0.3, +2.1]`."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def shown(p: float) -> str:
    """A p-value as text: `p = 0.012`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
