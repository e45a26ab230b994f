"""The lab's data sets: sampled and selected once, annotated by every search, with rollouts that searches share."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from training import journal, records
from training.lab.settings import DataSet, LabSettings, data_sets
from training.questions import make_mini
from training.records import LabelledSolution
from training.sample import sample
from training.select import Selector, select
from training.study import study
from unprm.equivalence import Equivalence
from unprm.mini.checker import labels
from unprm.mini.domain import parse
from unprm.types import Sampler

CONCURRENCY = 32


async def construct(settings: LabSettings, sampler: Sampler, output: Path, console: Console) -> dict[str, str]:
    """Makes `output/data/NAME.jsonl` for every data set; returns the questions that failed, with reasons."""
    chosen = data_sets(settings)
    samples = output / "samples.jsonl"
    questions = make_mini(settings.questions, settings.seed)
    failures = await sample(questions, sampler, samples, settings.sample, CONCURRENCY, console)
    with Equivalence() as equivalence:
        selections = dict.fromkeys(own.selection for own in chosen.values())
        for selection in selections:
            selected = selected_file(output, selection)
            select(samples, selected, Selector(equivalence, sampler.decode, settings.select(selection)), console)
            searches = {
                name: own.labels
                for name, own in chosen.items()
                if own.selection == selection and own.labels is not None
            }
            place = output / "annotated"
            failures |= await study(selected, sampler, equivalence, place, searches, CONCURRENCY, console)
    for selection in selections:
        _write_data_sets({name: own for name, own in chosen.items() if own.selection == selection}, output)
    return failures


def data_file(output: Path, name: str) -> Path:
    """Where a data set's solutions stand."""
    return output / "data" / f"{name}.jsonl"


def selected_file(output: Path, selection: str) -> Path:
    """Where the solutions that a selection chose stand."""
    return output / f"selected-{selection}.jsonl"


def _write_data_sets(sets: Mapping[str, DataSet], output: Path) -> None:
    """Data sets of one selection hold the same solutions: those that each of their searches could label."""
    labelled = {name: _labels(output, name) for name, own in sets.items() if own.labels is not None}
    common = set.intersection(*(set(own) for own in labelled.values()))
    (selection,) = {own.selection for own in sets.values()}
    chosen = [told for told in journal.read(selected_file(output, selection)) if told["id"] in common]
    for name in sets:
        place = data_file(output, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        own = labelled.get(name) or {told["id"]: labels(parse(told["problem"]), told["steps"]) for told in chosen}
        records.write(
            place,
            [LabelledSolution(told["problem"], tuple(told["steps"]), tuple(own[told["id"]])) for told in chosen],
        )


def _labels(output: Path, name: str) -> dict[str, list[bool]]:
    return {told["id"]: told["labels"] for told in journal.read(output / "annotated" / f"{name}.jsonl")}
