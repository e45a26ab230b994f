"""What long commands show of their progress where there is no terminal, and how they refuse where to write."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from training import stage
from unprm.errors import OutputMismatch


class Clock:
    """Seconds, as they are set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def console() -> Console:
    """One that writes to a file, narrower than the lines are."""
    return Console(file=io.StringIO(), width=20)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_log_file_has_the_first_line_one_every_half_minute_and_the_last(console: Console) -> None:
    clock = Clock()
    with stage.Lines(console, get_time=clock) as progress:
        task = progress.add_task("training my-prm", total=100)
        for step in range(100):
            clock.now += 2.0
            progress.update(task, advance=1, description=f"training my-prm, loss {1 / (step + 1):.2f}")
    shown = lines(console)
    assert shown[0] == "training my-prm: 0 of 100"
    assert shown[1] == "training my-prm, loss 0.07: 15 of 100, in 0:00:30, 0.5 a second, 0:02:50 left"
    assert shown[-1] == "training my-prm, loss 0.01: 100 of 100, in 0:03:20, 0.5 a second"
    assert len(shown) == 1 + 200 // 30 + 1


def test_slow_steps_have_a_line_each_and_a_rate(console: Console) -> None:
    clock = Clock()
    with stage.Lines(console, get_time=clock) as progress:
        task = progress.add_task("slow", total=3, completed=1)
        for _ in range(2):
            clock.now += 100.0
            progress.advance(task)
    assert lines(console) == [
        "slow: 1 of 3",
        "slow: 2 of 3, in 0:01:40, 0.01 a second, 0:01:40 left",
        "slow: 3 of 3, in 0:03:20, 0.01 a second",
    ]


def test_what_ends_early_has_its_last_line_too(console: Console) -> None:
    with stage.progress(console) as progress:
        progress.advance(progress.add_task("training", total=100), 7)
    assert [line.partition(",")[0] for line in lines(console)] == ["training: 0 of 100", "training: 7 of 100"]


def test_a_board_tells_its_counts(console: Console) -> None:
    with stage.Board(console, "sampling", total=2) as board:
        board.advance(solutions=16)
        board.advance(solutions=16)
    assert lines(console)[0] == "sampling: 0 of 2"
    assert lines(console)[-1].startswith("sampling: 2 of 2")
    assert lines(console)[-1].endswith(" · 32 solutions")


def test_counts_are_told_while_no_step_is_done(console: Console) -> None:
    clock = Clock()
    with stage.Lines(console, get_time=clock) as progress:
        task = progress.add_task("annotating", total=1, counts="")
        for samples in range(1, 7):
            clock.now += 10.0
            progress.update(task, completed=0, counts=f" · {samples} samples")
    assert lines(console) == [f"annotating: 0 of 1{counts}" for counts in ("", " · 3 samples", " · 6 samples")]


def test_what_is_not_to_be_shown_is_not(console: Console) -> None:
    with stage.progress(console, shown=False) as progress:
        progress.advance(progress.add_task("training", total=1))
    assert lines(console) == []


def test_a_terminal_has_bars() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with stage.progress(console) as progress:
        progress.advance(progress.add_task("training", total=1))
    assert any("━" in line for line in lines(console))


def test_a_file_is_no_place_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below" / "it"):
        with pytest.raises(
            OutputMismatch, match=rf"^the output {place} can't be a directory: {tmp_path}/file is a file$"
        ):
            stage.directory(place)
    for place in (tmp_path, tmp_path / "new" / "one", Path("relative")):
        assert stage.directory(place) == place
