"""ProcessBench in the report: finding the first wrong step."""

from collections.abc import Mapping

from training.evaluate.processbench import PUBLISHED, SUBSETS
from training.evaluate.vote_results import in_markdown

from .results import ProcessBench


def table(prms: Mapping[str, ProcessBench]) -> str:
    """F1 by subset, beside published results if the subsets are ProcessBench's."""
    names = list(dict.fromkeys(name for measured in prms.values() for name in measured["fixed"].f1))
    rows = []
    for prm, measured in prms.items():
        for way, at in measured.items():
            cells = [at.f1[name].in_percent if name in at.f1 else "–" for name in names]
            rows.append([prm, f"{at.threshold:.3g} ({way})", *cells, f"{100 * at.average_f1:.1f}"])
    if set(names) == set(SUBSETS):
        for model, (*values, average) in PUBLISHED.items():
            f1 = dict(zip(SUBSETS, values, strict=True))
            rows.append([model, "published", *(f"{f1[name]:.1f}" for name in names), f"{average:.1f}"])
    return f"F1 in % (95 % interval):\n\n{in_markdown(('PRM', 'threshold', *names, 'average'), rows)}"
