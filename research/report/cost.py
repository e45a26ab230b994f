"""Annotation cost of the searches, compared with the paper's baseline search."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from training.data import stats
from training.evaluate.metrics import percent

from ..searches import truth
from ..searches.study import BASELINE
from .blocks import Plot, Table, counted, listed
from .drawing import GREY, PALETTE, percent_axis, plot
from .found import Annotation

PerSolution = dict[str, float]
"""Cost per solution by run, the run with the most samples first; relative to the baseline if there is one."""


def figure(runs: Sequence[Annotation]) -> Plot:
    """Samples and tokens per solution, as shares of the baseline's if there is one."""
    baseline = _baseline(runs)
    panels = _panels(runs, baseline)

    def draw(figure: Figure) -> None:
        for axes, (what, costs) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
            colours = [GREY if name == baseline else PALETTE[0] for name in costs]
            bars = axes.barh(list(costs), list(costs.values()), color=colours)
            numbers = [f"{100 * cost:.0f} %" if baseline else f"{cost:,.1f}" for cost in costs.values()]
            axes.set_title(f"{what} per solution")
            axes.set_xlim(0, 1.2 * max(*costs.values(), 1e-9))
            axes.grid(visible=False, axis="y")
            if baseline:
                axes.axvline(1, color=GREY, linestyle="--", linewidth=1)
                axes.set_xlabel(f"share of {baseline}")
                percent_axis(axes.xaxis)
            axes.bar_label(bars, numbers, padding=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})

    return plot(
        "cost",
        _finding(panels["samples"], baseline, _comparable(runs, baseline)),
        f"Horizontal bars of samples and of tokens per solution for {listed(run.name for run in runs)}.",
        "Rollouts that were drawn to verify steps, and their tokens, per solution, without those for τ; shorter is "
        f"cheaper. {counted({run.name: run.costs.solutions for run in runs}, 'solutions')}.",
        1.7 + 0.36 * len(runs),
        draw,
    )


def tables(runs: Sequence[Annotation]) -> tuple[Table, ...]:
    """Cost, statistics of the data and, for problems of the checker's domain, agreement with the exact checker."""
    paths = [run.path for run in runs]
    return tuple(Table.of(table) for table in (*stats.tables(paths), truth.table(paths)) if table.row_count)


def _baseline(runs: Sequence[Annotation]) -> str | None:
    """The run of the baseline search with the shortest name: variants that save rollouts append to it."""
    names = [run.name for run in runs if run.search == BASELINE and run.costs.samples]
    return min(names, key=lambda name: (len(name), name), default=None)


def _comparable(runs: Sequence[Annotation], baseline: str | None) -> list[str]:
    """Names of the runs that verified steps and whose solutions were selected in the same way as the baseline's."""
    ways = {run.selected for run in runs if baseline in (None, run.name)}
    return [run.name for run in runs if run.costs.verified and run.selected in ways]


def _panels(runs: Sequence[Annotation], baseline: str | None) -> dict[str, PerSolution]:
    dearest_first = sorted(runs, key=lambda run: run.costs.samples / max(1, run.costs.solutions), reverse=True)
    return {what: _per_solution(dearest_first, what, baseline) for what in ("samples", "tokens")}


def _per_solution(runs: Sequence[Annotation], what: str, baseline: str | None) -> PerSolution:
    costs = {run.name: getattr(run.costs, what) / max(1, run.costs.solutions) for run in runs}
    unit = costs[baseline] if baseline else 1
    return {name: cost / unit for name, cost in costs.items()}


def _finding(samples: PerSolution, baseline: str | None, verifying: Sequence[str]) -> str:
    if not verifying:
        return "No run verified a step, so none drew a rollout for it"
    least = min(verifying, key=samples.__getitem__)
    sentence = f"{least} draws the fewest samples of all that verify steps"
    if baseline is None:
        return f"{sentence}: {samples[least]:,.1f} per solution"
    if least == baseline:
        return sentence
    return f"{sentence}: {percent(1 - samples[least])} fewer than {baseline}"
