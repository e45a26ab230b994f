"""What the lab finds out: each question of the study with its answer and the numbers behind it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from training import best_of_n
from training.best_of_n import Judged
from training.lab import elections, labels
from training.lab.models import seeds
from training.lab.settings import LabSettings, data_sets
from training.metrics import Share

Cell = str | float | int


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer in a sentence or two, and a table."""

    question: str
    answer: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


REFERENCE = "UnPRM"
"""The data set whose PRMs the votes are compared with."""


def write(settings: LabSettings, output: Path) -> None:
    """Writes `output/findings.json`."""
    judged = {
        name: [best_of_n.kept(output / "best-of-n" / place) for place in seeds(settings, name)]
        for name in data_sets(settings)
    }
    found = [
        data(settings, output, judged),
        measures(output),
        votes(judged[REFERENCE]),
        frequencies(judged[REFERENCE]),
        alphas(judged[REFERENCE]),
        ties(judged[REFERENCE]),
        another_vote(judged[REFERENCE]),
    ]
    told = json.dumps([asdict(finding) for finding in found], indent=2, ensure_ascii=False)
    (output / "findings.json").write_text(told + "\n", "utf-8")


def data(settings: LabSettings, output: Path, judged: dict[str, list[list[Judged]]]) -> Finding:
    """Which data makes the best PRM, and at what cost."""
    hits = {name: labels.hits(settings, output, name) for name in data_sets(settings)}
    reference = hits[REFERENCE]
    rows: list[tuple[Cell, ...]] = []
    verdicts = []
    for name, own in data_sets(settings).items():
        difference = labels.f1_difference(hits[name], reference)
        made = labels.made(output, name, own)
        vote = Share.of(_mean_over_seeds(judged[name], "prm"))
        each = " ".join(f"{100 * f1:.1f}" for f1 in hits[name].by_seed())
        rows.append(
            (name, own.about, made.solutions, f"{made.samples:,}", _percent(made.first),
             f"{100 * hits[name].f1():.1f}", each, _points(difference) if name != REFERENCE else "", _interval(vote))
        )  # fmt: skip
        if name != REFERENCE:
            verdicts.append(f"{name} {_compared(difference)} ({_points(difference)})")
    return Finding(
        "Which data makes the best PRM?",
        f"F1 of finding the first error against {REFERENCE}, in points with 95 % intervals over the benchmark's "
        f"solutions: {'; '.join(verdicts)}.",
        ("data set", "solutions and labels", "labelled", "rollouts", "first error labelled", "F1", "F1 of each seed",
         f"F1 against {REFERENCE}", "prm vote at the largest N"),
        tuple(rows),
    )  # fmt: skip


def measures(output: Path) -> Finding:
    """Which measure of uncertainty points at the first error."""
    told = labels.measures(output)
    best = max(told, key=lambda own: own.hit)
    entropy = next(own for own in told if own.measure == "entropy")
    return Finding(
        "Which measure of uncertainty finds the first error best?",
        f"The largest rise of {best.measure} is the first error in {_percent(best.hit)} of the wrong solutions; that "
        f"of the paper's entropy in {_percent(entropy.hit)}, where a step at random is it in "
        f"{_percent(entropy.chance)}. A step's entropy correlates with the logarithm of its length by "
        f"{entropy.length:.3f}.",
        ("measure", "rises most at the first error", "mean rank of the first error (0 first, 1 last)",
         "correlation with log length"),
        tuple((own.measure, _percent(own.hit), f"{own.rank:.2f}", f"{own.length:.3f}") for own in told),
    )  # fmt: skip


