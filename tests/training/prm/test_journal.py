"""What a run shows while it trains: rows, a curve, trackers, and lines of progress."""

import io
import itertools
import json
import re

import pytest
from accelerate.tracking import GeneralTracker, register_tracker_class
from rich.console import Console
from rich.progress import Progress

from tests.training.solutions import learnable
from training import resumable, stage
from training.prm.train import Trainer
from training.prm.train_settings import TrainSettings
from unprm.errors import ModelInvalid

QUIET = Progress(disable=True)


class Remembering(GeneralTracker):
    """A tracker that keeps what it is given."""

    name, requires_logging_directory, tracker = "remembering", True, None

    def __init__(self, project, directory):
        super().__init__()
        self.made, self.seen, self.ended = (project, directory), [], False
        Remembering.last = self

    def store_init_configuration(self, values):
        self.settings = values

    def log(self, values, step=None, **kwargs):
        self.seen.append((step, values))

    def finish(self):
        self.ended = True


class Absent(Remembering):
    """A tracker whose package is not installed."""

    name = "absent"

    def start(self):
        raise ImportError("No module named 'absent'")


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


@pytest.fixture(scope="module", autouse=True)
def trackers():
    for kind in (Remembering, Absent):
        register_tracker_class(kind)


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


def test_trackers_get_the_figures(base, data, tmp_path):
    settings = _settings(base, data, tmp_path / "prm", report_to=("remembering",), validation=(data,))
    Trainer(settings).train(QUIET)
    tracker = Remembering.last
    assert tracker.made == ("prm", str(tmp_path / "prm" / "runs"))
    assert tracker.settings["epochs"] == "2"
    assert tracker.ended
    rows = _rows(tmp_path / "prm" / "train.jsonl")
    steps = [(step, values["train/loss"]) for step, values in tracker.seen if "train/loss" in values]
    assert steps == [(row["step"], row["loss"]) for row in rows]
    assert [step for step, values in tracker.seen if "validation/auroc" in values] == [0, 3, 6]


def test_trackers_that_are_not_there_are_named(base, data, tmp_path):
    with pytest.raises(ModelInvalid, match=r"--report-to takes .*tensorboard.*wandb.*, not nothing"):
        Trainer(_settings(base, tmp_path / "missing.jsonl", tmp_path, report_to=("nothing",)))  # before data is read
    trainer = Trainer(_settings(base, data, tmp_path, report_to=("absent",)))
    with pytest.raises(ModelInvalid, match="--report-to absent needs its package: No module named 'absent'"):
        trainer.train(QUIET)


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
