"""What is made once is whole, or not there."""

import threading
from pathlib import Path

import pytest

from unprm.engines.vllm.model import fill


def test_who_comes_while_it_is_written_waits_and_finds_it(tmp_path: Path) -> None:
    place, turns = tmp_path / "model", list[str]()
    place.mkdir()
    begun = threading.Event()

    def write(partial: Path) -> None:
        assert not list(partial.iterdir())
        turns.append("begun")
        (partial / "weights").write_text("all of them")
        if not begun.is_set():
            begun.set()
            other.join(1.0)  # it waits for this one, so it is still there
        assert (partial / "weights").read_text() == "all of them"
        (partial / "config.json").write_text("{}")
        turns.append("ended")

    other = threading.Thread(target=lambda: (begun.wait(), fill(place, write)))
    other.start()
    fill(place, write)
    other.join()
    assert turns == ["begun", "ended"]
    assert sorted(path.name for path in place.iterdir()) == ["config.json", "weights"]
    assert not (tmp_path / "model.partial").exists()


def test_what_a_killed_process_left_is_not_used(tmp_path: Path) -> None:
    def fail(partial: Path) -> None:
        (partial / "half").write_text("")
        raise OSError("the disk is full")

    place = tmp_path / "model"
    place.mkdir()
    with pytest.raises(OSError, match="full"):
        fill(place, fail)
    fill(place, lambda partial: (partial / "config.json").touch())
    assert [path.name for path in place.iterdir()] == ["config.json"]
