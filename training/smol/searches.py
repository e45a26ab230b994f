"""What the searches cost and find on the reasoner's wrong solutions, and which measures point at errors."""

from collections.abc import Sequence

from .. import resumable
from ..data import search_findings
from ..lab import label_findings
from ..report.found import Finding
from .pipeline import Study


def write(study: Study) -> None:
    """Writes `searches.md`: the table of the searches, and that of the measures."""
    golds = {q.problem: q.gold() for q in study.data.easy("construct")}

    def true_error(problem: str, steps: Sequence[str]) -> int | None:
        return golds[problem].first_error(steps)

    found = search_findings.finding(study.output / "annotated", true_error)
    pointing = label_findings.measures(study.output / "selected.jsonl", true_error)
    resumable.replace(study.output / "searches.md", "\n".join(map(_markdown, (found, pointing))))


def _markdown(finding: Finding) -> str:
    answer = finding.answer.replace("\n", "\n\n")
    return f"## {finding.question}\n\n{search_findings.table(finding.columns, finding.rows)}\n{answer}\n"
