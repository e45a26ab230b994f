"""What a run shows while it trains: rows, a curve, and lines of progress."""

import io
import itertools
import json
import re

import pytest
from rich.console import Console
from rich.progress import Progress

from tests.training.solutions import learnable
from training import resumable, stage
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings

QUIET = Progress(disable=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "steps.jsonl"
    resumable.write_lines(path, list(learnable(24)))
    return path


def _settings(base, data, output, **changes):
    values = {"epochs": 2, "batch_size": 8, "lora_dropout": 0.0, "batch_tokens": 100}
    return TrainSettings(base=str(base), data=(data,), output=output, **(values | changes))


def _rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_step_has_a_row_at_once_and_the_end_a_curve(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path, checkpoint_every=100))
    seen = []

    class Watched(Progress):
        def update(self, *arguments, **options):
            super().update(*arguments, **options)
            seen.append(len(_rows(tmp_path / "train.jsonl")))

    trainer.train(Watched(disable=True))
    assert sorted(set(seen)) == [0, 1, 2, 3, 4, 5, 6]  # though nothing is saved before the end of an epoch
    rows = _rows(tmp_path / "train.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert sum(row["tokens"] for row in rows) == 2 * sum(len(example.encoded.ids) for example in trainer.examples)
    assert all(row["batch_tokens"] == 100 and row["seconds"] > 0 for row in rows)
    assert [row["learning_rate"] for row in rows] == [trainer.settings.rate(step, 6) for step in range(6)]


def test_rows_after_the_last_checkpoint_go_when_a_run_goes_on(base, data, tmp_path):
    trainer = Trainer(_settings(base, data, tmp_path, epochs=1))
    trainer.train(QUIET)
    rows = _rows(tmp_path / "train.jsonl")
    resumable.write_lines(tmp_path / "train.jsonl", [*rows, {"step": 4, "loss": 9.0}])
    assert Trainer(_settings(base, data, tmp_path, epochs=1)).train(QUIET).steps == 3
    assert _rows(tmp_path / "train.jsonl") == rows


def test_tokens_and_the_time_left_are_there_from_the_first_pass_on(base, data, tmp_path):
    console = Console(file=io.StringIO(), width=20)
    seconds = itertools.count(0.0, 31.0)  # so that each pass writes a line
    trainer = Trainer(_settings(base, data, tmp_path))
    tokens = 2 * sum(len(example.encoded.ids) for example in trainer.examples)
    with stage.progress(console, get_time=lambda: next(seconds)) as progress:
        trainer.train(progress)
    start, first, *_, last = console.file.getvalue().splitlines()
    assert re.fullmatch(rf"training \S+, step 0 of 6, tokens +0/{tokens} .* left -:--:--", start)
    assert re.fullmatch(rf"training \S+, step 0 of 6, tokens +[1-9]\d*/{tokens} .* left \d:\d\d:\d\d", first)
    assert re.fullmatch(rf"training \S+, step 6 of 6, loss \d.\d+, tokens {tokens}/{tokens} .* left 0:00:00", last)
