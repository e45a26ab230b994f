"""Every search on the same solutions: what each costs and how often it is right.

    python -m training study runs/mini/unprm-mini/selected.jsonl --output runs/study

Rollouts of a prefix are drawn once and used by every search that tries it; each search is charged what it would
have taken alone. One file of annotated solutions per search, and the tables in `study.md`.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from training import journal, stage, stats
from training.annotate import Journals, by_question, check
from training.annotator import Annotator
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
    solutions = list(journal.read(selected))
    check(solutions, selected, sampler.model)
    with ExitStack() as stack:
        runs: list[tuple[Journals, Annotator]] = []
        for name, variant in variants(settings).items():
            journals = stack.enter_context(Journals(output / f"{name}.jsonl", variant, sampler.model, selected))
            runs.append((journals, Annotator(sampler, equivalence, variant, journals.known(), journals.write)))
        done = sum(journals.is_done(solution) for journals, _ in runs for solution in solutions)
        total = len(runs) * len(solutions)
        board = stack.enter_context(stage.Board(console, "annotating by every search", total, done))

        async def work(group: list[Record]) -> None:
            memory: Memory = {}
            for journals, annotator in runs:
                journals.board = board
                missing = [solution for solution in group if not journals.is_done(solution)]
                if missing:
                    await annotator.annotate(missing, memory)

        return await stage.run(by_question(solutions), work, lambda group: str(group[0]["question"]), concurrency)


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
