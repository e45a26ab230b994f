"""Runs every search on the same solutions, to compare their costs and how often they are right.

    python -m research study runs/mini/unprm-mini/selected.jsonl --output runs/study

Rollouts of a prefix are drawn once and used by every search that tries it; each search is charged the rollouts it
would have drawn on its own. Writes one file of annotated solutions per search, and the tables in `study.md`.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from training import stage
from training.data.annotate import AnnotationFiles, by_question, read_selected
from training.data.annotator import Annotator, Memory
from training.schema import SelectedSolution
from training.stage_settings import AnnotateSettings
from unprm.answers.equivalence import Equivalence
from unprm.types import Sampler
from unprm.uncertainty import MEASURES

BASELINE = "adaptive_binary"
"""The search against which the paper measures its savings."""


def variants(settings: AnnotateSettings) -> dict[str, AnnotateSettings]:
    """The searches that are compared, by name; all other settings are common."""
    paper = replace(settings, search="uncertainty", measure="entropy")
    made = {"uncertainty": paper, "uncertainty-literal": replace(paper, search="uncertainty-literal")}
    made |= {f"uncertainty-{name}": replace(paper, measure=name) for name in MEASURES if name != paper.measure}
    made |= {name: replace(paper, search=name) for name in ("adaptive_binary", "sequential", "random")}
    made["bayes"] = replace(settings, search="bayes", measure="surprisal_max")
    made["bayes-flat"] = replace(made["bayes"], bayes=replace(settings.bayes, strength=0.0))
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
    """Annotates a file of selected solutions by every search, into `output/NAME.jsonl`; returns the failed questions
    with reasons."""
    solutions = read_selected(selected, sampler.model)
    with ExitStack() as stack:
        runs: list[tuple[AnnotationFiles, Annotator]] = []
        for name, variant in searches.items():
            files = stack.enter_context(AnnotationFiles(output / f"{name}.jsonl", variant, sampler, selected))
            known = files.questions.records
            runs.append((files, Annotator(sampler, equivalence, variant, known, files.write, files.drawn)))
        total = sum(not files.is_done(solution) for files, _ in runs for solution in solutions)
        board = stack.enter_context(stage.Board(console, "annotating by every search", total))

        async def work(group: list[SelectedSolution]) -> None:
            memory: Memory = {}
            for files, annotator in runs:
                files.board = board
                missing = [solution for solution in group if not files.is_done(solution)]
                if missing:
                    await annotator.annotate(missing, memory)

        return await stage.process(by_question(solutions), work, lambda group: group[0].question, concurrency)
