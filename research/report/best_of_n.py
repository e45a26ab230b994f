"""Best of N in the report: accuracy against the number of candidates, and against the share of right ones."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from training.evaluate.metrics import percent
from training.evaluate.right_votes import STUDIED, right_share, uses_rewards
from training.evaluate.vote_results import in_markdown
from unprm.votes.registry import VoteTerms

from .drawing import GREY, PALETTE, legend, line, percent_axis, picture, styles
from .found import BestOfN, BySize, averaged

REFERENCES: dict[str, dict[str, Any]] = {
    "majority": {"color": GREY, "linestyle": "--"},
    "any right": {"color": GREY, "linestyle": ":"},
}
OUTCOMES: dict[str, tuple[float, dict[str, Any]]] = {
    "right": (0.22, {"marker": "o", "color": PALETTE[0], "alpha": 0.5}),
    "wrong": (-0.22, {"marker": "x", "color": PALETTE[1], "alpha": 0.7}),
    "tied": (0.0, {"marker": "|", "color": GREY, "alpha": 0.7}),
}
"""Height in the lane and look of a question's point, by the outcome of the vote."""


def table(prms: Mapping[str, BestOfN]) -> str:
    """Accuracy of all votes at each PRM's largest N."""
    rows = []
    for name, prm in prms.items():
        size = max(prm.any_right)
        shares = [prm.accuracy[vote][size].in_percent for vote in STUDIED]
        rows.append([name, prm.seeds, prm.questions, size, *shares, prm.any_right[size].in_percent])
    columns = ("PRM", "seeds", "questions", "N", *STUDIED, "any right")
    return f"Right answers in % (95 % interval):\n\n{in_markdown(columns, rows, names=1)}"


def plots(prms: Mapping[str, BestOfN], figures: Path) -> Iterator[str]:
    """Accuracy with a panel per vote, where the references are means over the PRMs, and with a panel per PRM; and of
    one PRM whose candidates were kept, by preference one with "unprm" in its name, each question's outcomes."""
    by_prm = {name: prm.accuracy | {"any right": prm.any_right} for name, prm in prms.items()}
    means = {name: averaged([lines[name] for lines in by_prm.values()]) for name in REFERENCES}
    rewarded = filter(uses_rewards, STUDIED)
    by_vote = {vote: {name: lines[vote] for name, lines in by_prm.items()} | means for vote in rewarded}
    counts = sorted({f"{prm.questions:,}" for prm in prms.values()}, key=len)
    caption = (
        "Share of questions whose elected answer is right, and share with any right candidate; whiskers are 95 % "
        f"intervals over n = {' or '.join(counts)} questions, averaged over the training seeds of a PRM."
    )
    for name, panels in {"vote": by_vote, "PRM": by_prm}.items():
        title, height = f"Right answers by number of candidates, a panel per {name}", 0.4 + 3.6 * ceil(len(panels) / 2)
        yield picture(figures / f"accuracy-by-{name.lower()}.png", title, caption, height, partial(_draw, panels))
    kept = sorted((name for name in prms if prms[name].judged), key=lambda name: "unprm" not in name.casefold())
    for name in kept[:1]:
        shares = [sum(each.correct) / len(each.correct) for each in prms[name].judged]
        yield picture(
            figures / "lanes.png",
            "Questions by the share of their candidates that are right, and what each vote elects",
            "In a vote's lane each question is a point, up if the elected answer is right, down if wrong, between "
            f"if both are tied; other differences in height mean nothing. {name}, n = {len(shares):,} questions: "
            f"{shares.count(0.0):,} without a right candidate, {shares.count(1.0):,} without a wrong one.",
            8.0,
            partial(_draw_lanes, prms[name], shares),
        )


def _draw(panels: Mapping[str, Mapping[str, BySize]], figure: Figure) -> None:
    """Draws panels, by title their lines by label, that share their axes and a legend."""
    grid = figure.subplots(ceil(len(panels) / 2), 2, sharex=True, sharey=True, squeeze=False)
    names = dict.fromkeys(name for lines in panels.values() for name in lines if name not in REFERENCES)
    look = dict(zip(names, styles(len(names)), strict=True)) | REFERENCES
    handles: dict[str, object] = {}
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        handles |= {name: line(axes, points, **look[name]) for name, points in lines.items()}
        axes.set(title=title, xlabel="candidates N", ylabel="right answers")
        percent_axis(axes.yaxis)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    ticks = sorted({size for lines in panels.values() for points in lines.values() for size in points})
    grid[0, 0].set_xscale("log", base=2)
    grid[0, 0].set_xticks(ticks, labels=list(map(str, ticks)))
    legend(figure, handles)


def _draw_lanes(prm: BestOfN, shares: Sequence[float], figure: Figure) -> None:
    above, axes = figure.subplots(2, sharex=True, height_ratios=(1, 2.5))
    above.hist(shares, bins=20, range=(0, 1), color=GREY, edgecolor="white")
    above.set_ylabel("questions")
    ticks = []
    for height, vote in enumerate(reversed(STUDIED)):
        outcomes = [
            right_share(vote, each, range(len(each.classes)), VoteTerms(**dict(prm.wrf))) for each in prm.judged
        ]
        ticks.append(f"{vote}\n{percent(sum(outcomes) / len(outcomes))}")
        labels = [{0.0: "wrong", 1.0: "right"}.get(outcome, "tied") for outcome in outcomes]
        for label, (offset, style) in OUTCOMES.items():
            places = [k for k, found in enumerate(labels) if found == label]
            # the golden ratio's multiples have fractional parts that are spread evenly
            up = [height + offset + 0.3 * (k * 0.618034 % 1 - 0.5) for k in places]
            axes.scatter([shares[k] for k in places], up, s=16, label=label if height == 0 else None, **style)
    axes.set(yticks=range(len(STUDIED)), yticklabels=ticks, xlabel="right candidates (gold answer frequency)")
    axes.axvline(0.5, color=GREY, linestyle=":")
    percent_axis(axes.xaxis)
    figure.legend(loc="outside lower center", ncols=3)
