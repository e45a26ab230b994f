"""Votes on candidates whose steps are only checked, against an oracle that counts."""

import random
from collections import Counter
from typing import Any

import pytest

from unprm import pipeline
from unprm.library import LocalScorer
from unprm.votes.registry import VOTES
from unprm.wire import VOTE_REQUESTS

STEPS = {"1 + 1 = 2": True, "1 + 1 = 3": False, "So it goes": None}


class Checks(LocalScorer):
    """As a server that only checks."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.checks = "checks", True


def oracle(ballot: list[tuple[str | None, list[str]]]) -> tuple[str, int, bool, bool | None, bool]:
    """The most frequent answer; of equally frequent ones the one in which fewest candidates have a false equation, then
    the first; a member without one, then the first; whether it is a tie; whether a member with an equation has no
    false one; whether only another answer has such a member."""
    false = [any(STEPS[step] is False for step in steps) for _, steps in ballot]
    read = [any(STEPS[step] is not None for step in steps) for _, steps in ballot]
    counts = Counter(answer for answer, _ in ballot if answer is not None)
    flaws = Counter(answer for (answer, _), flawed in zip(ballot, false, strict=True) if flawed)
    first = [answer for answer, _ in ballot].index
    ranked = sorted(counts, key=lambda answer: (-counts[answer], flaws[answer], first(answer)))
    elected = ranked[0]
    members = [index for index, (answer, _) in enumerate(ballot) if answer == elected]
    shown = min(members, key=lambda index: (false[index], index))
    sound = {
        index for index, (answer, _) in enumerate(ballot) if answer is not None and read[index] and not false[index]
    }
    known = any(read[index] for index in members)
    supported = bool(sound & {*members}) if known else None
    tie = sum(count == counts[elected] for count in counts.values()) > 1
    return elected, shown, tie, supported, supported is False and bool(sound)


@pytest.mark.parametrize("vote", [name for name, vote in VOTES.items() if vote.signal in ("none", "reward")])
def test_every_vote_is_the_oracle_s(vote: str) -> None:
    rng = random.Random(0)
    for _ in range(200):
        ballot: list[tuple[str | None, list[str]]] = [
            (rng.choice([None, "1", "2", "3", "4"]), rng.choices([*STEPS], k=rng.randint(1, 3)))
            for _ in range(rng.randint(1, 7))
        ]
        if all(answer is None for answer, _ in ballot):
            continue
        solutions: list[dict[str, Any]] = [{"steps": steps, "answer": answer or ""} for answer, steps in ballot]
        request = VOTE_REQUESTS[vote].model_validate({"problem": "p", "solutions": solutions})
        scorer = Checks()
        found = scorer.finish(pipeline.vote(request, vote, scorer))
        seen = (found.answer, found.solution_index, found.tie, found.supported, bool(found.notes))
        assert seen == oracle(ballot)
        assert {each.reward for each in found.solutions} == {None}
        assert [each.step_scores for each in found.solutions] == [
            [None if STEPS[step] is None else float(STEPS[step]) for step in steps] for _, steps in ballot
        ]
