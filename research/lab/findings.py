"""The lab's findings: each question of the study with the table that answers it.

All differences of two methods were tested, in families of comparisons that are fixed beforehand and corrected jointly
(`research.comparisons`).
"""

from pathlib import Path

from training import resumable
from training.evaluate import judging

from ..searches import findings as search_findings
from . import data_findings, measures, vote_findings
from .construct import annotated, selected_file
from .lab_settings import DATA_SETS, LabSettings
from .models import seeds


def write(settings: LabSettings, output: Path) -> None:
    sections = [
        *data_findings.every(settings, output),
        measures.measures(selected_file(output, "random")),
        search_findings.markdown(annotated(output, "uncertainty")),
    ]
    for base in settings.bases:
        # votes depend on rewards: what holds for the paper's PRMs may not hold for those that find the most errors
        for name in (name for name, data_set in DATA_SETS.items() if data_set.votes and data_set.search):
            judged = [judging.kept(output / "best-of-n" / place) for place in seeds(settings, base, name)]
            about = f"With PRMs of {name} on {data_findings.BASES[base]}"
            sections += [vote_findings.votes(judged, about), vote_findings.alphas(judged, about)]
    resumable.replace(output / "findings.md", "\n".join(sections))
