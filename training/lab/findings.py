"""What the lab finds out: each question of the study with its answer and the numbers behind it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from training import best_of_n, journal
from training.best_of_n import Judged
from training.lab import elections, labels
from training.lab.models import seeds
from training.lab.settings import LabSettings, data_sets
from training.metrics import Share, percent
from training.report.found import Finding

Row = list[str | int | float]
REFERENCE = "UnPRM"
"""The paper's own data set: what others are compared with."""


def write(settings: LabSettings, output: Path) -> None:
    """Writes `output/findings.json`."""
    judged = {
        name: [best_of_n.kept(output / "best-of-n" / place) for place in seeds(settings, name)]
        for name in data_sets(settings)
    }
    found = [data(settings, output, judged), measures(output)]
    # votes lean on rewards: what holds for the paper's PRMs may not for those that find most errors
    for name in dict.fromkeys([REFERENCE, _best(settings, output)]):
        own = [votes(judged[name]), frequencies(judged[name]), alphas(judged[name]), ties(judged[name])]
        found += [_about(name, finding) for finding in (*own, another_vote(judged[name]))]
    told = json.dumps([finding.model_dump() for finding in found], indent=2, ensure_ascii=False)
    journal.replace(output / "findings.json", told + "\n")


def _best(settings: LabSettings, output: Path) -> str:
    """The data set of a search whose PRMs find most first errors."""
    searched = [name for name, own in data_sets(settings).items() if own.labels is not None]
    return max(searched, key=lambda name: labels.hits(settings, output, name).f1())


def _about(name: str, finding: Finding) -> Finding:
    return finding.model_copy(update={"question": f"With PRMs of {name}: {finding.question}"})


def data(settings: LabSettings, output: Path, judged: dict[str, list[list[Judged]]]) -> Finding:
    """Which data makes the best PRM, and at what cost."""
    hits = {name: labels.hits(settings, output, name) for name in data_sets(settings)}
    reference = hits[REFERENCE]
    rows: list[Row] = []
    verdicts = []
    for name, own in data_sets(settings).items():
        difference = labels.f1_difference(hits[name], reference)
        made = labels.made(output, name, own)
        vote = Share.of(_mean_over_seeds(judged[name], "prm"))
        each = " ".join(f"{100 * f1:.1f}" for f1 in hits[name].by_seed())
        against = "" if name == REFERENCE else _points(difference)
        f1 = f"{100 * hits[name].f1():.1f}"
        cost = f"{made.samples:,}"
        rows.append([name, own.about, made.solutions, cost, percent(made.first), f1, each, against, vote.in_percent])
        if name != REFERENCE:
            verdicts.append(f"{name} {_compared(difference)} ({against})")
    return Finding(
        question="Which data makes the best PRM?",
        answer=f"F1 of finding the first error against {REFERENCE}, in points with 95 % intervals over questions and "
        f"training seeds: {'; '.join(verdicts)}.",
        columns=["data set", "solutions and labels", "solutions", "rollouts", "first error labelled", "F1",
                 "F1 of each seed", f"F1 against {REFERENCE}", "prm vote at the largest N (%)"],
        rows=rows,
    )  # fmt: skip


def measures(output: Path) -> Finding:
    """Which measure of uncertainty points at the first error."""
    told = labels.measures(output)
    best = max(told, key=lambda own: own.hit)
    entropy = next(own for own in told if own.measure == "entropy")
    return Finding(
        question="Which measure of uncertainty finds the first error best?",
        answer=f"The largest rise of {best.measure} is the first error in {percent(best.hit)} of the wrong solutions; "
        f"that of the paper's entropy in {percent(entropy.hit)}, where a step at random is it in "
        f"{percent(entropy.chance)}. A step's entropy correlates with the logarithm of its length by "
        f"{entropy.length:.3f}.",
        columns=["measure", "rises most at the first error", "mean rank of the first error (0 first, 1 last)",
                 "correlation with log length"],
        rows=[[own.measure, percent(own.hit), f"{own.rank:.2f}", f"{own.length:.3f}"] for own in told],
    )  # fmt: skip


