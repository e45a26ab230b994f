"""The votes that the page takes are those of the library."""

import random
from typing import get_args

import pytest

from tests.browser.harness import Sheet
from unprm import steps
from unprm.types import Normalization
from unprm.votes import decide as votes

CASES = 3000
DECIDE = """
async (cases) => {
  const { decide } = await import("./page/votes.js");
  return cases.map((given) => {
    const outcome = decide(...given);
    const candidates = outcome.candidates.map((candidate) => [
      candidate.members, candidate.mean, candidate.best,
      candidate.normalizedReward, candidate.normalizedFrequency, candidate.score,
    ]);
    return [outcome.decidedBy, candidates, outcome.solutionIndex, outcome.tied, outcome.margin];
  });
}
"""


def _case(rng: random.Random) -> list[object]:
    size = rng.choice([1, 2, 3, 5, 9, 30])
    names: list[int | None] = [*range(rng.randint(1, 6)), None]
    classes = rng.choices(names, k=size)
    if all(name is None for name in classes):
        classes[rng.randrange(size)] = 0
    grid = rng.choice([None, 1, 2, 4])  # few different rewards make many ties
    rewards = [rng.random() if grid is None else rng.randint(0, grid) / grid for _ in range(size)]
    if rng.random() < 0.2:
        rewards = [min(1.0, reward + rng.choice([0, 4e-10, 2e-9])) for reward in rewards]
    if rng.random() < 0.4:  # the first stays: where rewards decide, one has to be there
        rewards[1:] = [None if rng.random() < 0.5 else reward for reward in rewards[1:]]
    alpha = rng.choice([0.0, 0.25, 0.5, 1.0, rng.random()])
    return [rng.choice(votes.STRATEGIES), classes, rewards, alpha, rng.choice(get_args(Normalization))]


def _expected(*case):
    result = votes.decide(*case)
    candidates = [
        [list(c.members), c.mean_reward, c.max_reward, c.normalized_reward, c.normalized_frequency, c.score]
        for c in result.classes
    ]
    return [result.decided_by, candidates, result.solution_index, len(result.tied), result.margin]


def test_the_page_votes_as_the_library_does(sheet: Sheet) -> None:
    rng = random.Random(7)
    cases = [_case(rng) for _ in range(CASES)]
    ours = [_expected(*case) for case in cases]
    theirs = sheet.page.evaluate(DECIDE, cases)
    differing = [case for case, our, their in zip(cases, ours, theirs, strict=True) if their != our]
    assert not differing[:3]
    assert {outcome[0] for outcome in ours} == {"majority", "reward", "combined", "unanimous"}
    assert sum(outcome[3] > 1 for outcome in ours) > 300
    assert sum(None in case[2] for case in cases) > 300  # type: ignore[operator]


def test_the_sweep_tells_who_wins_at_every_weight(sheet: Sheet) -> None:
    rng = random.Random(8)
    for _ in range(100):
        _, classes, rewards, _, normalization = _case(rng)
        stretches = sheet.page.evaluate(
            "async (given) => (await import('./page/votes.js')).sweep(...given)", [classes, rewards, normalization]
        )
        assert [stretches[0]["from"], stretches[-1]["to"]] == [0, 1]
        for stretch in stretches:
            for alpha in (stretch["from"], stretch["to"]):
                winner = votes.decide("wrf", classes, rewards, alpha, normalization).classes[0]  # type: ignore[arg-type]
                assert list(winner.members) == stretch["members"]


@pytest.mark.parametrize("aggregate", ["min", "last", "product", "mean"])
def test_rewards_and_first_errors_are_those_of_the_library(sheet: Sheet, aggregate) -> None:
    rng = random.Random(9)
    scores = [[rng.random() ** rng.choice([0.1, 1, 9]) for _ in range(rng.randint(1, 40))] for _ in range(500)]
    actual = sheet.page.evaluate(
        """async ([scores, aggregate]) => {
          const { reward, firstError } = await import("./page/scores.js");
          return scores.map((stepScores) => [reward(stepScores, aggregate), firstError(stepScores, 0.3)]);
        }""",
        [scores, aggregate],
    )
    assert actual == [[steps.reward(values, aggregate), steps.first_error(values, 0.3)] for values in scores]
