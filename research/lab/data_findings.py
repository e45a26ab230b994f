"""The lab's findings about data sets: which one makes the best PRM, on each base and on both."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from training.evaluate import judging
from training.evaluate.bootstrap import Estimate, Numbers
from training.evaluate.metrics import Share, percent

from ..comparisons import F1_MARGIN, LEVEL, Comparison, compare, grouped, note, sentence
from ..report.blocks import listed
from ..report.found import Finding
from . import elections, labels
from .labels import Hits, ThresholdName
from .models import seeds
from .settings import DATA_SETS, BaseName, LabSettings

Pair = tuple[str, str]
REFERENCE = "UnPRM"
"""The paper's own data set, with which others are compared."""
PAIRS: tuple[Pair, ...] = (
    *((name, REFERENCE) for name in DATA_SETS if name != REFERENCE),
    ("BayesPRM", "EpicPRM"),
    ("BayesPRM", "Exact"),
)
"""The pairs of data sets that are compared: one family of comparisons per base."""
BASES: dict[BaseName, str] = {
    "verdicts": "the base that saw verdicts in its pretraining",
    "text": "the base that never saw a verdict",
}
THRESHOLDS: dict[ThresholdName, str] = {
    "fixed": "at the threshold 0.5",
    "chosen": "at the threshold that is best on other questions",
}
HitsByBase = Mapping[BaseName, Mapping[str, Hits]]
"""Hits by base and data set."""


def every(settings: LabSettings, output: Path) -> list[Finding]:
    """All findings, at each threshold."""
    hits = {base: {name: labels.hits(settings, output, base, name) for name in DATA_SETS} for base in settings.bases}
    return [
        finding
        for threshold in THRESHOLDS
        for finding in at_threshold(
            settings,
            output,
            threshold,
            {base: {name: each[threshold] for name, each in by_name.items()} for base, by_name in hits.items()},
        )
    ]


def at_threshold(settings: LabSettings, output: Path, threshold: ThresholdName, hits: HitsByBase) -> list[Finding]:
    """One finding per base, and one about both if there are two."""
    families = {base: differences(by_name) for base, by_name in hits.items()}
    found = [data(settings, output, base, threshold, by_name, families[base]) for base, by_name in hits.items()]
    return [*found, bases(threshold, hits, families)] if len(hits) > 1 else found


def differences(hits: Mapping[str, Hits]) -> dict[Pair, Comparison]:
    """The family of comparisons between the data sets of a base."""
    f1 = {name: data_hits.f1() for name, data_hits in hits.items()}
    return compare({(a, b): f1[a] - f1[b] for a, b in PAIRS if a in f1 and b in f1}, F1_MARGIN)


def data(
    settings: LabSettings,
    output: Path,
    base: BaseName,
    threshold: ThresholdName,
    hits: Mapping[str, Hits],
    family: Mapping[Pair, Comparison],
) -> Finding:
    """Which data makes the best PRM, and at what cost."""
    f1 = {name: data_hits.f1() for name, data_hits in hits.items()}
    rows: list[list[str | int | float]] = []
    for name in hits:
        made = labels.made(output, name)
        vote = _highest_reward(settings, output, base, name) if DATA_SETS[name].votes else ""
        each = " ".join(f"{100 * value:.1f}" for value in hits[name].by_seed())
        against = "" if name == REFERENCE else family[name, REFERENCE].figures
        cells = f"{made.samples:,}", percent(made.first), f1[name].share.in_percent, each, against
        rows.append([name, DATA_SETS[name].about, made.solutions, *cells, vote])
    highest = max(f1, key=lambda name: f1[name].value)
    lines = [
        f"F1 of finding the first error is highest for {highest}: {percent(f1[highest].value)}.",
        f"Against {REFERENCE} with {percent(f1[REFERENCE].value)}: "
        f"{grouped({a: comparison for (a, b), comparison in family.items() if b == REFERENCE})}.",
        *(f"{sentence(comparison, *pair)}." for pair, comparison in family.items() if pair[1] != REFERENCE),
        note(len(family), F1_MARGIN, settings.seeds),
    ]
    return Finding(
        question=f"Which data makes the best PRM, on {BASES[base]}, {THRESHOLDS[threshold]}?",
        answer="\n".join(lines),
        columns=["data set", "solutions and labels", "solutions", "rollouts", "first error labelled",
                 "F1 in % (95 % interval)", "F1 of each seed", f"F1 against {REFERENCE}, points",
                 "prm vote at the largest N in % (95 % interval)"],
        rows=rows,
    )  # fmt: skip


