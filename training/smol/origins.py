"""Where the data of the study on SmolLM2 comes from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

EASY = Path(__file__).parent / "easy.jsonl.gz"
"""Questions of SVAMP and MAWPS (MIT), with their equations."""


@dataclass(frozen=True, slots=True)
class SmolSources:
    """The data sets: files, or names on the hub. Only `easy` and `gsm8k` train; the others measure."""

    easy: Annotated[Path, Option(help="Easy word problems with `problem`, `answer`, `equation`.")] = EASY
    gsm8k: Annotated[str, Option(help="GSM8K: a file with `question`, `answer`, `solution`, or the hub's.")] = (
        "openai/gsm8k"
    )
    processbench: Annotated[str, Option(help="ProcessBench's GSM8K: a file, or the hub's.")] = "Qwen/ProcessBench"
    teachers: Annotated[
        Path | None, Option(help="Solutions with first errors by teachers: `problem`, `steps`, `first_error_0based`.")
    ] = None
    others: Annotated[Path | None, Option(help="More easy word problems, which only measure.")] = None