def votes(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Whether HMR and WRF beat majority and PRM, and at which N."""
    rows: list[Row] = []
    verdicts = []
    sizes = elections.sizes(judged)
    for size in sizes:
        right = {name: elections.accuracies(judged, size, rule) for name, rule in elections.VOTES.items()}
        cells = [_points(_difference(right[a], right[b])) for a in ("hmr", "wrf") for b in ("majority", "prm")]
        rows.append([size, *(f"{100 * sum(own) / len(own):.1f}" for own in right.values()), *cells])
        if size == sizes[-1]:
            verdicts = [_against(right, a, b) for a in ("hmr", "wrf") for b in ("majority", "prm")]
    return Finding(
        question="Do HMR and WRF beat majority and PRM?",
        answer=f"At N = {sizes[-1]}, in points with 95 % intervals over the questions: {'; '.join(verdicts)}.",
        columns=["N", *elections.VOTES, "hmr − majority", "hmr − prm", "wrf − majority", "wrf − prm"],
        rows=rows,
    )


def frequencies(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Where the votes differ: by how often the reasoner is right."""
    size = elections.sizes(judged)[-1]
    right = {name: elections.accuracies(judged, size, rule) for name, rule in elections.VOTES.items()}
    bands = {band: numbers for band, numbers in elections.bands(judged[0]).items() if numbers}
    rows: list[Row] = []
    verdicts = []
    for band, numbers in bands.items():
        shares = {name: sum(own[k] for k in numbers) / len(numbers) for name, own in right.items()}
        rows.append([band, len(numbers), *(f"{100 * share:.1f}" for share in shares.values())])
        most = max(shares.values())
        if most > 0 and min(shares.values()) < 1:
            leaders = " and ".join(name for name, share in shares.items() if share == most)
            verdicts.append(f"where {band} of them are, {leaders} with {percent(most)} of {len(numbers)} questions")
    return Finding(
        question="Where do the votes differ?",
        answer=f"Most right answers at N = {size}, by the share of the candidates that are right: "
        f"{'; '.join(verdicts) or 'all are right, or none'}.",
        columns=["candidates that are right", "questions", *elections.VOTES],
        rows=rows,
    )


def alphas(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Which α serves WRF best: chosen on half of the questions, tried on the other half."""
    chosen_on, tried_on = elections.halves(judged)
    rules = {alpha: elections.wrf(alpha) for alpha in elections.ALPHAS}
    best = elections.best(chosen_on, rules)
    sizes = [size for size in elections.sizes(tried_on) if size >= 4]
    right = {a: {n: elections.accuracies(tried_on, n, rule) for n in sizes} for a, rule in sorted(rules.items())}
    last = sizes[-1]
    difference = _difference(right[best][last], right[0.5][last])
    if best == 0.5:
        verdict = "the paper's 0.5 is best on half of the questions"
    else:
        verdict = (
            f"α = {best:g} is best on half of the questions; on the others, at N = {last}, it "
            f"{_compared(difference)} than the paper's 0.5 ({_points(difference)} points)"
        )
    return Finding(
        question="Which α serves WRF best?",
        answer=f"On average over N from 4 on, {verdict}. The table is of the other half.",
        columns=["α", *(f"N = {n}" for n in sizes)],
        rows=[[a, *(f"{100 * sum(own) / len(own):.1f}" for own in told.values())] for a, told in right.items()],
    )


def ties(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Which tie-break serves WRF best, told at the N with most ties."""
    by_size = {size: elections.ties(judged, size) for size in elections.sizes(judged) if size > 1}
    means = {size: {name: sum(shares) / len(shares) for name, shares in told.items()} for size, told in by_size.items()}
    size = max(means, key=lambda size: means[size]["tied"])
    ours, *others = elections.TIE_BREAKS
    differences = {name: _difference(by_size[size][name], by_size[size][ours]) for name in others}
    told = "; ".join(f"{name} {_compared(own)} ({_points(own)})" for name, own in differences.items())
    tied = means[size]["tied"]
    return Finding(
        question="Which tie-break serves WRF best?",
        answer=f"Most votes are tied at N = {size}: {percent(tied)}. Against ours, by {ours}, in points: {told}."
        if tied
        else "No vote is tied.",
        columns=["N", "votes tied", *(f"right, ties by {name} (%)" for name in elections.TIE_BREAKS)],
        rows=[
            [size, percent(own["tied"]), *(f"{100 * own[name]:.1f}" for name in elections.TIE_BREAKS)]
            for size, own in means.items()
        ],
    )


def another_vote(judged: Sequence[Sequence[Judged]]) -> Finding:
    """Whether some vote beats HMR and WRF: chosen on half of the questions, tried on the other half."""
    chosen_on, tried_on = elections.halves(judged)
    prior = elections.best(chosen_on, {prior: elections.log_odds(prior) for prior in elections.PRIORS})
    rows: list[Row] = []
    rules = {**elections.VOTES, "log-odds": elections.log_odds(prior)}
    verdicts = []
    for size in elections.sizes(tried_on):
        right = {name: elections.accuracies(tried_on, size, rule) for name, rule in rules.items()}
        rows.append([size, *(f"{100 * sum(own) / len(own):.1f}" for own in right.values())])
        verdicts = [_against(right, name, other) for name in ("log-odds", "weighted") for other in ("hmr", "wrf")]
    return Finding(
        question="Is there a vote that beats HMR and WRF?",
        answer=f"Log-odds: every candidate adds {prior:g} plus the log-odds of its reward to its class; {prior:g} was "
        f"best on {len(chosen_on[0])} of the questions. On the other {len(tried_on[0])}, at the largest N: "
        f"{'; '.join(verdicts)}.",
        columns=["N", *rules],
        rows=rows,
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