def votes(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Whether HMR and WRF beat majority and PRM, and at which N."""
    rows: list[tuple[Cell, ...]] = []
    verdicts = []
    sizes = elections.sizes(judged)
    for size in sizes:
        right = {name: elections.accuracies(judged, size, rule) for name, rule in elections.VOTES.items()}
        cells = [_points(_difference(right[a], right[b])) for a in ("hmr", "wrf") for b in ("majority", "prm")]
        rows.append((size, *(f"{100 * sum(own) / len(own):.1f}" for own in right.values()), *cells))
        if size == sizes[-1]:
            verdicts = [_against(right, a, b) for a in ("hmr", "wrf") for b in ("majority", "prm")]
    return Finding(
        "Do HMR and WRF beat majority and PRM?",
        f"At N = {sizes[-1]}, in points with 95 % intervals over the questions: {'; '.join(verdicts)}.",
        ("N", *elections.VOTES, "hmr − majority", "hmr − prm", "wrf − majority", "wrf − prm"),
        tuple(rows),
    )


def frequencies(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Where the votes differ: by how often the reasoner is right."""
    size = elections.sizes(judged)[-1]
    right = {name: elections.accuracies(judged, size, rule) for name, rule in elections.VOTES.items()}
    bands = elections.bands(judged[0])
    rows: list[tuple[Cell, ...]] = []
    for band, numbers in bands.items():
        if numbers:
            shares = (sum(own[k] for k in numbers) / len(numbers) for own in right.values())
            rows.append((band, len(numbers), *(f"{100 * share:.1f}" for share in shares)))
    below = next(iter(bands))
    best = max(right, key=lambda name: sum(right[name][k] for k in bands[below]))
    return Finding(
        "Where do the votes differ?",
        f"Right answers in % at N = {size}, by the share of the candidates that are right. Where {below} of them are, "
        f"{best} finds most.",
        ("candidates that are right", "questions", *elections.VOTES),
        tuple(rows),
    )


def alphas(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Which α serves WRF best."""
    sizes = [size for size in elections.sizes(judged) if size >= 4]
    right = {a: {n: elections.accuracies(judged, n, elections.wrf(a)) for n in sizes} for a in elections.ALPHAS}
    means = {a: sum(sum(own) / len(own) for own in told.values()) / len(sizes) for a, told in right.items()}
    best = max(means, key=lambda a: (means[a], -abs(a - 0.5)))
    last = sizes[-1]
    difference = _difference(right[best][last], right[0.5][last])
    return Finding(
        "Which α serves WRF best?",
        f"On average over N from {sizes[0]} to {last}, α = {best:g}. At N = {last} it {_compared(difference)} than the "
        f"paper's 0.5 ({_points(difference)} points).",
        ("α", *(f"N = {n}" for n in sizes), "mean"),
        tuple(
            (a, *(f"{100 * sum(own) / len(own):.1f}" for own in told.values()), f"{100 * means[a]:.1f}")
            for a, told in right.items()
        ),
    )


def ties(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Which tie-break serves WRF best."""
    rows: list[tuple[Cell, ...]] = []
    told = {}
    for size in elections.sizes(judged):
        if size > 1:
            told = elections.ties(judged, size)
            broken = (f"{100 * told[name]:.1f}" for name in elections.TIE_BREAKS)
            rows.append((size, _percent(told["tied"]), *broken))
    best = max(elections.TIE_BREAKS, key=lambda name: told[name])
    return Finding(
        "Which tie-break serves WRF best?",
        f"By {best}, at the largest N: {100 * told[best]:.1f} % of all votes end right, where {_percent(told['tied'])} "
        "of them are tied.",
        ("N", "votes tied", *(f"right, ties by {name} (%)" for name in elections.TIE_BREAKS)),
        tuple(rows),
    )


def another_vote(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Whether some vote beats HMR and WRF: chosen on half of the questions, tried on the other half."""
    prior, chosen_on, tried_on = elections.fit(judged)
    rows: list[tuple[Cell, ...]] = []
    rules = {**elections.VOTES, "log-odds": elections.log_odds(prior)}
    verdicts = []
    for size in elections.sizes(tried_on):
        right = {name: elections.accuracies(tried_on, size, rule) for name, rule in rules.items()}
        rows.append((size, *(f"{100 * sum(own) / len(own):.1f}" for own in right.values())))
        verdicts = [_against(right, name, other) for name in ("log-odds", "weighted") for other in ("hmr", "wrf")]
    return Finding(
        "Is there a vote that beats HMR and WRF?",
        f"Log-odds: every candidate adds {prior:g} plus the log-odds of its reward to its class; {prior:g} was best on "
        f"{len(chosen_on[0])} of the questions. On the other {len(tried_on[0])}, at the largest N: "
        f"{'; '.join(verdicts)}.",
        ("N", *rules),
        tuple(rows),
    )


def _mean_over_seeds(judged: Sequence[Sequence[Judged]], name: str) -> list[float]:
    return elections.accuracies(judged, elections.sizes(judged)[-1], elections.VOTES[name])


def _difference(first: Sequence[float], second: Sequence[float]) -> Share:
    return Share.of([a - b for a, b in zip(first, second, strict=True)])


def _against(right: Mapping[str, Sequence[float]], name: str, other: str) -> str:
    difference = _difference(right[name], right[other])
    return f"{name} {_compared(difference)} than {other} ({_points(difference)})"


def _compared(difference: Share) -> str:
    if difference.low > 0:
        return "does better"
    return "does worse" if difference.high < 0 else "can't be told to do better or worse"


def _points(difference: Share) -> str:
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(share: Share) -> str:
    return f"{100 * share.mean:.1f} % ({100 * share.low:.1f}–{100 * share.high:.1f})"
