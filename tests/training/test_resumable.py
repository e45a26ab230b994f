"""Records survive crashes, and no file mixes two configurations."""

import json
import resource
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.training import lines
from training import resumable, sources
from training.resumable import ResumableFile, config_path
from training.schema import ResolvedSolution, SampledQuestion, SelectedSolution
from unprm.errors import OutputMismatch, RecordInvalid


@dataclass(frozen=True)
class Note:
    """A record."""

    id: str
    text: str = ""
    value: float = 0.0


def _open(path, config):
    return ResumableFile(path, Note, config)


def _ids(path):
    return [note.id for note in sources.read(path, Note)]


def test_records_are_there_again_for_the_next_run(tmp_path):
    path = tmp_path / "deep" / "a.jsonl"
    with _open(path, {"k": 1}) as first:
        first.append(Note("a", "ş\n\u2028"))
    with _open(path, {"k": 1}) as second:
        assert second.records == {"a": Note("a", "ş\n\u2028")}
        second.append(Note("b"))
    assert _ids(path) == ["a", "b"]


@pytest.mark.parametrize("torn", [b'{"id": "c", "te', b"{", b'{"id": "c"}', b"\xc5"])
def test_a_torn_last_line_is_cut_off(tmp_path, torn):
    path = tmp_path / "a.jsonl"
    with _open(path, {}) as first:
        first.append(Note("a"))
        first.append(Note("b", "x" * 200_000))
    with path.open("ab") as file:
        file.write(torn)
    with _open(path, {}) as second:
        assert list(second.records) == ["a", "b"]
        second.append(Note("c"))
    assert _ids(path) == ["a", "b", "c"]


def test_a_file_of_nothing_but_a_torn_line_is_empty(tmp_path):
    path = tmp_path / "a.jsonl"
    _open(path, {}).close()
    path.write_bytes(b'{"id": "a" ' + b"x" * 100_000)
    with _open(path, {}) as mended:
        assert mended.records == {}
    assert path.read_bytes() == b""


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    path = tmp_path / "a.jsonl"
    with _open(path, {"k": 32, "seed": 0}) as first:
        first.append(Note("a"))
    with pytest.raises(OutputMismatch, match="k was 32, is 16; m was null, is 2"):
        _open(path, {"k": 16, "seed": 0, "m": 2})
    assert _ids(path) == ["a"]


def test_records_without_their_configuration_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    with _open(path, {}) as first:
        first.append(Note("a"))
    config_path(path).unlink()
    with pytest.raises(OutputMismatch, match=r"a\.config\.json"):
        _open(path, {})


def test_two_runs_cannot_write_one_file(tmp_path):
    with _open(tmp_path / "a.jsonl", {}), pytest.raises(OutputMismatch, match="another run"):
        _open(tmp_path / "a.jsonl", {})


@pytest.mark.parametrize("line", ["[]", '{"id": 3}', "not json", '{"name": "x"}'])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a"}\n' + line + "\n")
    with pytest.raises(RecordInvalid, match="line 2"):
        list(sources.read(path, Note))


def test_a_value_that_json_does_not_know_is_refused_before_it_is_written(tmp_path):
    with _open(tmp_path / "a.jsonl", {}) as written:
        with pytest.raises(ValueError, match="JSON"):
            written.append(Note("a", value=float("nan")))
        written.append(Note("b"))
    assert _ids(tmp_path / "a.jsonl") == ["b"]


_FILLS_THE_DISK = """
import json, sys
from pathlib import Path
from training.resumable import ResumableFile
from training.evaluate.records import SolutionScores
with ResumableFile(Path(sys.argv[1]), SolutionScores, {}) as written:
    for number in range(1000):
        try:
            written.append(SolutionScores(str(number) + "x" * 100, None))
        except OSError:
            print(number)
            break
"""


def test_a_full_disk_keeps_all_records_and_no_half_one(tmp_path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error instead of a death

    command = [sys.executable, "-c", _FILLS_THE_DISK, str(tmp_path / "a.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=small_files)
    count = int(done.stdout)
    assert 10 < count < 60
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(number) + "x" * 100 for number in range(count)]


def test_a_file_is_written_anew_all_or_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    resumable.write(path, {"k": 1}, [Note("a"), Note("b")])
    with pytest.raises(ValueError, match="JSON"):
        resumable.write(path, {"k": 2}, [Note("c"), Note("d", value=float("inf"))])
    assert _ids(path) == ["a", "b"]
    assert json.loads(config_path(path).read_text()) == {"k": 1}


@pytest.mark.parametrize(
    ("kind", "field", "stage"),
    [
        (SampledQuestion, "completions", "sample"),
        (SelectedSolution, "ends", "select"),
        (ResolvedSolution, "labels", "annotate"),
    ],
)
def test_a_file_of_another_stage_is_refused_with_the_field_and_the_stage_that_makes_it(tmp_path, kind, field, stage):
    path = tmp_path / "a.jsonl"
    whole = {
        "id": "a", "question": "q", "problem": "1?", "answer": "1", "predicted": "1", "model": "m", "prompt": [],
        "index": 0, "completions": [], "text": "", "ids": [], "logprobs": [], "steps": [], "ends": [], "correct": True,
        "uncertainty": 0, "mean_step_uncertainty": {}, "labels": [], "tau": None, "verified": 0, "samples": 0,
        "tokens": 0, "tried": [],
    }  # fmt: skip
    lines.write(path, {}, [whole, {name: value for name, value in whole.items() if name != field}])
    with pytest.raises(
        RecordInvalid, match=rf"a.jsonl, line 2: {field}: is required; expected a file of `training {stage}`"
    ):
        list(sources.read(path, kind))
