"""The lab's finding about data sets: which one makes the best PRM, on a base and at a threshold."""

from pathlib import Path

from training.evaluate.metrics import percent

from ..comparisons import F1_MARGIN, compare, finding, note
from . import labels
from .lab_settings import DATA_SETS, BaseName, LabSettings

REFERENCE = "UnPRM"
"""The paper's own data set, with which others are compared."""
PAIRS = (
    *((name, REFERENCE) for name in DATA_SETS if name != REFERENCE),
    ("BayesPRM", "EpicPRM"),
    ("BayesPRM", "Exact"),
)
"""The pairs of data sets that are compared: one family of comparisons per base and threshold."""
BASES: dict[BaseName, str] = {
    "verdicts": "the base that saw verdicts in its pretraining",
    "text": "the base that never saw a verdict",
}
THRESHOLDS: dict[labels.ThresholdName, str] = {
    "fixed": "at the threshold 0.5",
    "chosen": "at the threshold that is best on other questions",
}


def every(settings: LabSettings, output: Path) -> list[str]:
    made = {name: labels.made(output, name) for name in DATA_SETS}
    findings = []
    for base in settings.bases:
        hits = {name: labels.hits(settings, output, base, name) for name in DATA_SETS}
        for threshold, words in THRESHOLDS.items():
            f1 = {name: by_threshold[threshold].f1() for name, by_threshold in hits.items()}
            family = compare({(a, b): f1[a] - f1[b] for a, b in PAIRS if a in f1 and b in f1}, F1_MARGIN)
            rows = [
                [name, DATA_SETS[name].about, made[name].solutions, f"{made[name].samples:,}",
                 percent(made[name].first), f1[name].share.in_percent,
                 " ".join(f"{100 * value:.1f}" for value in hits[name][threshold].by_seed()),
                 "; ".join(f"{b}: {figures}" for (a, b), figures in family.items() if a == name)]
                for name in hits
            ]  # fmt: skip
            findings.append(
                finding(
                    f"Which data makes the best PRM, on {BASES[base]}, {words}?",
                    ["data set", "solutions and labels", "solutions", "rollouts", "first error labelled",
                     "F1 in % (95 % interval)", "F1 of each seed", "F1 against others, points"],
                    rows,
                    note(len(family), F1_MARGIN, settings.seeds),
                )
            )  # fmt: skip
    return findings
