"""Best of N: accuracy against the number of candidates, by vote and by PRM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.evaluate.metrics import Share, percent
from training.evaluate.right_votes import STUDIED, uses_rewards
from unprm.votes.registry import Strategy

from .blocks import Plot, Table, counted, lead, listed, seeds
from .drawing import GREY, legend, percent_axis, plot, styles
from .found import BestOfN, BySize, over_seeds

REWARDED: tuple[Strategy, ...] = tuple(vote for vote in STUDIED if uses_rewards(vote))
_MAJORITY = {"color": GREY, "linestyle": "--", "linewidth": 1.6}
_ANY = {"color": GREY, "linestyle": ":", "linewidth": 1.6}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in a panel, with whiskers from the lowest seed to the highest, or with its intervals as a `band`."""

    points: BySize
    style: Mapping[str, Any]
    whiskers: bool = True
    band: bool = False

    def draw(self, axes: Axes) -> object:
        """Draws it; returns what stands for it in a legend."""
        sizes, colour = list(self.points), self.style["color"]
        shares = [point.share for point in self.points.values()]
        (line,) = axes.plot(sizes, [share.mean for share in shares], **{"markersize": 5, **self.style})
        if self.whiskers:
            lowest, highest = ([end(point.seeds) for point in self.points.values()] for end in (min, max))
            axes.vlines(sizes, lowest, highest, color=colour, linewidth=1)
        if self.band:
            lows, highs = [share.low for share in shares], [share.high for share in shares]
            axes.fill_between(sizes, lows, highs, color=colour, alpha=0.13, linewidth=0)
        return line


Panels = dict[str, dict[str, _Line]]
"""Lines by label, by the title of their panel."""


def plots(prms: Sequence[BestOfN]) -> tuple[Plot, ...]:
    """Two plots: one with a panel per vote, one with a panel per PRM."""
    return _by_vote(prms), _by_prm(prms)


def table(prms: Sequence[BestOfN]) -> Table:
    """Accuracy of all votes at each PRM's largest N."""
    rows = []
    for prm in prms:
        size = max(prm.any_right)
        cells = [prm.accuracy[vote][size].share.in_percent for vote in STUDIED]
        numbers = f"{prm.seeds}", f"{prm.questions:,}", f"{size}"
        rows.append((prm.name, *numbers, *cells, f"{100 * prm.any_right[size].share.mean:.1f}"))
    columns = ("PRM", "seeds", "questions", "N", *STUDIED, "any right")
    return Table("right answers in % (95 % interval)", columns, tuple(rows))


def _by_vote(prms: Sequence[BestOfN]) -> Plot:
    size = _common_size(prms)
    best = {prm.name: _best_vote(prm, size) for prm in prms}
    shares = {f"{p.name} with {best[p.name]}": p.accuracy[best[p.name]][size].share for p in prms}
    majority, any_right = _pooled([p.accuracy["majority"] for p in prms]), _pooled([p.any_right for p in prms])
    panels: Panels = {}
    for vote in REWARDED:
        means = {prm.name: prm.accuracy[vote][size].share.mean for prm in prms}
        top = max(means, key=means.__getitem__)
        lines = {p.name: _Line(p.accuracy[vote], style) for p, style in zip(prms, styles(len(prms)), strict=True)}
        lines["majority"] = _Line(majority, _MAJORITY, whiskers=False)
        lines["any right"] = _Line(any_right, _ANY, whiskers=False)
        panels[f"{vote}: {top} {percent(means[top])}"] = lines
    return plot(
        "accuracy-by-vote",
        f"At N = {size} {lead(shares | {'majority': majority[size].share})}",
        f"A panel for each of {listed(REWARDED)}: accuracy against the number of candidates for "
        f"{listed(prm.name for prm in prms)}.",
        "Share of questions whose elected answer is right, against the number N of candidates, a line per PRM; "
        "majority and the share with any right candidate are means over the PRMs. In the title each PRM stands with "
        f"its best vote. {_note(prms)}.",
        0.4 + 3.6 * _rows(panels, 2),
        lambda figure: _draw(figure, panels, 2),
    )


def _by_prm(prms: Sequence[BestOfN]) -> Plot:
    size = _common_size(prms)
    columns = 2 if len(prms) == 4 else min(3, len(prms))
    look: dict[Strategy, dict[str, Any]] = dict(zip(REWARDED, styles(len(REWARDED)), strict=True))
    look["majority"] = _MAJORITY
    shares: dict[str, Share] = {vote: _pooled([p.accuracy[vote] for p in prms])[size].share for vote in STUDIED}
    among = f", on average over {len(prms)} PRMs," if len(prms) > 1 else ""
    panels: Panels = {}
    for prm in prms:
        best = _best_vote(prm, size)
        banded = (best, "majority")
        lines: dict[str, _Line] = {v: _Line(prm.accuracy[v], style, band=v in banded) for v, style in look.items()}
        lines["any right"] = _Line(prm.any_right, _ANY, whiskers=False)
        panels[f"{prm.name}\n{best} {percent(prm.accuracy[best][size].share.mean)}"] = lines
    return plot(
        "accuracy-by-prm",
        f"At N = {size}{among} {lead(shares)}",
        f"A panel for each of {listed(prm.name for prm in prms)}: accuracy against the number of candidates for "
        f"{listed(STUDIED)}.",
        "Share of questions whose elected answer is right, against the number N of candidates, a line per vote; bands "
        "are the intervals of the best vote and of majority, the dotted line is the share with any right candidate. "
        f"{_note(prms)}.",
        1.9 + 3.4 * _rows(panels, columns),
        lambda figure: _draw(figure, panels, columns),
    )


def _rows(panels: Panels, columns: int) -> int:
    return -(-len(panels) // columns)


def _draw(figure: Figure, panels: Panels, columns: int) -> None:
    """Draws panels that share their axes and a legend."""
    grid = figure.subplots(_rows(panels, columns), columns, sharex=True, sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        handles |= {label: line.draw(axes) for label, line in lines.items()}
        axes.set_title(title)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    ticks = sorted({size for lines in panels.values() for line in lines.values() for size in line.points})
    for axes in grid.flat:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, labels=list(map(str, ticks)))
        axes.tick_params(labelbottom=True)
        percent_axis(axes.yaxis)
    for axes in grid[-1]:
        axes.set_xlabel("candidates N")
    for axes in grid[:, 0]:
        axes.set_ylabel("right answers")
    legend(figure, handles)


def _pooled(prms: Sequence[BySize]) -> BySize:
    return over_seeds([{size: point.share for size, point in points.items()} for points in prms])


def _best_vote(prm: BestOfN, size: int) -> Strategy:
    return max(STUDIED, key=lambda vote: prm.accuracy[vote][size].share.mean)


def _common_size(prms: Sequence[BestOfN]) -> int:
    return max(set.intersection(*(set(prm.any_right) for prm in prms)))


def _note(prms: Sequence[BestOfN]) -> str:
    questions = counted({prm.name: prm.questions for prm in prms}, "questions")
    return f"{questions}; {seeds({prm.name: prm.seeds for prm in prms})}"
