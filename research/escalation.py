"""Escalation: small models vote, and a large one is asked where their answer is not accepted at a risk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from rich.console import Console

from training import resumable, sources
from training.evaluate import judging
from training.evaluate.acceptance import elections
from training.evaluate.bootstrap import Numbers
from training.evaluate.vote_results import in_markdown
from unprm.election.acceptance import CONFIDENCE, threshold

from .coverage import SPLITS, of_models
from .report.drawing import GREY, PALETTE, percent_axis, picture

RISKS = (0.01, 0.02, 0.05, 0.1)
COLUMNS = (
    "small models' answer taken",
    "asked the large one",
    "right (95 % of splits)",
    "cost, of always large",
    "right at this cost, chosen at random",
    "wrong of those taken (95 % of splits)",
)


@dataclass(frozen=True, slots=True)
class Tiers:
    """For each question: the certainty of the small models' vote and whether it is right, whether the large model's
    answer is, and what each costs."""

    certainty: Numbers
    right: npt.NDArray[np.bool_]
    large_right: npt.NDArray[np.bool_]
    cost: Numbers
    large_cost: Numbers


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """Of one rule, for each split: the shares of questions that went to the large model and of right answers, the cost
    as a share of always asking the large model, and the share of wrong ones among the small models' answers taken."""

    asked: Numbers
    right: Numbers
    cost: Numbers
    wrong: Numbers


def load_tiers(
    path: Path, small: Mapping[str, float], large: Mapping[str, float], output: Path, console: Console
) -> Tiers:
    """From a file as `of_models` reads it; models by name, with what a character of theirs costs."""
    by_id = {row["id"]: row for _, row in sources.from_file(path, dict[str, Any])}
    few, one = (
        sorted(
            judging.judge(of_models(path, models), None, output / name, console),
            key=lambda each: each.id,
        )
        for name, models in (("small", small), ("large", large))
    )
    votes = [
        (elections([each], "majority") if any(k is not None for k in each.classes) else [(0.0, False)])[0]
        for each in few
    ]
    return Tiers(
        np.array([certainty for certainty, _ in votes]),
        np.array([right for _, right in votes]),
        np.array([each.correct[0] for each in one]),
        *(np.array([_cost(by_id[each.id], models) for each in few]) for models in (small, large)),
    )


def _cost(row: Mapping[str, Any], models: Mapping[str, float]) -> float:
    return float(sum(models.get(each["model"], 0.0) * len(each["text"]) for each in row["candidates"]))


def outcome(tiers: Tiers, risk: float | None, fixed: float | None = None) -> RuleOutcome:
    """What comes of the rule on the halves that did not calibrate it. `risk`: the small models' answer is taken if it
    is accepted at it; None: if its certainty is at least `fixed`, always without one."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(SPLITS):
        first, second = np.split(rng.permutation(len(tiers.right)), [len(tiers.right) // 2])
        lowest = fixed or 0.0
        if risk is not None:
            known = zip(tiers.certainty[first].tolist(), tiers.right[first].tolist(), strict=True)
            calibrated = threshold(known, risk, CONFIDENCE)
            lowest = np.inf if calibrated is None else calibrated
        taken = tiers.certainty[second] >= lowest
        right = np.where(taken, tiers.right[second], tiers.large_right[second])
        cost = tiers.cost[second] + np.where(taken, 0.0, tiers.large_cost[second])
        wrong = (taken & ~tiers.right[second]).sum() / max(1, taken.sum())
        rows.append((1 - taken.mean(), right.mean(), cost.sum() / tiers.large_cost[second].sum(), wrong))
    return RuleOutcome(*np.array(rows).T)


def outcomes(tiers: Tiers) -> dict[str, RuleOutcome]:
    """By rule: always the small models, shares of them that agree, risks; and always the large one alone."""
    steps = sorted(set(tiers.certainty[tiers.certainty > 0].tolist()))
    rules = {"always": outcome(tiers, None)}
    rules |= {f"{100 * step:.0f} % agree": outcome(tiers, None, step) for step in steps}
    rules |= {f"at a risk of {100 * risk:g} %": outcome(tiers, risk) for risk in RISKS}
    alone = Tiers(tiers.certainty, tiers.right, tiers.large_right, 0 * tiers.cost, tiers.large_cost)
    return rules | {"never": outcome(alone, None, np.inf)}


def rows(by_rule: Mapping[str, RuleOutcome]) -> list[list[str]]:
    low, high = by_rule["always"], by_rule["never"]
    made = []
    for rule, one in by_rule.items():
        share = (one.cost - low.cost) / (high.cost - low.cost)
        lot = low.right + np.clip(share, 0, 1) * (high.right - low.right)
        wrong = _interval(one.wrong) if one.asked.mean() < 1 else "–"
        made.append([rule, _mean(one.asked), _interval(one.right), _mean(one.cost), _mean(lot), wrong])
    return made


def _mean(values: Numbers) -> str:
    return f"{100 * values.mean():.1f}"


def _interval(values: Numbers) -> str:
    low, high = np.quantile(values, (0.025, 0.975))
    return f"{100 * values.mean():.1f} ({100 * low:.1f}–{100 * high:.1f})"


def write(path: Path, small: Sequence[str], large: str, output: Path, console: Console) -> str:
    """Writes the table `escalation.md` and the figure `escalation.png` to a directory; returns the table."""
    few, one = (
        {name: float(cost) for name, _, cost in (each.rpartition("=") for each in models)}
        for models in (small, [large])
    )
    by_rule = outcomes(load_tiers(path, few, one, output, console))
    made = in_markdown(COLUMNS, rows(by_rule), names=1)
    figure(by_rule, output / "escalation.png")
    resumable.replace(output / "escalation.md", made)
    return made


def figure(by_rule: Mapping[str, RuleOutcome], path: Path) -> None:
    low, high = by_rule["always"], by_rule["never"]
    series: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("thresholds of the majority", "agree", {"color": PALETTE[5], "marker": "s"}),
        ("risks", "risk", {"color": PALETTE[1], "marker": "o", "linestyle": ""}),
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        labels = {"always small": (low, (8, -4)), "always large": (high, (-40, 10))}
        axes.plot(*zip(_place(low), _place(high), strict=True), color=GREY, linestyle=":", label="at random")
        for label, kind, look in series:
            points = {rule: each for rule, each in by_rule.items() if kind in rule}
            axes.plot(*zip(*map(_place, points.values()), strict=True), label=label, **look)
            if kind == "risk":
                labels |= {rule.rpartition("of ")[2]: (each, (6, -14)) for rule, each in points.items()}
        for text, (each, offset) in labels.items():
            axes.annotate(text, _place(each), textcoords="offset points", xytext=offset)
        axes.set_xlabel("cost, of always asking the large model")
        axes.set_ylabel("right answers")
        axes.margins(y=0.12)
        percent_axis(axes.xaxis)
        percent_axis(axes.yaxis)
        axes.legend(loc="lower right")

    picture(path, "Right answers against cost: risks, thresholds of the majority, and lots", "", 4.2, draw)


def _place(one: RuleOutcome) -> tuple[float, float]:
    return float(one.cost.mean()), float(one.right.mean())
