"""ProcessBench in the report: finding the first wrong step."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.evaluate.metrics import Share, percent
from training.evaluate.processbench import PUBLISHED, SUBSETS, Result

from .blocks import Plot, Table, counted, listed, seeds
from .drawing import PALETTE, legend, percent_axis, plot, styles
from .found import Measured, ProcessBench

HATCHES = ("", "//", "..", "\\\\", "xx", "++", "oo")
LABELLED = 16
"""Up to this many bars are labelled with their values."""


def figure(prms: Sequence[ProcessBench]) -> Plot:
    """F1 by subset at the fixed threshold, one bar per PRM."""
    names = _subsets(prms)
    width = 0.8 / len(prms)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        handles = {}
        for k, (prm, style) in enumerate(zip(prms, styles(len(prms)), strict=True)):
            offset, hatch = width * (k - (len(prms) - 1) / 2), HATCHES[(k + k // len(PALETTE)) % len(HATCHES)]
            bars = {names.index(name) + offset: _f1(prm.fixed, name) for name in prm.fixed[0].subsets}
            handles[prm.name] = _bars(axes, bars, width, color=style["color"], hatch=hatch)
            if len(prms) * len(names) <= LABELLED:
                for place, f1 in bars.items():
                    height, text = max(f1.share.high, *f1.seeds) + 0.01, f"{100 * f1.share.mean:.1f}"
                    axes.text(place, height, text, ha="center", fontsize=10)
        axes.set_xticks(range(len(names)), labels=names)
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("F1")
        percent_axis(axes.yaxis)
        legend(figure, handles)

    first = prms[0].fixed
    solutions = {name: figures.wrong + figures.right for name, figures in first[0].subsets.items()}
    return plot(
        "processbench",
        _finding(prms),
        f"Bars of F1 by subset, {listed(names)}, for {listed(prm.name for prm in prms)}.",
        "F1 of naming the first wrong step of wrong solutions and none in right ones; a step is called wrong if it "
        f"scores below {_thresholds(first)}. Thick lines are intervals. "
        f"{counted(solutions, 'solutions')}; {seeds({prm.name: len(prm.fixed) for prm in prms})}.",
        4.6,
        draw,
    )


def _bars(axes: Axes, bars: Mapping[float, Measured], width: float, **fill: Any) -> object:
    """Bars by place, with thick lines for intervals and thin ones from the lowest seed to the highest."""
    places, shares = list(bars), [bar.share for bar in bars.values()]
    drawn = axes.bar(places, [share.mean for share in shares], 0.92 * width, edgecolor="white", **fill)
    lows, highs = [share.low for share in shares], [share.high for share in shares]
    axes.vlines(places, lows, highs, color="#444444", linewidth=3, alpha=0.75)
    lowest, highest = ([end(bar.seeds) for bar in bars.values()] for end in (min, max))
    axes.vlines([place + width / 5 for place in places], lowest, highest, color="black", linewidth=1)
    return drawn


def tables(prms: Sequence[ProcessBench]) -> tuple[Table, ...]:
    """F1 by subset, with published results if the subsets are ProcessBench's; and the shares that make up F1."""
    return _overview(prms), _details(prms)


def _finding(prms: Sequence[ProcessBench]) -> str:
    best, *others = sorted(prms, key=lambda prm: -_average_f1(prm.fixed))
    average = percent(_average_f1(best.fixed))
    if not others:
        return f"{best.name} finds first wrong steps with an average F1 of {average}"
    sentence = f"{best.name} finds first wrong steps with the highest average F1, {average}"
    common = [name for name in best.fixed[0].subsets if name in others[0].fixed[0].subsets]
    pairs = [(_f1(best.fixed, name).share, _f1(others[0].fixed, name).share) for name in common]
    near = sum(first.low <= second.high and second.low <= first.high for first, second in pairs)
    if not near:
        return sentence
    return f"{sentence}; its intervals overlap those of {others[0].name} on {near} of {len(common)} subsets"


def _overview(prms: Sequence[ProcessBench]) -> Table:
    names = _subsets(prms)
    rows = []
    for prm in prms:
        for way, results in prm.at.items():
            there = results[0].subsets
            cells = [_f1(results, name).share.in_percent if name in there else "–" for name in names]
            rows.append((prm.name, f"{_thresholds(results)} ({way})", *cells, f"{100 * _average_f1(results):.1f}"))
    quoted = []
    if set(names) == set(SUBSETS):
        for model, (*values, average) in PUBLISHED.items():
            f1 = dict(zip(SUBSETS, values, strict=True))
            quoted.append((model, "published", *(f"{f1[name]:.1f}" for name in names), f"{average:.1f}"))
    columns = ("PRM", "threshold", *names, "average")
    return Table("F1 in % (95 % interval)", columns, tuple(rows), tuple(quoted))


def _details(prms: Sequence[ProcessBench]) -> Table:
    rows = []
    for prm in prms:
        for way, results in prm.at.items():
            for name, first in results[0].subsets.items():
                found = [result.subsets[name] for result in results]
                shares = (fmean(getattr(each, share) for each in found) for share in ("erroneous", "correct", "f1"))
                counts = first.wrong, first.right, max(each.too_long for each in found)
                rows.append((prm.name, way, name, *(f"{100 * s:.1f}" for s in shares), *(f"{n:,}" for n in counts)))
    columns = ("PRM", "threshold", "subset", "erroneous %", "correct %", "F1 %", "wrong", "right", "too long")
    return Table("first wrong step named exactly, right solutions left alone", columns, tuple(rows))


def _subsets(prms: Sequence[ProcessBench]) -> list[str]:
    return list(dict.fromkeys(name for prm in prms for name in prm.fixed[0].subsets))


def _f1(results: Sequence[Result], subset: str) -> Measured:
    found = [result.subsets[subset] for result in results]
    return Measured.of([Share(figures.f1, figures.f1_low, figures.f1_high) for figures in found])


def _average_f1(results: Sequence[Result]) -> float:
    return fmean(result.average_f1 for result in results)


def _thresholds(results: Sequence[Result]) -> str:
    low, high = (end(result.threshold for result in results) for end in (min, max))
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