def _highest_reward(settings: LabSettings, output: Path, base: BaseName, name: str) -> str:
    """How often the solution with the highest reward is right, at the largest N."""
    judged = [judging.kept(output / "best-of-n" / place) for place in seeds(settings, base, name)]
    return Estimate.mean(
        elections.outcomes(judged, elections.sizes(judged)[-1], elections.VOTES["prm"])
    ).share.in_percent


def bases(
    threshold: ThresholdName, hits: HitsByBase, families: Mapping[BaseName, Mapping[Pair, Comparison]]
) -> Finding:
    """Whether the order of the data sets is the same on two bases."""
    first, second = hits
    f1 = {base: {name: data_hits.f1() for name, data_hits in by_name.items()} for base, by_name in hits.items()}
    gaps = {
        base: {name: by_name[name] - by_name[REFERENCE] for name in by_name if name != REFERENCE}
        for base, by_name in f1.items()
    }
    changes = compare({name: gaps[second][name] - gaps[first][name] for name in gaps[first]}, F1_MARGIN)
    turned = [
        f"{a} and {b}"
        for a, b in families[first]
        if {families[first][a, b].outcome, families[second][a, b].outcome} == {"better", "worse"}
    ]
    places = {base: sorted(by_name, key=lambda name: -by_name[name].value) for base, by_name in f1.items()}
    tau = _agreement(list(f1[first].values()), list(f1[second].values()))
    lines = [
        *(f"By F1 on {BASES[base]}: {', '.join(places[base])}." for base in hits),
        f"Kendall's τ of the two orders is {tau.mean:.2f}, 95 % interval [{tau.low:.2f}, {tau.high:.2f}].",
        f"Compared pairs that are told apart on both bases, but the other way round: {listed(turned or ['none'])}.",
        f"The gap to {REFERENCE} {_changed(changes)}.",
        note(len(changes), F1_MARGIN, len(hits[first][REFERENCE].by_seed())),
    ]
    return Finding(
        question=f"Is the order of the data sets the same on both bases, {THRESHOLDS[threshold]}?",
        answer="\n".join(lines),
        columns=["data set", *(f"{what}, {base}" for base in hits for what in ("F1 in % (95 % interval)", "place")),
                 f"gap to {REFERENCE}, {second} − {first}, points"],
        rows=[
            [name,
             *(cell for base in hits for cell in (f1[base][name].share.in_percent, places[base].index(name) + 1)),
             changes[name].figures if name in changes else ""]
            for name in hits[first]
        ],
    )  # fmt: skip


def _changed(changes: Mapping[str, Comparison]) -> str:
    differing = [f"{name} ({comparison.figures})" for name, comparison in changes.items() if comparison.p < LEVEL]
    return (
        f"differs between the bases for {listed(differing)}"
        if differing
        else "can't be told to differ between the bases"
    )


def _agreement(first: Sequence[Estimate], second: Sequence[Estimate]) -> Share:
    """Kendall's τ of two lists, with its 95 % percentile interval; the seeds of each PRM vary independently."""

    def order(values: Numbers) -> Numbers:
        """Sign of the difference of every two values, (…, pairs)."""
        a, b = np.triu_indices(values.shape[-1], 1)
        made: Numbers = np.sign(values[..., a] - values[..., b])
        return made

    def resampled(estimates: Sequence[Estimate], start: int) -> Numbers:
        """(RESAMPLES, data sets)"""
        return np.stack(
            [estimate.value + estimate.deviations(start + k) for k, estimate in enumerate(estimates)], axis=-1
        )

    value = (
        order(np.array([estimate.value for estimate in first]))
        * order(np.array([estimate.value for estimate in second]))
    ).mean()
    drawn = (order(resampled(first, 1)) * order(resampled(second, 1 + len(first)))).mean(axis=-1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Share(float(value), float(low), float(high))
