"""Best of N: how often the gold answer is among a question's candidates, and which votes find it there."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.evaluate.metrics import Share, percent
from training.evaluate.right_votes import STUDIED, right_share

from .blocks import Plot, counted, lead, listed
from .drawing import GREY, RIGHT, WRONG, percent_axis, plot
from .found import BestOfN

BINS = 20
_GOLDEN = 0.618033988749895
"""The fractional parts of its multiples are spread evenly, however many there are."""


def chosen(prms: Sequence[BestOfN]) -> BestOfN | None:
    """The PRM whose candidates are shown: the first with "unprm" in its name among those with kept candidates, or else
    the first of these; None if there are none."""
    kept = [prm for prm in prms if prm.judged]
    return min(kept, key=lambda prm: "unprm" not in prm.name.casefold(), default=None)


def plots(prm: BestOfN) -> tuple[Plot, ...]:
    """The distribution of gold frequencies, and the votes' outcomes against them."""
    shares = [sum(candidates.correct) / len(candidates.correct) for candidates in prm.judged]
    return _distribution(prm, shares), _lanes(prm, shares)


def _distribution(prm: BestOfN, shares: Sequence[float]) -> Plot:
    groups = {
        "no candidate right": [share for share in shares if share == 0],
        "some": [share for share in shares if 0 < share < 1],
        "all candidates right": [share for share in shares if share == 1],
    }
    never, _, always = (len(group) / len(shares) for group in groups.values())

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.hist(
            list(groups.values()),
            bins=np.linspace(0, 1, BINS + 1).tolist(),
            stacked=True,
            label=[f"{name}: {len(group):,}" for name, group in groups.items()],
            color=[WRONG, "#bbbbbb", RIGHT],
            edgecolor="white",
        )
        _frequency_axis(axes)
        axes.set_ylabel("questions")
        axes.legend(loc="upper center")

    return plot(
        "gold-frequency",
        f"{percent(always)} of the questions have only right candidates, {percent(never)} have none",
        "Histogram of the questions by the share of their candidates that give the gold answer.",
        f"Questions by the share of their candidates that are right; a vote matters only between the ends. {_n(prm)}.",
        3.8,
        draw,
    )


def _lanes(prm: BestOfN, shares: Sequence[float]) -> Plot:
    outcomes = {
        vote: [
            right_share(vote, candidates, range(len(candidates.classes)), prm.wrf.terms) for candidates in prm.judged
        ]
        for vote in STUDIED
    }
    hard = [k for k, share in enumerate(shares) if 0 < share < 0.5]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        heights = list(reversed(range(len(STUDIED))))
        for height, vote in zip(heights, STUDIED, strict=True):
            _lane(axes, height, shares, outcomes[vote])
        ticks = [f"{vote}\n{percent(sum(outcomes[vote]) / len(shares))}" for vote in STUDIED]
        axes.set_yticks(heights, labels=ticks)
        axes.grid(visible=False)
        axes.hlines([height - 0.5 for height in heights[:-1]], 0, 1, color="#cccccc", linewidth=0.8)
        axes.axvline(0.5, color=GREY, linestyle=":", linewidth=1.2)
        _frequency_axis(axes)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[:3], labels[:3], loc="outside lower center", ncols=3, markerscale=1.8)

    if hard:
        hardest: dict[str, Share] = {vote: Share.of([outcomes[vote][k] for k in hard]) for vote in STUDIED}
        title = f"Where fewer than half of a question's candidates are right, {lead(hardest)}"
    else:
        title = "No question has a right answer in fewer than half of its candidates: every vote has it easy"
    return plot(
        "lanes",
        title,
        f"A lane for each vote, {listed(STUDIED)}: a point per question at its gold answer frequency, in the upper "
        "half of the lane if the elected answer is right, in the lower if it is wrong, between if both kinds are tied.",
        "A point per question and vote over all its candidates: up and round if the elected answer is right, down and "
        "crossed if it is wrong, a bar between where right and wrong answers are tied; the height within is only "
        "to part the points, the dotted line stands at one half. "
        f"PRM: {prm.name}. {_n(prm)}, of which {len(hard):,} with right candidates, but fewer than half.",
        6.4,
        draw,
    )


def _frequency_axis(axes: Axes) -> None:
    percent_axis(axes.xaxis)
    axes.set_xlabel("right candidates of a question (gold answer frequency)")


def _lane(axes: Axes, height: int, shares: Sequence[float], outcomes: Sequence[float]) -> None:
    labels = [{0.0: "wrong", 1.0: "right"}.get(outcome, "tied") for outcome in outcomes]
    marks: tuple[tuple[str, float, Any], ...] = (
        ("right", 0.22, {"marker": "o", "color": RIGHT, "alpha": 0.5, "linewidths": 0}),
        ("wrong", -0.22, {"marker": "x", "color": WRONG, "alpha": 0.7, "linewidths": 1}),
        ("tied", 0, {"marker": "|", "color": GREY, "alpha": 0.7, "linewidths": 1}),
    )
    for label, offset, style in marks:
        places = [k for k, found in enumerate(labels) if found == label]
        up = [height + offset + 0.3 * (k * _GOLDEN % 1 - 0.5) for k in places]
        axes.scatter([shares[k] for k in places], up, s=16, label=label, **style)


def _n(prm: BestOfN) -> str:
    sizes = {len(candidates.classes) for candidates in prm.judged}
    number = f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    return f"{counted({prm.name: len(prm.judged)}, 'questions')} with {number} candidates each"
