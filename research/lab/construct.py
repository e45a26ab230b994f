"""The lab's data sets: sampled once, selected once per selection, annotated by every search with shared rollouts."""

from pathlib import Path

from rich.console import Console

from training import resumable, sources
from training.data.questions import make_mini
from training.data.sample import sample
from training.data.select import Selector, select
from training.schema import LabelledSolution, ResolvedSolution, SelectedSolution
from training.stage_settings import SelectionName
from unprm.answers.equivalence import Equivalence
from unprm.mini.checker import labels
from unprm.mini.domain import parse
from unprm.types import Sampler

from ..searches.study import study
from .lab_settings import DATA_SETS, LabSettings, searches

CONCURRENCY = 32
SELECTIONS = tuple(dict.fromkeys(data_set.selection for data_set in DATA_SETS.values()))


async def construct(settings: LabSettings, sampler: Sampler, output: Path, console: Console) -> dict[str, str]:
    """Makes `output/data/NAME.jsonl` for every data set; returns the failed questions with reasons."""
    samples = output / "samples.jsonl"
    questions = make_mini(settings.questions, settings.seed)
    failures = await sample(questions, sampler, samples, settings.sample, CONCURRENCY, console)
    equivalence = Equivalence()
    for selection in SELECTIONS:
        selected = selected_file(output, selection)
        select(samples, selected, Selector(equivalence, sampler.decode, settings.select(selection)), console)
        place, chosen = annotated(output, selection), searches(settings, selection)
        failures |= await study(selected, sampler, equivalence, place, chosen, CONCURRENCY, console)
        _write_data_sets(selection, output)
    return failures


def data_file(output: Path, name: str) -> Path:
    return output / "data" / f"{name}.jsonl"


def selected_file(output: Path, selection: SelectionName) -> Path:
    return output / f"selected-{selection}.jsonl"


def annotated(output: Path, selection: SelectionName) -> Path:
    """The directory of a selection's annotated solutions, a file per search. The report shows the paper's selection."""
    return output / ("annotated" if selection == "uncertainty" else f"annotated-{selection}")


def _write_data_sets(selection: SelectionName, output: Path) -> None:
    """Writes the data sets of one selection; all hold the same solutions: those that every search could label."""
    sets = {name: data_set for name, data_set in DATA_SETS.items() if data_set.selection == selection}
    labels_by_set = {
        name: {
            solution.id: solution.labels
            for solution in sources.read(annotated(output, selection) / f"{data_set.search}.jsonl", ResolvedSolution)
        }
        for name, data_set in sets.items()
        if data_set.search
    }
    common = set.intersection(*map(set, labels_by_set.values()))
    selected = sources.read(selected_file(output, selection), SelectedSolution)
    chosen = [solution for solution in selected if solution.id in common]
    for name in sets:
        given = labels_by_set.get(name) or {s.id: tuple(labels(parse(s.problem), s.steps)) for s in chosen}
        solutions = (LabelledSolution(s.problem, s.steps, given[s.id]) for s in chosen)
        resumable.write_lines(data_file(output, name), solutions)
