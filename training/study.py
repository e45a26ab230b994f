"""Every search on the same solutions: what each costs and how often it is right.

    python -m training study runs/mini/unprm-mini/selected.jsonl --output runs/study

Rollouts of a prefix are drawn once and used by every search that tries it; each search is charged what it would
have taken alone. One file of annotated solutions per search, and the tables in `study.md`.
"""

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rich.console import Console

from training import journal, stage, stats
from training.annotate import Annotator
from training.journal import Record
from training.rollouts import Memory
from training.settings import AnnotateSettings
from unprm.equivalence import Equivalence
from unprm.types import Sampler
from unprm.uncertainty import MEASURES


def variants(settings: AnnotateSettings) -> dict[str, AnnotateSettings]:
    """The searches that are compared, by name; the rest of the settings is common to all."""
    made = {f"uncertainty-{measure}": replace(settings, search="uncertainty", measure=measure) for measure in MEASURES}
    made |= {name: replace(settings, search=name) for name in ("adaptive_binary", "sequential", "random")}
    best = "surprisal_max"
    made["bayes"] = replace(settings, search="bayes", measure=best)
    made["bayes-flat"] = replace(made["bayes"], bayes=replace(settings.bayes, strength=0.0))
    for confidence in (1.0, 0.95):
        made[f"uncertainty-{best}-early-{confidence:g}"] = replace(made[f"uncertainty-{best}"], early_stop=confidence)
        made[f"adaptive_binary-early-{confidence:g}"] = replace(made["adaptive_binary"], early_stop=confidence)
    return made


async def study(
    selected: Path,
    sampler: Sampler,
    equivalence: Equivalence,
    output: Path,
    settings: AnnotateSettings,
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Annotates a file of selected solutions by every variant; returns the questions that failed, with reasons."""
    source = json.loads(journal.config_path(selected).read_text("utf-8"))
    solutions = list(journal.read(selected))
    with ExitStack() as stack:
        annotators = [
            stack.enter_context(Annotator(sampler, equivalence, variant, output / f"{name}.jsonl", source))
            for name, variant in variants(settings).items()
        ]
        done = sum(annotator.is_done(solution) for annotator in annotators for solution in solutions)
        total = len(annotators) * len(solutions)
        questions = [list(group) for _, group in groupby(solutions, key=lambda solution: solution["question"])]
        board = stack.enter_context(stage.Board(console, "annotating by every search", total, done))

        async def work(group: list[Record]) -> None:
            memory: Memory = {}
            for annotator in annotators:
                missing = [solution for solution in group if not annotator.is_done(solution)]
                if missing:
                    await annotator.annotate(missing, board, memory)

        return await stage.run(questions, work, lambda group: str(group[0]["question"]), concurrency)


def report(output: Path) -> str:
    """The study's tables in Markdown, one row per search."""
    columns = ("search", "verified steps", "samples", "tokens", *stats.Agreement.COLUMNS)
    rows = [f"| {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    for path in sorted(output.glob("*.jsonl")):
        if path.stem.endswith((".unresolved", ".questions")):
            continue
        cost, agreed = stats.costs(path), stats.agreement(stats.load(path))
        shares = [f"{100 * share:.1f} %" for share in agreed.shares()] if agreed else []
        numbers = [f"{number:,}" for number in (cost.verified, cost.samples, cost.tokens)]
        rows.append(f"| {path.stem} | " + " | ".join([*numbers, *(shares or ["–"] * 4)]) + " |")
    return "\n".join(rows) + "\n"
