"""The lab's finding about labels: which measure of uncertainty points at errors."""

from pathlib import Path

from training.evaluate.bootstrap import Estimate
from training.evaluate.metrics import percent

from ..comparisons import F1_MARGIN, compare, grouped, note
from ..report.found import Finding
from ..searches.truth import FirstErrorOf, by_checker
from . import labels
from .labels import Pointer

ENTROPY = "entropy"
"""The paper's measure."""


def measures(selected: Path, true_error: FirstErrorOf = by_checker) -> Finding:
    """Which measure of uncertainty points at the first error best, in a file of selected solutions."""
    pointers = {pointer.measure: pointer for pointer in labels.measures(selected, true_error)}
    entropy = pointers[ENTROPY]

    def share(pointer: Pointer, among: str) -> Estimate:
        pointing = getattr(pointer, among)
        return Estimate.ratio(pointing.hits, pointing.counts)

    def against(pointer: Pointer, among: str) -> Estimate:
        counts = getattr(pointer, among).counts
        return Estimate.ratio(getattr(pointer, among).hits - getattr(entropy, among).hits, counts)

    places = {"before_last": "all steps but the last", "among_all": "all steps"}
    family = compare(
        {
            (name, among): against(pointer, among)
            for among in places
            for name, pointer in pointers.items()
            if name != ENTROPY
        },
        F1_MARGIN,
    )
    lines = []
    for among, words in places.items():
        pointing = getattr(entropy, among)
        lines.append(
            f"Among {words} ({pointing.counts.sum():,.0f} wrong solutions) the paper's entropy rises most at the first "
            f"error in {percent(share(entropy, among).value)}, where a step at random is it in "
            f"{percent(pointing.chance)}. Against it: "
            f"{grouped({name: comparison for (name, where), comparison in family.items() if where == among})}."
        )
    lines += [
        f"A step's entropy correlates with the logarithm of its length by {entropy.length:.3f}. The searches never try "
        "the last step.",
        note(len(family), F1_MARGIN, 0),
    ]
    return Finding(
        question="Which measure of uncertainty finds the first error best?",
        answer="\n".join(lines),
        columns=["measure",
                 "rises most at the first error, last step left out, in % (95 % interval)", "rank (0 first, 1 last)",
                 "rises most at the first error, all steps, in % (95 % interval)", "rank (0 first, 1 last)",
                 "correlation with log length"],
        rows=[
            [name,
             share(pointer, "before_last").share.in_percent, f"{pointer.before_last.rank:.2f}",
             share(pointer, "among_all").share.in_percent, f"{pointer.among_all.rank:.2f}",
             f"{pointer.length:.3f}"]
            for name, pointer in pointers.items()
        ],
    )  # fmt: skip
