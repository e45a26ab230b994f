"""A budget of candidates shared by many questions, on pools whose outcome is known."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from research import budget
from research.__main__ import app
from research.budget import Standing, least_decided
from tests.support import tables
from training.evaluate.records import JudgedCandidates
from training.schema import to_line


def _question(name, classes):
    """The right answer is 0; the rewards say nothing."""
    return JudgedCandidates(name, classes, tuple(each == 0 for each in classes), (0.5,) * len(classes))


AGREED = _question("agreed", (0,) * 6)
SPLIT = _question("split", (0, 1, 2, 0, 1, 2))


@pytest.mark.parametrize("vote", budget.VOTES)
def test_every_question_gets_one_and_the_rest_goes_where_answers_differ(vote):
    found = budget.allocate(vote, [AGREED, SPLIT], (1, 2, 3, 4))
    assert [sum(counts) for counts in found.values()] == [2, 4, 6, 8]
    assert found[1] == [1, 1]
    agreed, split = found[4]
    assert agreed < split


def test_nothing_is_spent_on_votes_that_can_not_change():
    # four of six that agree are a majority for good
    assert budget.allocate("majority", [AGREED, SPLIT], (6,)) == {6: [4, 6]}


@pytest.mark.parametrize("vote", budget.VOTES)
def test_candidates_without_a_reward_are_spent_like_others(vote):
    """The first has none that is scored, the second only one without an answer."""
    unscored = replace(SPLIT, rewards=(None,) * 6)
    hidden = replace(SPLIT, id="hidden", classes=(0, 1, None, 0, 1, 2), rewards=(None, None, 0.9, None, None, None))
    found = budget.allocate(vote, [unscored, hidden], (1, 3, 6))
    assert {size: sum(counts) for size, counts in found.items()} == {1: 2, 3: 6, 6: 12}


def test_a_shared_budget_is_compared_with_an_equal_one_at_the_same_total():
    """Where all agree two candidates are enough; elsewhere seven of twelve are right, which a few may not show."""
    agreed = [_question(f"a{number}", (0,) * 12) for number in range(12)]
    split = [_question(f"s{number}", (0,) * 7 + (1,) * 5) for number in range(12)]
    found = budget.measure(agreed + split)
    assert {size for _, size in found} == {2, 4, 8}
    for vote in budget.VOTES:
        spent = found[vote, 8]
        assert 0.75 < spent.each.mean < spent.shared.mean
        assert spent.difference.startswith("+")
    assert budget.measure(agreed)["majority", 2].difference == "+0.0 [+0.0, +0.0], p = 1.000"


def test_the_command_writes_a_row_for_every_vote_and_number(tmp_path):
    for name, count in (("few", 3), ("many", 5)):
        questions = [_question(f"{number}", tuple(k % 2 for k in range(count))) for number in range(3)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "candidates.jsonl").write_text("".join(map(to_line, questions)), "utf-8")
    output = tmp_path / "budget.md"
    result = CliRunner().invoke(
        app, ["budget", *(str(tmp_path / name) for name in ("few", "many")), "--output", str(output)]
    )
    assert result.exit_code == 0, result.output
    (rows,) = tables(output.read_text("utf-8"))
    assert [(row["vote"], row["pool"], row["candidates a question"]) for row in rows] == [
        (vote, name, size) for name, sizes in (("few", "2"), ("many", "24")) for vote in budget.VOTES for size in sizes
    ]


@pytest.mark.parametrize(
    ("standings", "chosen"),
    [
        ([(2, 4, 0.9), (1, 4, 0.5), (3, 4, 0.7)], 1),
        ([(2, 4, 0.5), (1, 4, 0.5), (1, 4, 0.5)], 1),  # as stable: the fewest candidates, then the first
        ([(4, 4, 0.1), (1, 4, 1.0), (2, 4, 0.99)], 2),  # the first has its most, the second is certain
        ([(4, 4, 0.1), (1, 4, 1.0)], None),
        ([], None),
    ],
)
def test_the_next_candidate_goes_to_the_least_stable_vote(
    standings: list[tuple[int, int, float]], chosen: int | None
) -> None:
    assert least_decided([Standing(*each) for each in standings]) == chosen
