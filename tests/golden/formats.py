"""Files of every format that is written, small ones, each by its real writer from what that of the one before wrote.

What writes solutions is a script, and what scores them a fake.
"""

import asyncio
import io
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

from rich.console import Console

from server.journal import Entry, Journal
from tests.fake_engine import FakeEngine
from tests.golden.kept import rounded
from tests.support import TEST_DATA
from tests.training.scripted import ScriptedSampler
from training.data.annotate import annotate
from training.data.merge import merge
from training.data.sample import make_mini, sample
from training.data.select import Selector, select
from training.evaluate import acceptance, best_of_n, pool, prmbench, processbench, trajectories
from training.evaluate.scorers import EngineScorer
from training.layouts.files import WRITERS, convert, read_labelled
from training.schema import to_line
from training.stage_settings import AnnotateSettings, SampleSettings, SelectSettings
from unprm import mini
from unprm.answers.equivalence import Equivalence
from unprm.calibration import Calibration
from unprm.formats.unprm import PrmConfig
from unprm.trajectories import Reading

PUBLISHED = "math-shepherd.jsonl", "prm800k.jsonl", "prm800k-alternatives.jsonl.gz", "prmbench.jsonl", "unprm.jsonl"
"""Of `tests/data/layouts`: those whose rows are all good."""
STEPS = ["Step 1: 1 + 1 = 2.", "Step 2: The answer is 2."]
POOL = [
    {
        "id": f"q{number}",
        "problem": f"What is {number} + 2?",
        "answer": str(number + 2),
        "candidates": [
            {"text": f"We add.\n\nThe answer is \\boxed{{{number + 2}}}.", "confidence": 0.75},
            {"steps": [f"{number} + 2 = {number + 3}.", f"Answer: {number + 3}"], "token_logprobs": [-0.5, -0.25]},
            {"text": f"#### {number + 2}.0"},
            {"text": "I don't know."},
        ],
    }
    for number in range(1, 4)
]


def formats(directory: Path) -> dict[str, str]:
    """All files, as they lie in the directory."""
    asyncio.run(_data(directory / "data"))
    _layouts(directory / "layouts")
    _evaluations(directory / "evaluations")
    _models(directory / "models")
    found = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    return {name: rounded(path.read_text("utf-8")) for name, path in sorted(found.items())}


async def _data(place: Path) -> None:
    console, equivalence, sampler = Console(file=io.StringIO()), Equivalence(), ScriptedSampler()
    samples, selected, annotated = (place / f"{name}.jsonl" for name in ("samples", "selected", "annotated"))
    assert not await sample(make_mini(1, seed=1), sampler, samples, SampleSettings(k=4), 1, console)
    select(samples, selected, Selector(equivalence, sampler.decode, SelectSettings()), console)
    assert not await annotate(selected, sampler, equivalence, annotated, AnnotateSettings(), 1, console)
    merge([annotated], place / "dataset")


def _layouts(place: Path) -> None:
    native = place / "read" / "native.jsonl"
    for name in PUBLISHED:
        solutions = islice(read_labelled([TEST_DATA / "layouts" / name]), 2)
        _write(place / "read" / name.removesuffix(".gz"), map(to_line, solutions))
    rows = ({"problem": "What is 1 + 1?", "steps": STEPS, "labels": [True, right]} for right in (True, False))
    _write(native, (json.dumps(row) + "\n" for row in rows))
    for layout in WRITERS:
        convert(native, place / "written" / f"{layout}.jsonl", layout)


def _evaluations(place: Path) -> None:
    console, scorer = Console(file=io.StringIO()), EngineScorer(FakeEngine())
    subsets = {
        name: rows[9:15] for name, rows in processbench.load_processbench(str(TEST_DATA / "processbench")).items()
    }
    figures = processbench.evaluate(subsets, scorer, place / "processbench", console)
    _write(place / "processbench.md", [processbench.markdown("fake", figures)])

    benchmark = prmbench.load_prmbench(str(TEST_DATA / "prmbench" / "solutions.jsonl"))
    few = {name: solutions[:1] for name, solutions in benchmark.items()}
    result = prmbench.evaluate(few, scorer, place / "prmbench", console)
    _write(place / "prmbench.md", [prmbench.markdown("fake", result)])
    _, *others = few
    for path in [*(place / "prmbench").glob("*.jsonl"), *(place / "prmbench").glob("*.config.json")]:
        if path.name.partition(".")[0] in others:  # like the first one
            path.unlink()

    _write(place / "pool.jsonl", (json.dumps(question) + "\n" for question in POOL))
    questions, run = pool.read_pool(place / "pool.jsonl"), place / "best-of-n"
    best_of_n.evaluate(questions, scorer, run, console)
    acceptance.calibrated(run, "2026-01-31").write(place / "calibration.json")

    rows = trajectories.read_trajectories(TEST_DATA / "trajectories" / "hotpotqa.jsonl.gz")
    trajectories.score(rows, scorer, Reading(), place / "trajectories", console)


def _models(place: Path) -> None:
    place.mkdir()
    PrmConfig.read(mini.ADAPTER).write(place)
    Calibration(scale=0.5, shift=-0.25).write(place)
    entry = Entry("2026-01-31T12:00:00Z", "0", "", "/vote/prm", 200, 1.5, b"{}", b'{"strategy":"prm","answer":"4"}')
    journal, file = Journal(place / "journal", 2**20), place / "journal"
    journal.note(entry)
    journal.close()
    with closing(sqlite3.connect(file)) as database:
        made = [row for (row,) in database.execute("SELECT sql FROM sqlite_master ORDER BY name") if row]
        rows = [*database.execute("SELECT * FROM requests"), *database.execute("SELECT * FROM verdicts")]
    file.unlink()
    _write(place / "journal.sql", (f"{line}\n" for line in (*made, *map(str, rows))))


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), "utf-8")
