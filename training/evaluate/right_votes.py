"""Whether a vote among candidates of a question elects a right answer."""

from collections.abc import Callable, Sequence

from unprm.election.decide import decide, drop_unanswered, needed_signal
from unprm.types import AnswerGroup
from unprm.votes.registry import DEFAULTS, VOTES, Strategy
from unprm.votes.vote import Terms
from unprm.wire import Election

from .judging import JudgedCandidates

STUDIED: tuple[Strategy, ...] = ("majority", "prm", "hmr", "wrf", "weighted")
"""The votes that reports and the lab compare: the paper's, and the weighted majority."""

RightShare = Callable[[JudgedCandidates, Sequence[int]], float]
"""How right the decision among these candidates (indices) is: 0 or 1, in between only for ties."""


def uses_rewards(strategy: Strategy) -> bool:
    return needed_signal(strategy, (0, 1)) == "reward"


def takeable(judged: Sequence[JudgedCandidates]) -> tuple[Strategy, ...]:
    """The votes by answers alone, those by rewards if there are any, and those by confidence for which every question
    has confidences."""
    there = {
        "none": True,
        "reward": any(reward is not None for candidates in judged for reward in candidates.rewards),
        "confidence": all(candidates.confidences for candidates in judged),
    }
    return tuple(name for name, vote in VOTES.items() if there[vote.signal])


def right_share(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], terms: Terms = DEFAULTS) -> float:
    """How right a vote among these candidates (indices) is, in [0, 1]; 0 if no answer can be elected.

    It is 1 if the elected answer is right, else 0. If answers are tied and differ only in the order of their first
    candidates, it is the share of right ones among them, as that order is chance.
    """
    result = _vote(strategy, judged, picks, terms)
    if result is None:
        return 0.0
    _, *others = _level(result)
    stand_for = [result.solution_index, *(group.members[0] for group in others)]
    return sum(judged.correct[picks[k]] for k in stand_for) / len(stand_for)


def _level(result: Election) -> list[AnswerGroup]:
    """The elected class and those that lose only by order: tied with it and, if the vote uses rewards, with the same
    count and mean reward."""
    winner = result.candidates[0]
    tied = result.candidates[: len(result.tied_answers) or 1]
    if result.decided_by == "majority":
        return tied
    return [each for each in tied if (each.count, each.mean_reward) == (winner.count, winner.mean_reward)]


def _vote(strategy: Strategy, judged: JudgedCandidates, picks: Sequence[int], terms: Terms) -> Election | None:
    """None if no candidate has an answer, or none that has one the reward or confidence that the vote needs."""
    given = judged.values(strategy)
    classes = [judged.classes[k] for k in picks]
    values = drop_unanswered(classes, [given[k] for k in picks])
    lacking = values is None and needed_signal(strategy, classes, terms) != "none"
    if lacking or all(name is None for name in classes):
        return None
    rewards = None if VOTES[strategy].signal == "confidence" else values
    return decide(strategy, classes, rewards, terms, values)
