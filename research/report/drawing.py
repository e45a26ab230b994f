"""Common style of all figures, and their rendering as PNG."""

import textwrap
from collections.abc import Callable, Mapping
from io import BytesIO
from itertools import cycle, islice
from typing import Any

import matplotlib
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .blocks import Plot

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colour-blind safe palette of Okabe and Ito, without yellow, which is hardly visible on white."""
GREY = "#666666"
RIGHT, WRONG = PALETTE[0], PALETTE[1]
WIDTH = 10.0
"""Width of a figure in inches."""
DPI = 150
TITLE = 92
"""Characters per line of the title."""
LEGEND = 110
"""Characters per line of the legend; each entry takes 8 of them for its mark and spacing."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)))
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 11,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    # dollar signs in names are not formulas
    "text.parse_math": False,
}


def styles(count: int) -> list[dict[str, Any]]:
    """Colour, marker and line style of `count` series; up to 21 are all different."""
    series = zip(cycle(PALETTE), cycle(_MARKERS), (line for line in cycle(_LINES) for _ in PALETTE), strict=False)
    return [{"color": c, "marker": m, "linestyle": line} for c, m, line in islice(series, count)]


def plot(name: str, title: str, alt: str, caption: str, height: float, draw: Callable[[Figure], None]) -> Plot:
    """Makes a plot: calls `draw` on an empty figure, `height` inches high, and puts the title above it."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        figure.suptitle(textwrap.fill(title, TITLE), x=0.01, ha="left", fontsize=13, fontweight="bold")
        picture = BytesIO()
        figure.savefig(picture, format="png", dpi=DPI)
    return Plot(name, title, f"{title}. {alt}", caption, picture.getvalue())


def legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """One legend for all panels, below them."""
    columns = max(1, min(len(handles), LEGEND // (max(map(len, handles)) + 8)))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def percent_axis(axis: Axis) -> None:
    """Ticks in percent for shares in [0, 1]."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
