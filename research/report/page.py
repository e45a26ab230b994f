"""Writes the report: `report.html`, a self-contained page, and its figures as PNG."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from . import accuracy, first_errors, frequency
from .blocks import Section, Table
from .found import Finding, Found
from .read import LAYOUT, read


def write(directory: Path) -> Path:
    """Writes `directory/report.html` and `directory/figures/*.png` from the results below `directory`; returns the
    page's path.

    Raises `RecordInvalid` as `read.read` does.
    """
    found = read(directory)
    sections = _best_of_n(found), _processbench(found)
    figures = directory / "figures"
    figures.mkdir(exist_ok=True)
    for section in sections:
        for plot in section.plots:
            (figures / f"{plot.name}.png").write_bytes(plot.png)
    environment = Environment(
        loader=PackageLoader(__package__, ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    page = environment.get_template("page.html.jinja").render(
        name=directory.resolve().name,
        findings=[(finding, _table(finding)) for finding in found.findings],
        no_findings=_missing("findings"),
        sections=sections,
    )
    path = directory / "report.html"
    path.write_text(page, "utf-8")
    return path


def _table(finding: Finding) -> Table:
    rows = tuple(tuple(map(str, row)) for row in finding.rows)
    return Table(finding.question, tuple(finding.columns), rows)


def _best_of_n(found: Found) -> Section:
    prms = found.best_of_n
    if not prms:
        return Section("best-of-n", "Best of N", (_missing("best_of_n"),))
    shown = frequency.chosen(prms)
    notes = () if shown else ("Not there: candidates.jsonl beside any results.json, for gold frequencies and lanes.",)
    plots = accuracy.plots(prms) + (frequency.plots(shown) if shown else ())
    return Section("best-of-n", "Best of N", notes, plots, (accuracy.table(prms),))


def _processbench(found: Found) -> Section:
    prms = found.processbench
    if not prms:
        return Section("processbench", "ProcessBench", (_missing("processbench"),))
    return Section("processbench", "ProcessBench", (), (first_errors.figure(prms),), first_errors.tables(prms))


def _missing(part: str) -> str:
    return f"Not there: {LAYOUT[part]}."
