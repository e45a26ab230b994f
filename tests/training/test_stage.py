"""What long commands show of their progress where there is no terminal, and how they refuse where to write."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import TextColumn

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
    with stage.progress(console, get_time=clock) as progress:
        task = progress.add_task("training my-prm", total=100)
        for step in range(100):
            clock.now += 2.0
            progress.update(task, advance=1, description=f"training my-prm, loss {1 / (step + 1):.2f}")
    shown = lines(console)
    assert shown[0].startswith("training my-prm, loss 1.00   1/100 0:00:02 left")
    assert shown[1] == "training my-prm, loss 0.06  16/100 0:00:32 left 0:02:48"
    assert shown[-1] == "training my-prm, loss 0.01 100/100 0:03:20 left 0:00:00"
    assert len(shown) == 1 + 198 // 30 + 1


def test_slow_steps_have_a_line_each_and_the_time_left(console: Console) -> None:
    clock = Clock()
    with stage.progress(console, get_time=clock) as progress:
        task = progress.add_task("a [slow] one", total=4, completed=1)
        for _ in range(3):
            clock.now += 100.0
            progress.advance(task)
    assert lines(console)[1] == "a [slow] one 3/4 0:03:20 left 0:01:40"


def test_a_board_tells_its_counts(console: Console) -> None:
    with stage.Board(console, "sampling", total=2) as board:
        board.advance(solutions=16)
        board.advance(solutions=16)
    assert lines(console)[-1].startswith("sampling 2/2")
    assert lines(console)[-1].endswith(" · 32 solutions")


def test_counts_are_told_while_no_step_is_done(console: Console) -> None:
    clock = Clock()
    with stage.progress(console, TextColumn("{task.fields[counts]}"), get_time=clock) as progress:
        task = progress.add_task("annotating", total=1, counts="")
        for samples in range(1, 7):
            progress.update(task, completed=0, counts=f"{samples} samples")
            clock.now += 10.0
    assert [line[-9:] for line in lines(console)] == ["1 samples", "4 samples", "6 samples"]


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
