"""Every search on the same solutions: what each costs and how often it is right.

    python -m training study runs/mini/unprm-mini/selected.jsonl --output runs/study

Rollouts of a prefix are drawn once and used by every search that tries it; each search is charged what it would
have taken alone. One file of annotated solutions per search, and the tables in `study.md`.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from training import journal, stage, stats
from training.annotate import Journals, by_question, check
from training.annotator import Annotator
from training.journal import Record
from training.metrics import percent
from training.rollouts import Memory
from training.settings import AnnotateSettings
from unprm.equivalence import Equivalence
from unprm.types import Sampler
from unprm.uncertainty import MEASURES

BASELINE = "adaptive_binary"
"""The search that the paper measures its savings against."""
COLUMNS = ("search", "verified steps", "samples", "tokens", f"samples saved against {BASELINE}",
           *stats.Ranks.COLUMNS, *stats.Agreement.COLUMNS, "labelled as without saving")  # fmt: skip


def variants(settings: AnnotateSettings) -> dict[str, AnnotateSettings]:
    """The searches that are compared, by name; the rest of the settings is common to all.

    What follows a `+` in a name is a way of saving rollouts that the search before it does without.
    """
    paper = replace(settings, search="uncertainty", measure="entropy")
    made = {"uncertainty": paper, "uncertainty-literal": replace(paper, search="uncertainty-literal")}
    made |= {f"uncertainty-{name}": replace(paper, measure=name) for name in MEASURES if name != paper.measure}
    made |= {name: replace(paper, search=name) for name in ("adaptive_binary", "sequential", "random")}
    best = "surprisal_max"
    made["bayes"] = replace(settings, search="bayes", measure=best)
    made["bayes-flat"] = replace(made["bayes"], bayes=replace(settings.bayes, strength=0.0))
    for name in (f"uncertainty-{best}", BASELINE):
        for confidence in (1.0, 0.95):
            made[f"{name}+early-{confidence:g}"] = replace(made[name], early_stop=confidence)
    return made


async def study(
    selected: Path,
    sampler: Sampler,
    equivalence: Equivalence,
    output: Path,
    searches: Mapping[str, AnnotateSettings],
    concurrency: int,
    console: Console,
) -> dict[str, str]:
    """Annotates a file of selected solutions by every search, into `output/NAME.jsonl`; returns the questions that
    failed, with reasons."""
    solutions = list(journal.read(selected))
    check(solutions, selected, sampler.model)
    with ExitStack() as stack:
        runs: list[tuple[Journals, Annotator]] = []
        for name, variant in searches.items():
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


def rows(output: Path) -> list[list[str]]:
    """The study's table, one row per search with the cells of `COLUMNS`."""
    paths = ((name, output / f"{name}.jsonl") for name in variants(AnnotateSettings()))
    runs = {name: path for name, path in paths if path.exists()}
    records = {name: stats.load(path) for name, path in runs.items()}
    costs = {name: stats.costs(path) for name, path in runs.items()}
    return [
        [name, *_costs(cost, costs[BASELINE]), *_truth(records[name]), _kept(name, records)]
        for name, cost in costs.items()
    ]


def report(output: Path) -> str:
    """The study's table in Markdown."""
    lines = [COLUMNS, ("---", *["--:"] * (len(COLUMNS) - 1)), *rows(output)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _costs(cost: stats.Costs, baseline: stats.Costs) -> list[str]:
    saved = percent(1 - cost.samples / baseline.samples) if baseline.samples else "–"
    return [*(f"{number:,}" for number in (cost.verified, cost.samples, cost.tokens)), saved]


def _truth(records: Sequence[Record]) -> list[str]:
    ranks, agreed = stats.ranks(records), stats.agreement(records)
    return [
        *(ranks.cells() if ranks else ["–"] * len(stats.Ranks.COLUMNS)),
        *([percent(share) for share in agreed.shares()] if agreed else ["–"] * len(stats.Agreement.COLUMNS)),
    ]


def _kept(name: str, records: Mapping[str, Sequence[Record]]) -> str:
    """Share of the solutions that a way of saving rollouts labels as the search does without."""
    whole, _, saving = name.partition("+")
    return percent(stats.same_outcome(records[name], records[whole])) if saving else ""
