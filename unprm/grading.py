"""Grades answers in a terminal, without a server.

unprm grade pairs.jsonl
"""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer
from pydantic import ValidationError

from unprm.commands import program, run
from unprm.library import grade as graded
from unprm.types import Extraction
from unprm.validation_messages import summary, validation_errors
from unprm.wire import EXTRACTION, MAX_SOLUTIONS, PairIn

app = program("Grades answers in a terminal, without a server.")


@app.command()
def grade(
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(help='A line for each answer: {"answer" or "text": …, "gold": …}.')
    ] = "-",  # type: ignore[assignment]
    extraction: Annotated[Extraction, typer.Option(help=EXTRACTION)] = "auto",
) -> None:
    """Grades answers by the right ones, without a server.

    Prints a grade in JSON for each line, and to stderr how many are right. `gold` may be a list.
    """
    counts, pairs = Counter[str](), _read(file)
    while part := list(islice(pairs, MAX_SOLUTIONS)):
        for verdict in graded(part, extraction=extraction):
            print(verdict.model_dump_json())
            facts = {"right": verdict.correct, "without": verdict.answer is None, "late": verdict.compared_as_text}
            counts.update(["all", *(name for name, holds in facts.items() if holds)])
    late_ones = f", {counts['late']} compared as text for lack of time" if counts["late"] else ""
    print(
        f"{counts['right']} of {counts['all']} right, {counts['without']} without an answer{late_ones}", file=sys.stderr
    )


def _read(file: typer.FileBinaryRead) -> Iterator[PairIn]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield PairIn.model_validate_json(line)
            except ValidationError as error:
                detail = summary(validation_errors(error, {}))
                raise typer.BadParameter(f"line {number}: {detail}", param_hint="file") from None


if __name__ == "__main__":
    run(app)
