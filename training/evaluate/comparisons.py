"""Which of two methods is better, in cautious words: families of comparisons with jointly corrected p-values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .bootstrap import Estimate, Key, holm
from .metrics import Share

LEVEL = 0.05
"""Corrected p-values below this level count as significant."""
F1_MARGIN = 0.03
"""Margin for F1 and for shares of labels: about the smallest difference of two PRMs that ProcessBench's 3,400 solutions
can show."""
ACCURACY_MARGIN = 0.01
"""Margin for a vote's accuracy: two of the lab's 200 questions, five of MATH500's."""

Outcome = Literal["better", "worse", "as good", "open"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of a first method from a second, in shares. `p`: against no difference; `p_equivalent`: against a
    difference of `margin` or more; both p-values corrected within the family."""

    difference: Estimate
    margin: float
    p: float
    p_equivalent: float

    @property
    def outcome(self) -> Outcome:
        """What may be said about the first method, by the p-values."""
        if self.p < LEVEL:
            return "better" if self.difference.value > 0 else "worse"
        return "as good" if self.is_small else "open"

    @property
    def is_small(self) -> bool:
        """Whether the difference is significantly below the margin."""
        return self.p_equivalent < LEVEL

    @property
    def figures(self) -> str:
        """The difference in points, with 95 % interval and corrected p: `+1.2 [+0.3, +2.1], p = 0.012`."""
        return f"{points(self.difference.interval())}, {shown(self.p)}"

    def sentence(self, first: str, second: str) -> str:
        """The outcome as a sentence, with the figures."""
        small = f", by less than {_margin(self.margin)}" if self.is_small else ""
        said = {
            "better": f"{first} is better than {second}{small}",
            "worse": f"{first} is worse than {second}{small}",
            "as good": f"{first} is as good as {second}",
            "open": f"{first} and {second} can't be told apart",
        }[self.outcome]
        return f"{said} ({self.figures})"


def compare(differences: Mapping[Key, Estimate], margin: float) -> dict[Key, Comparison]:
    """Compares a family of differences, with p-values corrected over all of them; it must hold every difference about
    which something is said."""
    p = holm({key: difference.p for key, difference in differences.items()})
    within = holm({key: difference.p_within(margin) for key, difference in differences.items()})
    return {key: Comparison(difference, margin, p[key], within[key]) for key, difference in differences.items()}


def sentences(family: Mapping[tuple[str, str], Comparison]) -> str:
    """The outcome of each pair: `a is better than b (…); …`."""
    return "; ".join(comparison.sentence(*pair) for pair, comparison in family.items())


def grouped(family: Mapping[str, Comparison]) -> str:
    """The first methods grouped by outcome against a common second one: `better: a (…), b (…); worse: c (…)`."""
    words: dict[Outcome, str] = {
        "better": "better", "worse": "worse", "as good": "as good", "open": "can't be told apart from it"
    }  # fmt: skip
    parts = []
    for outcome, said in words.items():
        ways = [
            f"{name} ({comparison.figures})" for name, comparison in family.items() if comparison.outcome == outcome
        ]
        if ways:
            parts.append(f"{said}: {', '.join(ways)}")
    return "; ".join(parts)


def note(count: int, margin: float, seeds: int) -> str:
    """Explains the figures of a family of `count` comparisons of PRMs with `seeds` training seeds (0: no PRM)."""
    over = {0: "questions", 1: "questions, not over training seeds, of which there is one"}
    corrected = (
        f" Of each family of {count} comparisons p is corrected (Holm), and only p below {LEVEL:g} says anything."
    )
    return (
        f"Differences are in points, with 95 % intervals over {over.get(seeds, 'questions and training seeds')}."
        f"{corrected if count > 1 else ''} “As good” is shown to differ by less than {_margin(margin)}, which few "
        "questions can't show even if all end alike."
    )


def points(difference: Share) -> str:
    """A difference of shares in points, with its interval: `+1.2 [+0.3, +2.1]`."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def shown(p: float) -> str:
    """A p-value as text: `p = 0.012`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _margin(margin: float) -> str:
    number = f"{100 * margin:g}"
    return f"{number} point" if number == "1" else f"{number} points"
