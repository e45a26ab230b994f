"""ProcessBench in the report: finding the first wrong step."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from training.evaluate.metrics import percent
from training.evaluate.processbench import PUBLISHED, SUBSETS
from training.report.blocks import Plot, Table, counted, listed, seeds
from training.report.drawing import PALETTE, legend, percent_axis, plot, styles
from training.report.found import AtThreshold, ProcessBench

HATCHES = ("", "//", "..", "\\\\", "xx", "++", "oo")
LABELLED = 16
"""Up to this many bars are labelled with their values."""


def figure(prms: Sequence[ProcessBench]) -> Plot:
    """F1 by subset at the fixed threshold, one bar per PRM."""
    results = {prm.name: prm.at["fixed"] for prm in prms}
    names = _subsets(prms)
    wide = 0.8 / len(prms)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        handles = {}
        for k, (prm, style) in enumerate(zip(prms, styles(len(prms)), strict=True)):
            subsets = results[prm.name].subsets
            places = [at + wide * (k - (len(prms) - 1) / 2) for at, name in enumerate(names) if name in subsets]
            bars = [subsets[name].f1 for name in names if name in subsets]
            heights = [bar.share.mean for bar in bars]
            fill = {
                "color": style["color"],
                "hatch": HATCHES[(k + k // len(PALETTE)) % len(HATCHES)],
                "edgecolor": "white",
            }
            handles[prm.name] = axes.bar(places, heights, 0.92 * wide, **fill)
            lows, highs = [bar.share.low for bar in bars], [bar.share.high for bar in bars]
            axes.vlines(places, lows, highs, color="#444444", linewidth=3, alpha=0.75)
            ends = [min(bar.seeds) for bar in bars], [max(bar.seeds) for bar in bars]
            axes.vlines([at + wide / 5 for at in places], *ends, color="black", linewidth=1)
            if len(prms) * len(names) <= LABELLED:
                for at, bar in zip(places, bars, strict=True):
                    axes.text(
                        at,
                        max(bar.share.high, *bar.seeds) + 0.01,
                        f"{100 * bar.share.mean:.1f}",
                        ha="center",
                        fontsize=10,
                    )
        axes.set_xticks(range(len(names)), labels=names)
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("F1")
        percent_axis(axes.yaxis)
        legend(figure, handles)

    first = prms[0].at["fixed"].subsets
    return plot(
        "processbench",
        _finding(results),
        f"Bars of F1 by subset, {listed(names)}, for {listed(results)}.",
        "F1 of naming the first wrong step of wrong solutions and none in right ones; a step is called wrong if it "
        f"scores below {_thresholds(prms[0].at['fixed'])}. Thick lines are intervals. "
        f"{counted({name: subset.wrong + subset.right for name, subset in first.items()}, 'solutions')}; "
        f"{seeds({prm.name: prm.seeds for prm in prms})}.",
        4.6,
        draw,
    )


def tables(prms: Sequence[ProcessBench]) -> tuple[Table, ...]:
    """F1 by subset, with published results if the subsets are ProcessBench's; and the shares that make up F1."""
    return _overview(prms), _details(prms)


def _finding(results: Mapping[str, AtThreshold]) -> str:
    best, *others = sorted(results, key=lambda name: -results[name].average_f1)
    average = percent(results[best].average_f1)
    if not others:
        return f"{best} finds first wrong steps with an average F1 of {average}"
    sentence = f"{best} finds first wrong steps with the highest average F1, {average}"
    mine, next_best = results[best].subsets, results[others[0]].subsets
    common = [name for name in mine if name in next_best]
    near = [
        name
        for name in common
        if mine[name].f1.share.low <= next_best[name].f1.share.high
        and next_best[name].f1.share.low <= mine[name].f1.share.high
    ]
    if not near:
        return sentence
    return f"{sentence}; its intervals overlap those of {others[0]} on {len(near)} of {len(common)} subsets"


def _overview(prms: Sequence[ProcessBench]) -> Table:
    names = _subsets(prms)
    rows = []
    for prm in prms:
        for way, result in prm.at.items():
            cells = [result.subsets[name].f1.share.in_percent if name in result.subsets else "–" for name in names]
            rows.append((prm.name, f"{_thresholds(result)} ({way})", *cells, f"{100 * result.average_f1:.1f}"))
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
        for way, result in prm.at.items():
            for name, subset in result.subsets.items():
                shares = (f"{100 * share:.1f}" for share in (subset.erroneous, subset.correct, subset.f1.share.mean))
                counts = (f"{count:,}" for count in (subset.wrong, subset.right, subset.too_long))
                rows.append((prm.name, way, name, *shares, *counts))
    columns = ("PRM", "threshold", "subset", "erroneous %", "correct %", "F1 %", "wrong", "right", "too long")
    return Table("first wrong step named exactly, right solutions left alone", columns, tuple(rows))


def _subsets(prms: Sequence[ProcessBench]) -> list[str]:
    return list(dict.fromkeys(name for prm in prms for name in prm.at["fixed"].subsets))


def _thresholds(result: AtThreshold) -> str:
    low, high = min(result.thresholds), max(result.thresholds)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
