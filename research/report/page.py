"""Writes the report: `report.md` with tables, and its figures beside it."""

from pathlib import Path

from training import resumable
from unprm.errors import RecordInvalid

from . import best_of_n, first_errors, found


def write(directory: Path) -> Path:
    """Writes `directory/report.md` and `directory/figures/*.png` from the results below `directory`; returns the
    page's path.

    Raises `RecordInvalid` as `found` does, and if there are no results at all.
    """
    findings, figures, parts = directory / "findings.md", directory / "figures", [f"# {directory.resolve().name}\n"]
    if findings.exists():
        parts.append(findings.read_text("utf-8"))
    if votes := found.best_of_n(directory):
        parts += ["## Best of N\n", best_of_n.table(votes), *best_of_n.plots(votes, figures)]
    if prms := found.processbench(directory):
        parts += ["## ProcessBench\n", first_errors.table(prms), first_errors.plot(prms, figures)]
    if len(parts) == 1:
        results = "findings.md, best-of-n/NAME/…/results.json, processbench/NAME/…/results.json"
        raise RecordInvalid(str(directory), 0, f"nothing to report; expected any of {results}")
    path = directory / "report.md"
    resumable.replace(path, "\n".join(parts))
    return path
