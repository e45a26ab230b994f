"""Best of N in the report: accuracy against the number of candidates."""

from collections.abc import Mapping
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from training.evaluate.right_votes import STUDIED, uses_rewards
from training.evaluate.vote_results import in_markdown

from .drawing import GREY, legend, line, percent_axis, picture, styles
from .results import BySize, PrmVotes, averaged

REFERENCES: dict[str, dict[str, Any]] = {
    "majority": {"color": GREY, "linestyle": "--"},
    "any right": {"color": GREY, "linestyle": ":"},
}


def table(prms: Mapping[str, PrmVotes]) -> str:
    """Accuracy of all votes at each PRM's largest N."""
    rows = []
    for name, prm in prms.items():
        size = max(prm.any_right)
        shares = [prm.accuracy[vote][size].in_percent for vote in STUDIED]
        rows.append([name, prm.seeds, prm.questions, size, *shares, prm.any_right[size].in_percent])
    columns = ("PRM", "seeds", "questions", "N", *STUDIED, "any right")
    return f"Right answers in % (95 % interval):\n\n{in_markdown(columns, rows, names=1)}"


def plot(prms: Mapping[str, PrmVotes], figures: Path) -> str:
    """Accuracy with a panel per vote, where the references are means over the PRMs."""
    by_prm = {name: {**prm.accuracy, "any right": prm.any_right} for name, prm in prms.items()}
    means = {name: averaged([lines[name] for lines in by_prm.values()]) for name in REFERENCES}
    panels = {
        vote: {name: lines[vote] for name, lines in by_prm.items()} | means for vote in filter(uses_rewards, STUDIED)
    }
    counts = sorted({f"{prm.questions:,}" for prm in prms.values()}, key=len)
    return picture(
        figures / "accuracy-by-vote.png",
        "Right answers by number of candidates, a panel per vote",
        "Share of questions whose elected answer is right, and share with any right candidate; whiskers are 95 % "
        f"intervals over n = {' or '.join(counts)} questions, averaged over the training seeds of a PRM.",
        0.4 + 3.6 * ceil(len(panels) / 2),
        partial(_draw, panels),
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
