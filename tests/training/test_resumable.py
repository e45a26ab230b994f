"""Records survive crashes, and no file mixes two configurations."""

import gzip
import json
import re
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
from training.resumable import ResumableFile, replace
from training.evaluate.scorers import SolutionScores
with ResumableFile(Path(sys.argv[1]), SolutionScores, {}) as written:
    for number in range(1000):
        try:
            written.append(SolutionScores(str(number) + "x" * 100, None))
        except OSError as error:
            print(number)
            first = error
            break
try:
    replace(Path(sys.argv[1]).with_name("b.json"), "x" * 10000)
except OSError as other:
    print(first, other)
"""


def test_a_full_disk_keeps_all_records_and_no_half_one(tmp_path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error instead of a death

    command = [sys.executable, "-c", _FILLS_THE_DISK, str(tmp_path / "a.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=small_files)
    first, errors = done.stdout.splitlines()
    count = int(first)
    assert re.fullmatch(r".*: '.*/a\.jsonl' .*: '.*/b\.json'", errors)
    assert not any(place.name.startswith("b.json") for place in tmp_path.iterdir())
    assert 10 < count < 60
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(number) + "x" * 100 for number in range(count)]


def test_a_file_is_written_anew_all_or_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    resumable.write(path, {"k": 1}, [Note("a"), Note("b")])
    with pytest.raises(ValueError, match="JSON"):
        resumable.write(path, {"k": 1}, [Note("c"), Note("d", value=float("inf"))])
    with pytest.raises(OutputMismatch, match="k was 1, is 2"):
        resumable.write(path, {"k": 2}, [Note("c")])
    assert _ids(path) == ["a", "b"]
    assert json.loads(config_path(path).read_text()) == {"k": 1}
    assert sorted(place.name for place in tmp_path.iterdir()) == ["a.config.json", "a.jsonl"]


def test_what_is_no_record_file_is_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputMismatch, match=r"mine\.config\.json"):
        resumable.write(tmp_path / "mine.txt", {}, [Note("a")])
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_record_of_the_same_id_and_other_content_is_no_record_of_the_item(tmp_path):
    with _open(tmp_path / "a.jsonl", {}) as written:
        written.append(Note("a", "one"))
        assert written.has(Note("a", "one", 2.0), "text")
        assert not written.has(Note("b"), "text")
        with pytest.raises(OutputMismatch, match="has another record with the id 'a'"):
            written.has(Note("a", "other"), "text")


def test_compressed_files_are_read_and_not_written(tmp_path):
    path = tmp_path / "a.jsonl"
    resumable.write(path, {"k": 1}, [Note(str(number), "text" * number) for number in range(100)])
    packed = path.with_name("a.jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert _ids(packed) == _ids(path)
    assert resumable.config_of(packed) == {"k": 1}
    for write in (lambda: _open(packed, {"k": 1}), lambda: resumable.write(packed, {"k": 1}, [])):
        with pytest.raises(OutputMismatch, match=r"leave out \.gz"):
            write()
    for broken in (packed.read_bytes()[:200], b"{}", packed.read_bytes()[:30] + bytes(300)):
        packed.write_bytes(broken)
        with pytest.raises(RecordInvalid, match=r"a\.jsonl\.gz: not a whole gzip file"):
            _ids(packed)


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
        RecordInvalid, match=rf"a.jsonl, line 2: {field}: Field required; expected a file of `training {stage}`"
    ):
        list(sources.read(path, kind))
