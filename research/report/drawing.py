"""Common style of all figures."""

from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from training.evaluate.metrics import Share

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colour-blind safe palette of Okabe and Ito, without yellow, which is hardly visible on white."""
GREY = "#666666"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)))
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "font.size": 11,
    "axes.titlesize": "medium",
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    # dollar signs in names are not formulas
    "text.parse_math": False,
}


def styles(count: int) -> list[dict[str, Any]]:
    """Colour, marker and line style of `count` series; up to 21 are all different."""
    series = zip(cycle(PALETTE), cycle(_MARKERS), (line for line in cycle(_LINES) for _ in PALETTE), strict=False)
    return [{"color": c, "marker": m, "linestyle": line} for c, m, line in islice(series, count)]


def picture(path: Path, title: str, caption: str, height: float, draw: Callable[[Figure], None]) -> str:
    """Writes a plot as PNG: calls `draw` on an empty figure, `height` inches high, and puts the title above it. Returns
    the picture and its caption in Markdown, for a page in the directory above."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, height), layout="constrained")
        draw(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    return f"![{title}]({path.parent.name}/{path.name})\n\n{caption}\n"


def line(axes: Axes, points: Mapping[int, Share] | Mapping[float, Share], **style: Any) -> object:
    """A line through the means, with whiskers for their intervals; returns what stands for it in a legend."""
    shares = points.values()
    (drawn,) = axes.plot(list(points), [share.mean for share in shares], markersize=5, **style)
    lows, highs = [share.low for share in shares], [share.high for share in shares]
    axes.vlines(list(points), lows, highs, color=style["color"], linewidth=0.8)
    return drawn


def legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """One legend for all panels, below them."""
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)


def percent_axis(axis: Axis) -> None:
    """Ticks in percent for shares in [0, 1]."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
