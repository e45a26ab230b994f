"""The study of counts: its truth is exact, and its figures are those by hand."""

import math
import random

from rich.progress import Progress

from research import counts
from research.counts import Size, Written, figures, measure
from research.mini.slips import Author
from unprm.answers.extraction import extract
from unprm.mini.storyteller import generate
from unprm.types import StepScores


def test_an_author_finishes_what_was_written_from_any_step_on():
    rng = random.Random(1)
    for _ in range(20):
        problem = generate(rng)
        careful = Author(rng, 0.0)
        beliefs = [after for _, after in careful.write(problem)]
        assert all(careful.finishes(problem, after) for after in beliefs)
        assert not careful.finishes(problem, {**beliefs[-1], len(problem.operations) - 1: problem.answer + 1})
        solution = Written.by_author(rng, problem, 4)
        assert solution.shares[-1] == (extract(solution.steps[-1]) == str(problem.answer))
        assert [trial.correct / trial.samples for trial in solution.labelled(4).tried] == list(solution.shares)


def test_the_figures_by_hand():
    problem = generate(random.Random(0))
    steps = ("a", "b")
    held_out = [Written(problem, steps, shares) for shares in ((0.5, 1.0), (0.5, 0.0), (0.25, 0.0), (0.5, 1.0))]
    scores = [(0.5, 0.9), (0.8, 0.8), (0.25, 0.5), (0.3, 0.6)]
    intervals = [
        ((0.4, 0.6), (0.8, 0.97)),
        ((0.0, 1.0), (0.3, 1.0)),
        ((0.28, 0.4), (0.01, 0.6)),
        ((0.1, 1.0), (0.2, 1.0)),
    ]
    # of the first of two candidates: 0.97 is not near enough to 1, 0.01 is near enough to 0, and 0.28 not to 0.25
    brier = (0 + 0.1**2 + 0 + 0.5**2) / 4
    loss = (math.log(2) - math.log(0.9) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75) + math.log(2)) / 4
    made = figures(
        [StepScores(each, intervals=around) for each, around in zip(scores, intervals, strict=True)], held_out, 2
    )
    # the least means elect a wrong candidate and a right one, the least lower ends both right ones
    assert made[:4] == [f"{brier:.4f}", f"{loss:.4f}", "50.0", f"{(0.2 + 0.17 + 0.12 + 0.59) / 4:.3f}"]
    assert [cell.partition(" ")[0] for cell in made[4:]] == ["50.0", "100.0"]
    assert figures([StepScores(each) for each in scores], held_out, 2) == [*made[:2], "–", "–", made[4], "–"]


def test_both_prms_are_trained_once_and_measured(tmp_path):
    size = Size(solutions=6, rollouts=4, problems=2, candidates=2)
    table = measure(tmp_path, size, Progress(disable=True))
    assert (tmp_path / "counts.md").read_text() == table
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == [f"| {loss}" for loss in counts.LOSSES]
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert measure(tmp_path, size, Progress(disable=True)) == table
    assert weights == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
