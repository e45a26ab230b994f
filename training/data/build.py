"""The whole data pipeline in one directory: samples, selection and annotation per model, and the merged data set."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from unprm.answers.equivalence import Equivalence
from unprm.errors import RecordInvalid
from unprm.types import Sampler, SamplingSettings

from ..stage_settings import Preset
from .annotate import annotate
from .merge import merge
from .sample import Question, sample
from .select import Selector, select

_NONE_RIGHT = (
    "none of the solutions of {} questions is right, and steps are labelled by how often the model solves them: try a "
    "stronger --model, easier --questions, a larger --k, or another --extraction if answers are not found"
)

Loader = Callable[[str, SamplingSettings], Sampler]
"""Makes a sampler from a model's name and sampling settings."""


async def build(
    questions: list[Question], load: Loader, preset: Preset, output: Path, concurrency: int, console: Console
) -> dict[str, str]:
    """Runs every stage for every model of the preset, reusing the results of an earlier run.

    Writes `output/MODEL/{samples,selected,annotated}.jsonl` and the data set `output/dataset`. Returns the failed
    questions with reasons; the data set is made without them. Raises `RecordInvalid` if a model solves no question.
    """
    failures: dict[str, str] = {}
    annotated = []
    equivalence = Equivalence()
    for model in preset.models:
        place = output / model.replace("/", "--")
        sampler = load(model, preset.sample.drawing)
        try:
            failed = await sample(questions, sampler, place / "samples.jsonl", preset.sample, concurrency, console)
            selector = Selector(equivalence, sampler.decode, preset.select)
            solved, asked = select(place / "samples.jsonl", place / "selected.jsonl", selector, console)
        finally:
            await sampler.close()
        if asked and not solved:
            left = f"; {len(failed)} more failed: {next(iter(failed.values()))}" if failed else ""
            raise RecordInvalid(str(place / "samples.jsonl"), 0, _NONE_RIGHT.format(asked) + left)
        failures |= failed
        made = place / "annotated.jsonl"
        sampler = load(model, preset.annotate.drawing)  # rollouts may be longer than solutions
        try:
            failures |= await annotate(
                place / "selected.jsonl", sampler, equivalence, made, preset.annotate, concurrency, console
            )
        finally:
            await sampler.close()
        annotated.append(made)
    console.print(f"{output / 'dataset'}: {merge(annotated, output / 'dataset')}")
    return failures
