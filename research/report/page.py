"""Writes the report: `report.md` with tables, and a figure beside it."""

from pathlib import Path

from training import resumable
from training.evaluate import processbench
from unprm.errors import RecordInvalid

from . import best_of_n, results


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
        parts += ["## ProcessBench\n", processbench.markdown(prms)]
    if len(parts) == 1:
        expected = "findings.md, best-of-n/NAME/…/results.json, processbench/NAME/…/results.json"
        raise RecordInvalid(str(directory), 0, f"nothing to report; expected any of {expected}")
    path = directory / "report.md"
    resumable.replace(path, "\n".join(parts))
    return path
