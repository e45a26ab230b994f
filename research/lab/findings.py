"""The lab's findings: each question of the study with its answer and the numbers behind it.

Every statement that compares two methods was tested, in a family of comparisons that is fixed beforehand and corrected
jointly (`research.comparisons`).
"""

import json
from pathlib import Path

from training import resumable
from training.evaluate import judging

from ..searches import findings as search_findings
from . import data_findings, label_findings, vote_findings
from .construct import annotated, selected_file
from .models import seeds
from .settings import DATA_SETS, LabSettings


def write(settings: LabSettings, output: Path) -> None:
    """Writes `output/findings.json`."""
    found = data_findings.every(settings, output)
    found += [
        label_findings.measures(selected_file(output, "random")),
        search_findings.finding(annotated(output, "uncertainty")),
    ]
    for base in settings.bases:
        # votes depend on rewards: what holds for the paper's PRMs may not hold for those that find the most errors
        for name in (name for name, data_set in DATA_SETS.items() if data_set.votes and data_set.search):
            judged = [judging.kept(output / "best-of-n" / place) for place in seeds(settings, base, name)]
            about = f"With PRMs of {name} on {data_findings.BASES[base]}"
            found += [
                finding.model_copy(update={"question": f"{about}: {finding.question}"})
                for finding in vote_findings.every(judged)
            ]
    text = json.dumps([finding.model_dump() for finding in found], indent=2, ensure_ascii=False)
    resumable.replace(output / "findings.json", text + "\n")
