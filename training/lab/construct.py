"""The lab's data sets: sampled and selected once, annotated by every search, with rollouts that searches share."""

from pathlib import Path

from rich.console import Console

from training import journal, records
from training.lab.settings import DataSet, LabSettings, data_sets
from training.merge import merge
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
        for selection in dict.fromkeys(own.selection for own in chosen.values()):
            selected = selected_file(output, selection)
            select(samples, selected, Selector(equivalence, sampler.decode, settings.select(selection)))
            searches = {
                name: own.labels
                for name, own in chosen.items()
                if own.selection == selection and own.labels is not None
            }
            place = output / "annotated"
            failures |= await study(selected, sampler, equivalence, place, searches, CONCURRENCY, console)
    for name, own in chosen.items():
        _data_set(name, own, output)
    return failures


def data_file(output: Path, name: str) -> Path:
    """Where a data set's solutions stand."""
    return output / "data" / name / "data" / "train.jsonl"


def selected_file(output: Path, selection: str) -> Path:
    """Where the solutions that a selection chose stand."""
    return output / f"selected-{selection}.jsonl"


def _data_set(name: str, own: DataSet, output: Path) -> None:
    if own.labels is not None:
        merge([output / "annotated" / f"{name}.jsonl"], output / "data" / name)
        return
    place = data_file(output, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    records.write(place, [_exact(told) for told in journal.read(selected_file(output, own.selection))])


def _exact(told: journal.Record) -> LabelledSolution:
    right = labels(parse(told["problem"]), told["steps"])
    return LabelledSolution(told["problem"], tuple(told["steps"]), tuple(right))
