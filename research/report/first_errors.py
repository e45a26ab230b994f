"""ProcessBench in the report: finding the first wrong step."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from training.evaluate.processbench import PUBLISHED, SUBSETS, THRESHOLD
from training.evaluate.vote_results import in_markdown

from .drawing import legend, line, percent_axis, picture, styles
from .found import ProcessBench


def table(prms: Mapping[str, ProcessBench]) -> str:
    """F1 by subset, beside published results if the subsets are ProcessBench's."""
    names, rows = _subsets(prms), []
    for prm, measured in prms.items():
        for way, at in measured.items():
            cells = [at.f1[name].in_percent if name in at.f1 else "–" for name in names]
            rows.append([prm, f"{at.threshold:.3g} ({way})", *cells, f"{100 * at.average_f1:.1f}"])
    if set(names) == set(SUBSETS):
        for model, (*values, average) in PUBLISHED.items():
            f1 = dict(zip(SUBSETS, values, strict=True))
            rows.append([model, "published", *(f"{f1[name]:.1f}" for name in names), f"{average:.1f}"])
    return f"F1 in % (95 % interval):\n\n{in_markdown(('PRM', 'threshold', *names, 'average'), rows)}"


def plot(prms: Mapping[str, ProcessBench], figures: Path) -> str:
    """F1 by subset at the fixed threshold, a mark per PRM."""
    solutions = ", ".join(f"{count:,} ({name})" for name, count in next(iter(prms.values()))["fixed"].solutions.items())
    return picture(
        figures / "processbench.png",
        "F1 of the first wrong step, by subset",
        "Naming the first wrong step of wrong solutions and none in right ones; a step is called wrong if it scores "
        f"below {THRESHOLD:g}. Whiskers are 95 % intervals over the solutions, averaged over the training seeds of a "
        f"PRM. n = {solutions}.",
        4.6,
        partial(_draw, prms),
    )


def _draw(prms: Mapping[str, ProcessBench], figure: Figure) -> None:
    axes, names, handles = figure.subplots(), _subsets(prms), {}
    for k, ((prm, measured), style) in enumerate(zip(prms.items(), styles(len(prms)), strict=True)):
        offset = 0.8 / len(prms) * (k - (len(prms) - 1) / 2)
        points = {names.index(name) + offset: f1 for name, f1 in measured["fixed"].f1.items()}
        handles[prm] = line(axes, points, **style | {"linestyle": ""})
    axes.set(xticks=range(len(names)), xticklabels=names, ylim=(0, None), ylabel="F1")
    percent_axis(axes.yaxis)
    legend(figure, handles)


def _subsets(prms: Mapping[str, ProcessBench]) -> list[str]:
    return list(dict.fromkeys(name for measured in prms.values() for name in measured["fixed"].solutions))
