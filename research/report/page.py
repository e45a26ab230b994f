"""Writes the report: `report.md` with tables, and a figure beside it."""

from collections.abc import Mapping
from pathlib import Path

from training import resumable
from training.evaluate.processbench import PUBLISHED, SUBSETS
from training.evaluate.vote_results import in_markdown
from unprm.errors import RecordInvalid

from . import best_of_n, results
from .results import ProcessBench


def write(directory: Path) -> Path:
    """Writes `directory/report.md` and its figure in `directory/figures` from the results below `directory`; returns
    the page's path.

    Raises `RecordInvalid` as `results` does, and if there are no results at all.
    """
    findings, parts = directory / "findings.md", [f"# {directory.resolve().name}\n"]
    if findings.exists():
        parts.append(findings.read_text("utf-8"))
    if votes := results.best_of_n(directory):
        parts += ["## Best of N\n", best_of_n.table(votes), best_of_n.plot(votes, directory / "figures")]
    if prms := results.processbench(directory):
        parts += ["## ProcessBench\n", _first_errors(prms)]
    if len(parts) == 1:
        expected = "findings.md, best-of-n/NAME/…/results.json, processbench/NAME/…/results.json"
        raise RecordInvalid(str(directory), 0, f"nothing to report; expected any of {expected}")
    path = directory / "report.md"
    resumable.replace(path, "\n".join(parts))
    return path


def _first_errors(prms: Mapping[str, ProcessBench]) -> str:
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
