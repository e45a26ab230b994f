"""Best of N: accuracy against the number of candidates, by vote and by PRM."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.evaluate.metrics import Share, percent
from training.evaluate.right_votes import uses_rewards
from training.report.blocks import Plot, Table, counted, lead, listed, seeds
from training.report.drawing import GREY, legend, percent_axis, plot, styles
from training.report.found import BestOfN, BySize, over_seeds
from unprm.types import Strategy
from unprm.votes.decide import STRATEGIES

REWARDED: tuple[Strategy, ...] = tuple(vote for vote in STRATEGIES if uses_rewards(vote))
_MAJORITY = {"color": GREY, "linestyle": "--", "linewidth": 1.6}
_ANY = {"color": GREY, "linestyle": ":", "linewidth": 1.6}


def plots(prms: Sequence[BestOfN]) -> tuple[Plot, ...]:
    """Two plots: one with a panel per vote, one with a panel per PRM."""
    return _by_vote(prms), _by_prm(prms)


def table(prms: Sequence[BestOfN]) -> Table:
    """Accuracy of all votes at each PRM's largest N."""
    rows = []
    for prm in prms:
        size = max(prm.any_right)
        cells = [prm.accuracy[vote][size].share.in_percent for vote in STRATEGIES]
        numbers = f"{prm.seeds}", f"{prm.questions:,}", f"{size}"
        rows.append((prm.name, *numbers, *cells, f"{100 * prm.any_right[size].share.mean:.1f}"))
    columns = ("PRM", "seeds", "questions", "N", *STRATEGIES, "any right")
    return Table("right answers in % (95 % interval)", columns, tuple(rows))


def _by_vote(prms: Sequence[BestOfN]) -> Plot:
    size = _common_size(prms)
    best = {prm.name: _best_vote(prm, size) for prm in prms}
    shares = {f"{p.name} with {best[p.name]}": p.accuracy[best[p.name]][size].share for p in prms}
    rows = -(-len(REWARDED) // 2)
    majority, any_right = _pooled([p.accuracy["majority"] for p in prms]), _pooled([p.any_right for p in prms])

    def draw(figure: Figure) -> None:
        panels = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
        handles: dict[str, Any] = {}
        for axes, vote in zip(panels.flat, REWARDED, strict=False):
            for prm, style in zip(prms, styles(len(prms)), strict=True):
                handles[prm.name] = _line(axes, prm.accuracy[vote], style)
                _whiskers(axes, prm.accuracy[vote], style)
            handles["majority"] = _line(axes, majority, _MAJORITY)
            handles["any right"] = _line(axes, any_right, _ANY)
            top = max(prms, key=lambda prm: prm.accuracy[vote][size].share.mean)
            axes.set_title(f"{vote}: {top.name} {percent(top.accuracy[vote][size].share.mean)}")
        for axes in panels.flat[len(REWARDED) :]:
            axes.set_visible(False)
        _name_axes(panels, prms)
        legend(figure, handles)

    return plot(
        "accuracy-by-vote",
        f"At N = {size} {lead(shares | {'majority': majority[size].share})}",
        f"A panel for each of {listed(REWARDED)}: accuracy against the number of candidates for "
        f"{listed(prm.name for prm in prms)}.",
        "Share of questions whose elected answer is right, against the number N of candidates, a line per PRM; "
        "majority and the share with any right candidate are means over the PRMs. In the title each PRM stands with "
        f"its best vote. {_note(prms)}.",
        0.4 + 3.6 * rows,
        draw,
    )


def _by_prm(prms: Sequence[BestOfN]) -> Plot:
    size = _common_size(prms)
    columns = 2 if len(prms) == 4 else min(3, len(prms))
    rows = -(-len(prms) // columns)
    look: dict[Strategy, dict[str, Any]] = dict(zip(REWARDED, styles(len(REWARDED)), strict=True))
    look["majority"] = _MAJORITY
    shares: dict[str, Share] = {vote: _pooled([p.accuracy[vote] for p in prms])[size].share for vote in STRATEGIES}
    among = f", on average over {len(prms)} PRMs," if len(prms) > 1 else ""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        handles: dict[str, Any] = {}
        for axes, prm in zip(panels.flat, prms, strict=False):
            best = _best_vote(prm, size)
            for vote, style in look.items():
                handles[vote] = _line(axes, prm.accuracy[vote], style)
                _whiskers(axes, prm.accuracy[vote], style)
            for vote in dict.fromkeys((best, "majority")):
                _band(axes, prm.accuracy[vote], look[vote])
            handles["any right"] = _line(axes, prm.any_right, _ANY)
            axes.set_title(f"{prm.name}\n{best} {percent(prm.accuracy[best][size].share.mean)}")
        for axes in panels.flat[len(prms) :]:
            axes.set_visible(False)
        _name_axes(panels, prms)
        legend(figure, handles)

    return plot(
        "accuracy-by-prm",
        f"At N = {size}{among} {lead(shares)}",
        f"A panel for each of {listed(prm.name for prm in prms)}: accuracy against the number of candidates for "
        f"{listed(STRATEGIES)}.",
        "Share of questions whose elected answer is right, against the number N of candidates, a line per vote; bands "
        "are the intervals of the best vote and of majority, the dotted line is the share with any right candidate. "
        f"{_note(prms)}.",
        1.9 + 3.4 * rows,
        draw,
    )


def _line(axes: Axes, points: BySize, style: Mapping[str, Any]) -> object:
    means = [point.share.mean for point in points.values()]
    return axes.plot(list(points), means, **{"markersize": 5, **style})[0]


def _whiskers(axes: Axes, points: BySize, style: Mapping[str, Any]) -> None:
    lowest, highest = ([end(point.seeds) for point in points.values()] for end in (min, max))
    axes.vlines(list(points), lowest, highest, color=style["color"], linewidth=1)


def _band(axes: Axes, points: BySize, style: Mapping[str, Any]) -> None:
    shares = [point.share for point in points.values()]
    lows, highs = [share.low for share in shares], [share.high for share in shares]
    axes.fill_between(list(points), lows, highs, color=style["color"], alpha=0.13, linewidth=0)


def _name_axes(panels: Any, prms: Sequence[BestOfN]) -> None:
    ticks = sorted({size for prm in prms for size in prm.any_right})
    for axes in panels.flat:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, labels=list(map(str, ticks)))
        axes.tick_params(labelbottom=True)
        percent_axis(axes.yaxis)
    for axes in panels[-1]:
        axes.set_xlabel("candidates N")
    for axes in panels[:, 0]:
        axes.set_ylabel("right answers")


def _pooled(prms: Sequence[BySize]) -> BySize:
    return over_seeds([{size: point.share for size, point in points.items()} for points in prms])


def _best_vote(prm: BestOfN, size: int) -> Strategy:
    return max(STRATEGIES, key=lambda vote: prm.accuracy[vote][size].share.mean)


def _common_size(prms: Sequence[BestOfN]) -> int:
    return max(set.intersection(*(set(prm.any_right) for prm in prms)))


def _note(prms: Sequence[BestOfN]) -> str:
    questions = counted({prm.name: prm.questions for prm in prms}, "questions")
    return f"{questions}; {seeds({prm.name: prm.seeds for prm in prms})}"
